from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.sources.base import Chunk
from gateway.sources.files.table import TableSource
from infra.rows.base import SourceError
from tests.support.source_data import HUGE, SCHEMA, assert_consecutive, assert_seekable, read_all, rows


def table(count: int) -> pa.Table:
    return pa.table(
        {
            "n": pa.array(range(count), pa.int32()),
            "more": ["unused"] * count,
            "id": pa.chunked_array(
                [[f"id-{i}" for i in range(count // 2)], [f"id-{i}" for i in range(count // 2, count)]]
            )
            if count > 1
            else pa.array([f"id-{i}" for i in range(count)], pa.string()),
        }
    )


def opened(count: int, loops: int = 1) -> TableSource:
    source = TableSource(lambda: table(count), loops=loops, id_field="id")
    source.open(SCHEMA)
    return source


@given(
    st.integers(0, 40),
    st.integers(1, 3),
    st.lists(st.tuples(st.integers(1, 50), st.integers(1, 2000)), min_size=1, max_size=5),
)
def test_any_cut_gives_the_same_events_and_can_be_read_again(
    count: int, loops: int, cuts: list[tuple[int, int]]
) -> None:
    source = opened(count, loops)
    chunks: list[Chunk] = []
    while (chunk := source.read(*cuts[len(chunks) % len(cuts)])) is not None:
        assert not (source.finished and chunk.end.record < count * loops)
        chunks.append(chunk)
    assert source.finished
    assert [row["n"] for row in rows(chunks)] == [*range(count)] * loops
    expected = [f"id-{i}" + (f"#{loop}" if loop else "") for loop in range(loops) for i in range(count)]
    assert [row["id"] for row in rows(chunks)] == expected
    assert all(chunk.batch.schema == SCHEMA for chunk in chunks)
    assert_consecutive(chunks)
    if chunks:
        assert_seekable(source, chunks)


def test_it_is_finished_right_after_its_last_record() -> None:
    source = opened(4, loops=2)
    assert not source.finished
    source.read(4, HUGE)
    assert not source.finished
    source.read(4, HUGE)
    assert source.finished


def test_bytes_bound_a_chunk() -> None:
    assert len(read_all(opened(100), HUGE, 200)) > 5


def test_a_missing_column_is_named_with_those_that_are_there() -> None:
    source = TableSource(lambda: table(3).drop_columns(["id"]))
    with pytest.raises(SourceError, match="no column id; it has n, more"):
        source.open(SCHEMA)
