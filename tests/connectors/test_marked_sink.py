"""What sinks add to rows that replace others; and the sinks beneath keep the contract of all sinks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.connectors.position import Position
from gateway.core.exchange.reorder import Released
from gateway.sinks.base import Sink
from gateway.sinks.marked import MarkedSink, snapshot_of, upserts_of
from gateway.sinks.parts.filesink import FileSink
from gateway.sinks.threaded import ThreadedSink
from tests.connectors.file_sinks import FolderSubject
from tests.connectors.http_taker import sink_to, taker
from tests.connectors.sink_contract import RESULT, SinkContract, at, opened, release, row

Mode = Literal["update", "complete"]


class MarkedSubject(FolderSubject):
    """A folder whose rows are marked; ``rows`` checks the marks, and returns the rows without them."""

    def __init__(self, folder: Path, form: Literal["jsonl", "parquet"], mode: Mode) -> None:
        super().__init__(folder, form)
        self._folder, self._form, self._mode = folder, form, mode

    def make(self, *, owner: str = "me", epoch: int = 1) -> Sink:
        return MarkedSink(super().make(owner=owner, epoch=epoch), self._mode)

    async def marked(self) -> list[dict[str, Any]]:
        return await super().rows()

    async def rows(self) -> list[dict[str, Any]]:
        found = await self.marked()
        snapshots = [each for each in found if each["_op"] == "S"]
        assert bool(snapshots) == (self._mode == "complete" and bool(found))
        assert all(each["id"] is None and each["text"] is None for each in snapshots)
        kept = [each for each in found if each["_op"] == "U"]
        assert len(kept) + len(snapshots) == len(found)
        # ``row`` numbers each result by its event, so the last event of its release is not before it.
        assert all(each["_seq"] >= each["id"] for each in kept)
        return [{name: each[name] for name in RESULT.names} for each in kept]


class TestMarkedSink(SinkContract):
    @pytest.fixture(params=[(form, mode) for form in ("jsonl", "parquet") for mode in ("update", "complete")])
    def subject(self, tmp_path: Path, request: pytest.FixtureRequest) -> MarkedSubject:
        return MarkedSubject(tmp_path / "out", *request.param)


async def test_an_empty_snapshot_is_written_too_and_its_seq_says_which_is_the_last(tmp_path: Path) -> None:
    subject = MarkedSubject(tmp_path / "out", "jsonl", "complete")
    sink = await opened(subject)
    await sink.commit([release(0, 4), release(5, 9, keep=100)], at(9))
    found = await subject.marked()
    assert [(each["_op"], each["_seq"]) for each in found] == [("S", 4), *[("U", 4)] * 5, ("S", 9)]
    await sink.commit([release(5, 9, keep=100), release(10, 10)], at(10))
    found = await subject.marked()
    last = max(each["_seq"] for each in found)
    names = RESULT.names
    assert [{n: each[n] for n in names} for each in found if each["_seq"] == last and each["_op"] == "U"] == [row(10)]
    await sink.close()


@given(
    batches=st.lists(st.dictionaries(st.integers(0, 5), st.integers(-9, 9), max_size=6), max_size=8),
    snapshots=st.booleans(),
)
def test_a_reader_that_follows_the_marks_has_the_table(batches: list[dict[int, int]], snapshots: bool) -> None:
    """The oracle is a dictionary; the reader is the recipe of docs/output-modes.md."""
    schema = pa.schema([("key", pa.int64()), ("value", pa.int64())])
    wanted, read = dict[int, int](), dict[int, int]()
    for number, batch in enumerate(batches):
        wanted = dict(batch) if snapshots else wanted | batch
        rows = pa.RecordBatch.from_pylist([{"key": k, "value": v} for k, v in batch.items()], schema=schema)
        for each in (snapshot_of if snapshots else upserts_of)(rows, number).to_pylist():
            assert each["_seq"] == number
            if each["_op"] == "S":
                read.clear()
            else:
                read[each["key"]] = each["value"]
        assert read == wanted


async def test_rows_in_json_lines_are_marked_at_their_end(tmp_path: Path) -> None:
    inner = ThreadedSink(lambda: FileSink(tmp_path, owner="me", format="jsonl", ordered=True))
    sink = MarkedSink(inner, "update")
    await sink.open()
    rows = pa.RecordBatch.from_pylist([{"customer": "ann", "total": 7}])
    await sink.commit([Released(3, 8, rows, late=False)], Position(9))
    await sink.close()
    (part,) = tmp_path.glob("[0-9]*.jsonl")
    assert part.read_text() == '{"customer":"ann","total":7,"_op":"U","_seq":8}\n'
    assert json.loads((tmp_path / "_manifest.json").read_text())["committed"] == [[3, 8]]


async def test_over_http_each_request_is_a_whole_snapshot(tmp_path: Path) -> None:
    async with taker() as receiver:
        sink = MarkedSink(sink_to(receiver.url, tmp_path), "complete")
        await sink.open()
        await sink.commit([release(0, 1), release(2, 4, keep=100)], at(4))
        await sink.close()
        bodies = [[json.loads(line) for line in body.splitlines()] for body in receiver.bodies]
    assert [[(row["_op"], row["_seq"]) for row in body] for body in bodies] == [
        [("S", 1), ("U", 1), ("U", 1)],
        [("S", 4)],
    ]
