"""Answers do not depend on who reads the events of files: executors, or somebody who sends them along."""

from __future__ import annotations

import csv
import io
import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engines.reading.references import row_of
from engines.streaming.feed import pack, stream_of
from gateway.sources.base import Ahead, Chunk
from gateway.sources.files.reading.passes import FixedFiles, PassesSource
from infra.files.choosing import open_by_name
from infra.messages import FileRange, FileReading
from tests.engines.stream_bench import Bench, assert_alike

pytestmark = pytest.mark.spark

SCHEMA = "id BIGINT, amount INT, note STRING"
SQL = "SELECT id, amount + 1 AS next, CAST(note AS INT) AS number FROM events WHERE id < 90"

_NOTES = ["1", "22", " 3 ", "4", "\n5\n", "\t6", "7", "8", '"nine", not 9']
_EVENTS = st.fixed_dictionaries(
    {"id": st.integers(0, 99), "note": st.sampled_from(_NOTES)},
    optional={"amount": st.none() | st.integers(-(2**31), 2**31 - 1)},
)
_NO_EVENTS = st.sampled_from([{"id": "seven"}, {"id": 1, "amount": 3_000_000_000}])
_RECORDS = st.lists(st.one_of(_EVENTS, _EVENTS, _EVENTS, _NO_EVENTS), min_size=1, max_size=16)
Record = dict[str, Any]


def json_lines(records: Sequence[Record], path: Path) -> None:
    """The last line has no end, and one in the middle is blank."""
    lines = [json.dumps(each) for each in records]
    path.write_text("\n".join([*lines[:2], "", *lines[2:]]))


def comma_separated(records: Sequence[Record], path: Path) -> None:
    text = io.StringIO()
    writer = csv.DictWriter(text, ["id", "amount", "note"])
    writer.writeheader()
    writer.writerows(records)
    path.write_text(text.getvalue(), newline="")


def _table(records: Sequence[Record]) -> pa.Table:
    """The ids are text, so that some are no numbers."""
    rows = [{"id": str(each["id"]), "amount": each.get("amount"), "note": each.get("note")} for each in records]
    return pa.Table.from_pylist(rows, pa.schema([("id", pa.string()), ("amount", pa.int64()), ("note", pa.string())]))


def parquet(records: Sequence[Record], path: Path) -> None:
    pq.write_table(_table(records), path, row_group_size=7)


def arrow(records: Sequence[Record], path: Path) -> None:
    table = _table(records)
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=4)


FORMATS = {"jsonl": json_lines, "csv": comma_separated, "parquet": parquet, "arrow": arrow}


class Both:
    """One query, open twice: it gets the same files by reference and by value."""

    def __init__(self, bench: Bench, folder: Path) -> None:
        self.folder = folder
        self.referring = bench.open(SQL, schema=SCHEMA, reads=FileReading(folder=str(folder)))
        self.valued = bench.open(SQL, schema=SCHEMA)
        self.files, self.tags = itertools.count(), itertools.count()
        assert self.referring.stream.by_reference
        assert not self.valued.stream.by_reference

    def put(self, kind: str, records: Sequence[Record], cut: int) -> list[tuple[int, int, int]]:
        """Put a file of records on both paths, in runs of ``cut``; return of each its tag, events and dead records."""
        path = self.folder / f"{next(self.files)}.{kind}"
        FORMATS[kind](records, path)
        source = PassesSource(FixedFiles([path]), lambda *where: open_by_name(*where, strict=False))
        source.open(self.valued.schema)
        told = []
        while (ahead := source.ahead(cut, 1 << 20)) is not None:
            assert isinstance(ahead, Ahead)
            chunk = self.read(source, ahead)
            begin, end = ahead.start.offset, ahead.end.offset
            each = FileRange(path.name, begin, end, ahead.end.record - ahead.start.record)
            tag = next(self.tags)
            self.referring.stream.put_ranges([stream_of(row_of(each))], tag)
            self.valued.stream.put(pack(chunk.batch), tag, 0, 0)
            told.append((tag, chunk.batch.num_rows, len(chunk.dead)))
        source.close()
        return told

    def read(self, source: PassesSource, ahead: Ahead) -> Chunk:
        """Return the same records as the gateway reads them."""
        source.seek(ahead.start)
        chunk = source.read(ahead.end.record - ahead.start.record, 1 << 60)
        assert chunk is not None
        assert chunk.end == ahead.end, "skipping and reading end at the same place"
        return chunk


def test_both_paths_answer_alike(bench: Bench, tmp_path: Path) -> None:
    both = Both(bench, tmp_path)

    @settings(max_examples=2, deadline=None, suppress_health_check=list(HealthCheck))
    @given(files=st.fixed_dictionaries(dict.fromkeys(FORMATS, _RECORDS)), cut=st.integers(4, 12))
    def alike(files: dict[str, list[Record]], cut: int) -> None:
        told = [each for kind, records in files.items() for each in both.put(kind, records, cut)]
        assert_alike(both.referring, both.valued, told)

    alike()


def test_executors_that_do_not_find_the_files_do_not_read(bench: Bench, tmp_path: Path) -> None:
    assert not bench.open(SQL, schema=SCHEMA, reads=FileReading(folder=str(tmp_path / "none"))).stream.by_reference
