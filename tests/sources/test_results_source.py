from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.connectors.position import Position
from gateway.core.exchange.reorder import Released, Reorderer
from gateway.sinks.parts.filesink import FileSink
from gateway.sources.results import ResultsSource
from tests.support.source_data import HUGE, assert_consecutive, assert_seekable, read_all, rows

RESULTS = pa.schema([("n", pa.int64()), ("text", pa.string())])
SCHEMA = pa.schema([("text", pa.string()), ("_seq", pa.int64()), ("n", pa.int64())])


class Upstream:
    """A query whose sink gets results while it is read."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.done = False
        self._sink = FileSink(folder, owner="up", format="jsonl", ordered=True)
        self._reorderer: Reorderer[pa.RecordBatch] = Reorderer(flush_s=0.0)

    def complete(self, first: int, last: int, keep: int = 1) -> None:
        """Results of a run: one row for each ``keep``-th event, released at once even if earlier runs are missing."""
        kept = [{"n": i, "text": f"line {i}\u2028"} for i in range(first, last + 1) if i % keep == 0]
        batch = pa.RecordBatch.from_pylist(kept, RESULTS)
        self._sink.commit(
            [
                Released(r.first_seq, r.last_seq, r.item, r.late)
                for r in [*self._reorderer.complete(first, last, batch, 0.0), *self._reorderer.flush(0.0)]
            ],
            Position(),
        )

    def source(self) -> ResultsSource:
        source = ResultsSource(self.folder, lambda: self.done)
        source.open(SCHEMA)
        return source


@pytest.fixture
def upstream(tmp_path: Path) -> Upstream:
    return Upstream(tmp_path / "out")


def drain(source: ResultsSource, max_records: int = 1000) -> list[dict[str, Any]]:
    """The rows that come now."""
    found = []
    while (chunk := source.read(max_records, HUGE)) is not None:
        found += chunk.batch.to_pylist()
    return found


def test_a_late_part_is_waited_for_and_read_in_its_place(upstream: Upstream) -> None:
    source = upstream.source()
    assert source.read(10, HUGE) is None
    upstream.complete(0, 4)
    upstream.complete(10, 14)
    assert [row["n"] for row in drain(source)] == [0, 1, 2, 3, 4]
    assert not source.finished
    upstream.complete(5, 9)
    upstream.complete(15, 19)
    assert [row["n"] for row in drain(source)] == [*range(5, 20)]
    assert not source.finished
    upstream.done = True
    assert source.finished


def test_it_is_not_finished_before_the_last_part_that_came_was_read(upstream: Upstream) -> None:
    source = upstream.source()
    upstream.complete(0, 4)
    upstream.done = True
    assert not source.finished
    drain(source)
    assert source.finished


def test_an_upstream_without_results_is_finished(upstream: Upstream) -> None:
    source = upstream.source()
    assert not source.finished
    upstream.complete(0, 9, keep=100)
    upstream.complete(11, 19, keep=100)
    upstream.done = True
    assert [row["n"] for row in drain(source)] == [0]
    assert source.finished


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.permutations(range(8)),
    st.integers(1, 5),
    st.integers(1, 7),
    st.sets(st.integers(0, 7)),
)
def test_rows_come_in_strict_order_with_dense_numbers_and_from_any_place_again(
    tmp_path_factory: pytest.TempPathFactory, order: list[int], keep: int, max_records: int, read_after: set[int]
) -> None:
    upstream = Upstream(tmp_path_factory.mktemp("out"))
    source = upstream.source()
    chunks = []
    for at in order:
        upstream.complete(10 * at, 10 * at + 9, keep)
        while at in read_after and (chunk := source.read(max_records, HUGE)) is not None:
            chunks.append(chunk)
    upstream.done = True
    chunks += read_all(source, max_records)
    found = rows(chunks)
    assert [row["n"] for row in found] == [i for i in range(80) if i % keep == 0]
    assert [row["_seq"] for row in found] == [*range(len(found))]
    assert all(row["text"] == f"line {row['n']}\u2028" for row in found)
    assert all(chunk.batch.schema == SCHEMA for chunk in chunks)
    assert_consecutive(chunks)
    assert_seekable(upstream.source(), chunks)


def test_without_the_column_seq_nothing_is_added(upstream: Upstream) -> None:
    upstream.complete(0, 4)
    source = ResultsSource(upstream.folder, lambda: True)
    source.open(RESULTS)
    chunk = source.read(10, HUGE)
    assert chunk is not None
    assert chunk.batch.schema == RESULTS


def test_a_row_that_does_not_fit_the_schema_is_dead_and_keeps_its_number(upstream: Upstream) -> None:
    upstream.complete(0, 3)
    (part,) = upstream.folder.glob("*.jsonl")
    lines = part.read_bytes().splitlines()
    part.write_bytes(b"\n".join([lines[0], b'{"n": "x"}', *lines[2:]]) + b"\n")
    source = upstream.source()
    chunk = source.read(10, HUGE)
    assert chunk is not None
    assert [(row["n"], row["_seq"]) for row in chunk.batch.to_pylist()] == [(0, 0), (2, 2), (3, 3)]
    assert [(d.record, d.offset) for d in chunk.dead] == [(1, 1)]


def test_bytes_bound_a_chunk(upstream: Upstream) -> None:
    upstream.complete(0, 99)
    upstream.done = True
    source = upstream.source()
    assert len(read_all(source, HUGE, 100)) > 10
    source.seek(Position())
    assert len(read_all(source, HUGE, HUGE)) == 1
