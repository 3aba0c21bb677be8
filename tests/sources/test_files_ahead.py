"""Looking ahead in files: lines and rows are counted, not decoded, and what is read later is what would have come."""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.config.connectors.sources import FileSourceConfig
from gateway.connectors.position import Position
from gateway.query.flow.referring.cutting import why_not_cut
from gateway.sources.base import Ahead, Chunk, ReferableSource
from gateway.sources.files.filesource import make_file_source
from infra.clock import SystemClock
from infra.files.base import FileReader
from infra.files.csvfile import CsvReader
from infra.files.lines import JsonLinesReader, LineLimits
from infra.files.ranges import FileRangeReader
from infra.messages import FileRange, FileReading
from infra.rows.base import SourceError
from infra.rows.jsonlines import LineDecoder

SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string())])
NAMED = pa.schema([*SCHEMA, ("_file", pa.string())])
SMALL = LineLimits(block_bytes=16, line_bytes=40)
MANY = 1 << 60

_LINES = st.lists(
    st.sampled_from([b"", b"{}", b'{"id": 1}', b'{"id": 2, "text": "a"}', b"no JSON", b"x" * 50, b" \r"]), max_size=20
)
_ROWS = st.lists(
    st.sampled_from([b"1,a", b'2,"b"', b'3,"c\nd"', b"", b'4,"e""\n\nf"', b'5,"never closed', b"6," + b"y" * 50, b"7"]),
    max_size=20,
)


def ends_by(reader: FileReader, counts: Sequence[int], max_bytes: int, *, reads: bool) -> list[tuple[int, int]]:
    """Return how many records there are until which offset, if they are read or passed over."""
    found = []
    for count in counts:
        if reader.at_end():
            break
        passed = reader.read(count, max_bytes) if reads else reader.skip(count, max_bytes)
        found.append((passed.records, passed.end))
    reader.close()
    return found


_COUNTS = st.lists(st.integers(1, 5), min_size=20, max_size=20)
_ENDED = st.sampled_from([b"", b"\n"])


@settings(max_examples=150, deadline=None)
@given(lines=_LINES, end=_ENDED, counts=_COUNTS, max_bytes=st.integers(1, 80))
def test_lines_are_passed_over_as_they_are_read(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], end: bytes, counts: list[int], max_bytes: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "lines.jsonl"
    path.write_bytes(b"\n".join(lines) + end)
    read, skipped = (JsonLinesReader(path, LineDecoder(SCHEMA), SMALL) for _ in range(2))
    assert ends_by(skipped, counts, max_bytes, reads=False) == ends_by(read, counts, max_bytes, reads=True)


@settings(max_examples=150, deadline=None)
@given(rows=_ROWS, end=_ENDED, counts=_COUNTS, max_bytes=st.integers(1, 80))
def test_rows_are_passed_over_as_they_are_read(
    tmp_path_factory: pytest.TempPathFactory, rows: list[bytes], end: bytes, counts: list[int], max_bytes: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "rows.csv"
    path.write_bytes(b"\n".join([b"id,text", *rows]) + end)
    read, skipped = (CsvReader(path, SCHEMA, limits=SMALL) for _ in range(2))
    assert ends_by(skipped, counts, max_bytes, reads=False) == ends_by(read, counts, max_bytes, reads=True)


def test_a_file_that_grows_meanwhile_has_ended(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"{}\n")
    reader = JsonLinesReader(path, LineDecoder(SCHEMA))
    assert reader.read(5, MANY).records == 1
    with path.open("ab") as file:
        file.write(b"{}\n")
    assert reader.at_end()
    reader.close()


def test_another_file_of_the_same_name_is_opened_anew(folder: Path) -> None:
    reader = FileRangeReader(FileReading(folder=str(folder / "in")), SCHEMA)
    for first in (0, 50):
        put(folder / "in", "a.parquet", rows(first, 6))
        assert reader.read(FileRange("a.parquet", 4, 6, 2)).batch.column("id").to_pylist() == [first + 4, first + 5]
    with pytest.raises(SourceError, match="and has 2 there now"):
        reader.read(FileRange("a.parquet", 4, 7, 3))
    with pytest.raises(SourceError, match="and has 0 there now"):
        reader.read(FileRange("a.parquet", 6, 7, 1))
    reader.close()


def put(folder: Path, name: str, rows: Sequence[dict[str, Any]]) -> None:
    """Let a file appear; its name tells the format."""
    path, kind = folder / f".{name}", name.removesuffix(".gz").rpartition(".")[2]
    if kind == "csv":
        text = io.StringIO()
        writer = csv.DictWriter(text, SCHEMA.names)
        writer.writeheader()
        writer.writerows(rows)
        path.write_text(text.getvalue(), newline="")
    elif kind == "jsonl":
        data = b"\n".join(map(msgspec.json.encode, rows))
        path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    else:
        table = pa.Table.from_pylist([{**row, "id": str(row["id"])} for row in rows])
        if kind == "parquet":
            pq.write_table(table, path, row_group_size=4)
        else:
            new = pa.ipc.new_file if kind == "arrow" else pa.ipc.new_stream
            with pa.OSFile(str(path), "wb") as file, new(file, table.schema) as writer:
                writer.write_table(table, max_chunksize=3)
    path.rename(folder / name)


def rows(first: int, count: int) -> list[dict[str, Any]]:
    """Events; the fourth is none."""
    return [{"id": "four" if at == 3 else first + at, "text": f'"{at}"\n'} for at in range(count)]


async def opened(folder: Path, schema: pa.Schema = NAMED, *, follow: bool = True) -> Any:
    config = FileSourceConfig.model_validate({"type": "file", "path": folder / "in", "follow": follow})
    source = make_file_source(config, folder / "state", SystemClock(), strict=False)
    assert isinstance(source, ReferableSource)
    await source.open(schema)
    return source


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    return tmp_path


async def test_what_is_read_later_is_what_would_have_come(folder: Path) -> None:
    for file, kind in enumerate(("jsonl", "csv", "parquet", "arrow")):
        put(folder / "in", f"{file}.{kind}", rows(100 * file, 10))
    source, valued = await opened(folder), await opened(folder)
    at, found = Position(), []
    while isinstance(ahead := await source.ahead(7, MANY), Ahead):
        assert ahead.start.record == at.record
        (wanted,) = await source.ranges(ahead.start, ahead.end)
        assert isinstance(wanted, FileRange)
        loaded = await source.read_range(ahead.start, ahead.end)
        chunk = await valued.read_between(ahead.start, ahead.end)
        assert loaded.batch.equals(chunk.batch)
        assert [record for _, record in loaded.dead] == list(chunk.dead)
        assert [number for number, _ in loaded.dead] == [record.record - ahead.start.record for record in chunk.dead]
        assert len(loaded.index) == chunk.batch.num_rows
        found += loaded.batch.column("id").to_pylist()
        at = ahead.end
    assert found == [100 * file + row for file in range(4) for row in range(10) if row != 3]
    assert at.record == 40
    await source.close()
    await valued.close()


async def test_ranges_are_known_after_a_restart_and_of_a_file_that_has_changed_nothing_is_read(folder: Path) -> None:
    put(folder / "in", "a.jsonl", rows(0, 10))
    before = await opened(folder)
    ahead = await before.ahead(4, MANY)
    await before.close()
    source = await opened(folder)
    loaded = await source.read_range(ahead.start, ahead.end)
    assert loaded.batch.column("id").to_pylist() == [0, 1, 2]
    (folder / "in" / "a.jsonl").write_bytes(b"{}\n" * 10)
    with pytest.raises(SourceError, match="bytes when it was listed"):
        await source.read_range(ahead.start, ahead.end)
    (folder / "in" / "a.jsonl").unlink()
    with pytest.raises(SourceError, match="must lie at the same path"):
        await source.read_range(ahead.start, ahead.end)
    await source.close()


async def test_records_of_a_file_that_cannot_be_cut_come_with_it(folder: Path) -> None:
    put(folder / "in", "a.jsonl", rows(0, 3))
    put(folder / "in", "b.jsonl.gz", rows(10, 3))
    put(folder / "in", "c.arrows", rows(20, 3))
    put(folder / "in", "d.csv", rows(30, 3))
    source = await opened(folder)
    found = [await source.ahead(5, MANY) for _ in range(5)]
    assert [type(each) for each in found] == [Ahead, Chunk, Chunk, Ahead, type(None)]
    assert found[3].end.record == 12
    await source.close()


@pytest.mark.parametrize(
    ("names", "said", "why"),
    [
        (("a.jsonl", "b.csv", "c.parquet", "d.arrow", "e.txt.gz"), {}, ""),
        (("a.jsonl", "b.csv.gz"), {}, "b.csv.gz is compressed, and cannot be cut into ranges"),
        (("a.jsonl.zst",), {}, "a.jsonl.zst is compressed, and cannot be cut into ranges"),
        (("a.arrows",), {}, "a.arrows is a stream of Arrow, and cannot be cut into ranges"),
        (("1.",), {}, "its source is a mailbox, which is read as a whole"),
        ((), {"follow": True}, ""),
        (("a.jsonl",), {"replay": {"loops": 2}}, "its source is replayed, and the gateway keeps the time"),
    ],
)
def test_a_folder_tells_whether_its_files_can_be_cut(
    folder: Path, names: Sequence[str], said: dict[str, Any], why: str
) -> None:
    for name in names:
        (folder / "in" / name).touch()
    assert why_not_cut(FileSourceConfig.model_validate({"type": "file", "path": folder / "in", **said})) == why


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.mbox"])
def test_a_file_tells_whether_it_can_be_cut(folder: Path, name: str) -> None:
    (folder / name).touch()
    assert why_not_cut(FileSourceConfig.model_validate({"type": "file", "path": folder / name}))
