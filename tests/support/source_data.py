"""Events as files, for the tests of sources."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pyarrow as pa
import zstandard

from gateway.connectors.position import Position
from gateway.sources.base import BlockingSource, Chunk
from gateway.sources.files.reading.passes import FixedFiles, PassesSource
from infra.files.lines import LINE_LIMITS, JsonLinesReader, LineLimits
from infra.rows.base import DeadRecord
from infra.rows.jsonlines import LineDecoder


class LinesSource(PassesSource):
    """Source over one file of JSON lines."""

    def __init__(
        self, path: Path, *, loops: int = 1, id_field: str | None = None, limits: LineLimits = LINE_LIMITS
    ) -> None:
        def open_lines(path: Path, schema: pa.Schema) -> JsonLinesReader:
            return JsonLinesReader(path, LineDecoder(schema), limits)

        super().__init__(FixedFiles([path], loops), open_lines, id_field=id_field)


SCHEMA = pa.schema([("id", pa.string()), ("n", pa.int64())])
HUGE = 1 << 62


def line(number: int) -> bytes:
    """A line whose length depends on its number."""
    return b'{"id": "id-%s", "n": %d}' % (b"x" * (number % 7), number)


def write(path: Path, content: bytes) -> Path:
    """Write ``content`` packed as the name says; a .zst gets two frames."""
    if path.suffix == ".gz":
        content = gzip.compress(content)
    elif path.suffix == ".zst":
        middle = len(content) // 2
        content = zstandard.compress(content[:middle]) + zstandard.compress(content[middle:])
    path.write_bytes(content)
    return path


def read_all(source: BlockingSource, max_records: int = 1000, max_bytes: int = HUGE) -> list[Chunk]:
    chunks = []
    while (chunk := source.read(max_records, max_bytes)) is not None:
        chunks.append(chunk)
    assert source.finished
    return chunks


def rows(chunks: list[Chunk]) -> list[dict[str, Any]]:
    return [row for chunk in chunks for row in chunk.batch.to_pylist()]


def dead(chunks: list[Chunk]) -> list[DeadRecord]:
    return [record for chunk in chunks for record in chunk.dead]


def assert_consecutive(chunks: list[Chunk]) -> None:
    """Check that each chunk begins where the one before ended, and counts every record."""
    records = 0
    for chunk in chunks:
        assert chunk.start.record == records
        assert chunk.end.record > records
        assert chunk.batch.schema == chunks[0].batch.schema
        records = chunk.end.record


def assert_seekable(source: BlockingSource, chunks: list[Chunk]) -> None:
    """Check that the same records come again from the start of every chunk, in whatever order they are requested."""
    order = [*range(len(chunks)), *reversed(range(len(chunks))), *range(0, len(chunks), 2)]
    for at in order:
        chunk = chunks[at]
        source.seek(chunk.start)
        again = source.read(chunk.end.record - chunk.start.record, HUGE)
        assert again is not None
        assert again.batch.equals(chunk.batch)
        assert (again.end, again.dead) == (chunk.end, chunk.dead)
    last: Position = chunks[-1].end
    source.seek(last)
    assert source.read(10, HUGE) is None
    assert source.finished
