"""Parquet and Arrow files: the same tests for each, since only the pieces differ."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.connectors.position import Position
from gateway.sources.base import Chunk
from gateway.sources.files.reading.passes import FixedFiles, PassesSource
from infra.files.base import FileReader
from infra.files.choosing import open_by_name
from infra.files.parquetfile import open_parquet
from infra.rows.base import SourceError
from tests.support.source_data import HUGE, SCHEMA, assert_consecutive, assert_seekable, dead, read_all, rows

KINDS = ["in.parquet", "in.arrow", "in.arrows"]


@pytest.fixture(params=KINDS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def put(path: Path, table: pa.Table, piece_rows: int = 7) -> Path:
    if path.suffix == ".parquet":
        pq.write_table(table, path, row_group_size=piece_rows)
        return path
    new = pa.ipc.new_file if path.suffix == ".arrow" else pa.ipc.new_stream
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.OSFile(str(path), "wb") as file, new(file, table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=piece_rows)
    return path


def table(count: int) -> pa.Table:
    return pa.table(
        {
            "n": pa.array(range(count), pa.int32()),
            "more": [["unused"]] * count,
            "id": pa.array([f"id-{n % 3}" for n in range(count)], pa.string()).dictionary_encode(),
        }
    )


def opened(
    path: Path, schema: pa.Schema = SCHEMA, *, loops: int = 1, strict: bool = False, batch_bytes: int | None = None
) -> PassesSource:
    open_file: Callable[[Path, pa.Schema], FileReader] = partial(open_by_name, strict=strict)
    if batch_bytes is not None and path.suffix == ".parquet":  # an Arrow file's batches are as they were written
        open_file = partial(open_parquet, strict=strict, batch_bytes=batch_bytes)
    source = PassesSource(FixedFiles([path], loops), open_file, id_field=None)
    source.open(schema)
    return source


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    count=st.integers(0, 40),
    piece_rows=st.integers(1, 15),
    batch_bytes=st.integers(1, 2000),
    loops=st.integers(1, 3),
    cuts=st.lists(st.tuples(st.integers(1, 50), st.integers(1, 2000)), min_size=1, max_size=5),
)
def test_any_cut_gives_the_same_events_and_can_be_read_again(
    tmp_path: Path,
    name: str,
    count: int,
    piece_rows: int,
    batch_bytes: int,
    loops: int,
    cuts: list[tuple[int, int]],
) -> None:
    source = opened(put(tmp_path / name, table(count), piece_rows), loops=loops, batch_bytes=batch_bytes)
    chunks: list[Chunk] = []
    while (chunk := source.read(*cuts[len(chunks) % len(cuts)])) is not None:
        chunks.append(chunk)
    assert source.finished
    assert rows(chunks) == [{"id": f"id-{n % 3}", "n": n} for n in range(count)] * loops
    assert_consecutive(chunks)
    if chunks:
        assert_seekable(source, chunks)
    source.close()


def test_a_row_that_does_not_fit_is_dead_and_the_rest_goes_on(tmp_path: Path, name: str) -> None:
    values = pa.array([0, 1, 2**40, 3, None, 5], pa.int64())
    found = pa.table({"n": values, "id": ["a", "b", "c", "d", "e", "f"]})
    schema = pa.schema([pa.field("n", pa.int32(), nullable=False), pa.field("id", pa.string())])
    source = opened(put(tmp_path / name, found, 4), schema)
    chunks = read_all(source, 5)
    assert [row["n"] for row in rows(chunks)] == [0, 1, 3, 5]
    assert [(d.record, d.offset, json.loads(d.raw)) for d in dead(chunks)] == [
        (2, 2, {"n": 2**40, "id": "c"}),
        (4, 4, {"n": None, "id": "e"}),
    ]
    assert "not in range" in dead(chunks)[0].reason
    assert "column n is NOT NULL" in dead(chunks)[1].reason
    assert_seekable(source, chunks)
    source.close()


@pytest.mark.parametrize("cut", ["half", "all but a bit", "rubbish", "nothing"])
def test_a_file_that_is_cut_or_none_at_all_is_an_error_that_names_it(tmp_path: Path, name: str, cut: str) -> None:
    path = put(tmp_path / name, table(5000), 500)
    content = path.read_bytes()
    kept = {"half": len(content) // 2, "all but a bit": len(content) - 30, "rubbish": 0, "nothing": 0}[cut]
    path.write_bytes(content[:kept] + (b"rubbish" * 9 if cut == "rubbish" else b""))
    source = None
    with pytest.raises(SourceError, match=rf"{name} cannot be read.*restore the file"):
        source = _read_through(path)
    assert source is None


def _read_through(path: Path) -> PassesSource:
    source = opened(path)
    try:
        read_all(source)
    finally:
        source.close()
    return source


@pytest.mark.parametrize("name", ["in.parquet", "in.arrow"])
def test_a_far_place_is_found_without_reading_what_lies_before(tmp_path: Path, name: str) -> None:
    path = put(tmp_path / name, pa.table({"n": range(20_000), "id": ["some text"] * 20_000}), 1000)
    content = bytearray(path.read_bytes())
    # What is not read may as well be damaged: the text of the first pieces.
    at = content.index(b"some text") if b"some text" in content else len(content) // 4
    content[at : at + 5] = b"\xff" * 5
    path.write_bytes(bytes(content))
    source = opened(path)
    source.seek(Position(19_000, 0, 19_000))
    chunk = source.read(5, HUGE)
    assert chunk is not None
    assert chunk.batch.column("n").to_pylist() == [19_000, 19_001, 19_002, 19_003, 19_004]
    source.close()


def test_a_large_row_group_is_not_held_whole(tmp_path: Path) -> None:
    rows_in_all = 60_000
    big = pa.table({"n": range(rows_in_all), "id": ["x" * 500 + str(n) for n in range(rows_in_all)]})
    pq.write_table(big, tmp_path / "in.parquet", row_group_size=rows_in_all, use_dictionary=False)
    whole_bytes = big.nbytes
    del big
    before_bytes = pa.total_allocated_bytes()
    source = opened(tmp_path / "in.parquet")
    highest = 0
    records = 0
    while (chunk := source.read(1000, HUGE)) is not None:
        records = chunk.end.record
        highest = max(highest, pa.total_allocated_bytes() - before_bytes)
    assert records == rows_in_all
    assert highest < whole_bytes / 2
    source.close()


@pytest.mark.parametrize(
    ("found", "strict", "says"),
    [
        ({"n": [1]}, True, "has no column id"),
        ({"n": [1], "id": ["a"], "z": [1]}, True, "has column z, which the schema lacks"),
        ({"n": ["1"], "id": ["a"]}, True, "column n is string, but the schema says int64"),
        ({"n": [[1]], "id": ["a"]}, False, "column n is list<"),
        ({"z": [1]}, False, "none of the query's columns"),
    ],
)
def test_drift_is_judged_for_the_file(
    tmp_path: Path, name: str, found: dict[str, list[object]], strict: bool, says: str
) -> None:
    with pytest.raises(SourceError, match=says):
        opened(put(tmp_path / name, pa.table(found)), strict=strict)


def test_leniently_missing_columns_are_null_and_exact_conversions_made(tmp_path: Path, name: str) -> None:
    source = opened(put(tmp_path / name, pa.table({"n": ["7", "x"], "z": [1, 2]})))
    chunks = read_all(source)
    assert rows(chunks) == [{"id": None, "n": 7}]
    assert [d.record for d in dead(chunks)] == [1]
    source.close()


def test_strictly_it_does_not_matter_how_a_file_holds_a_type(tmp_path: Path, name: str) -> None:
    found = pa.table({"id": pa.array(["a"], pa.large_string()).dictionary_encode(), "n": pa.array([1], pa.int64())})
    source = opened(put(tmp_path / name, found), strict=True)
    assert rows(read_all(source)) == [{"id": "a", "n": 1}]
    source.close()
