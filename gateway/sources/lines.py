"""A file of JSON lines, plain or compressed, played once or several times over."""

from __future__ import annotations

import gzip
import io
import zlib
from collections import deque
from pathlib import Path
from typing import BinaryIO, cast

import pyarrow as pa
import zstandard

from gateway.position import Position
from gateway.sources.base import Chunk, DeadRecord, SourceError
from gateway.sources.jsonlines import LineDecoder
from gateway.sources.loops import with_loop_ids

_BLOCK_BYTES = 1 << 18
MAX_LINE_BYTES = 16 << 20
_RAW_KEPT_BYTES = 1 << 16


def open_plain(path: Path) -> BinaryIO:
    """Open ``path`` for reading its uncompressed bytes; ``.gz`` and ``.zst`` are unpacked on the way."""
    if path.suffix == ".gz":
        return cast("BinaryIO", gzip.open(path, "rb"))
    if path.suffix == ".zst":
        unpacked = zstandard.ZstdDecompressor().stream_reader(path.open("rb"), read_across_frames=True)
        return cast("BinaryIO", io.BufferedReader(unpacked))
    return path.open("rb")


class _Lines:
    """The lines of one pass over a file, from a byte offset on; a line over the limit is cut and marked."""

    def __init__(self, path: Path, offset: int) -> None:
        self._path = path
        self._file = open_plain(path)
        self._rest = b""
        self._ready: deque[tuple[bytes, int]] = deque()
        self._skipped_bytes = 0
        self._ended = False
        if self._file.seekable():
            self._file.seek(offset)
        else:
            self.pass_over(offset)

    def pass_over(self, count_bytes: int) -> None:
        """Leave out the lines that the next ``count_bytes`` of the file hold."""
        while count_bytes > 0 and (line := self.next_line()) is not None:
            count_bytes -= line[1]

    def at_end(self) -> bool:
        """Return whether no line is left."""
        while not self._ready and not self._ended:
            self._fill()
        return not self._ready

    def next_line(self) -> tuple[bytes, int] | None:
        """Return (line without its end, bytes it takes in the file), or None at the end."""
        return None if self.at_end() else self._ready.popleft()

    def _fill(self) -> None:
        try:
            block = self._file.read(_BLOCK_BYTES)
        except (OSError, EOFError, zlib.error, zstandard.ZstdError) as error:
            raise SourceError(f"{self._path} cannot be read to its end ({error}): restore the file") from error
        if not block:
            self._ended = True
            if self._rest or self._skipped_bytes:
                self._ready.append((self._rest, len(self._rest) + self._skipped_bytes))
            return
        first, *more = block.split(b"\n")
        self._rest += first
        for line in more:
            self._ready.append((self._rest, len(self._rest) + self._skipped_bytes + 1))
            self._rest, self._skipped_bytes = line, 0
        if len(self._rest) > MAX_LINE_BYTES + 1:
            # One byte over the limit stays as the mark that the line was too long.
            self._skipped_bytes += len(self._rest) - MAX_LINE_BYTES - 1
            self._rest = self._rest[: MAX_LINE_BYTES + 1]

    def close(self) -> None:
        self._file.close()


class LinesSource:
    """Source of type ``file`` for ``.jsonl``, ``.jsonl.gz`` and ``.jsonl.zst``.

    ``Position.part`` counts the passes (loops), ``offset`` the uncompressed bytes.
    """

    def __init__(self, path: Path, *, loops: int = 1, id_field: str | None = None) -> None:
        self._path = path
        self._loops = loops
        self._id_field = id_field
        self._position = Position()
        self._lines: _Lines | None = None
        self._finished = False

    def open(self, schema: pa.Schema) -> None:
        """See ``Source.open``."""
        self._decoder = LineDecoder(schema)
        self.seek(Position())

    def seek(self, position: Position) -> None:
        """See ``Source.seek``. Going forward within a pass reads over what lies between."""
        ahead_bytes = position.offset - self._position.offset
        if self._lines is not None and position.part == self._position.part and ahead_bytes >= 0:
            self._lines.pass_over(ahead_bytes)
            self._position = position
            return
        self.close()
        self._position = position
        self._finished = position.part >= self._loops
        if not self._finished:
            self._lines = _Lines(self._path, position.offset)

    @property
    def finished(self) -> bool:
        """See ``Source.finished``; looks ahead, so that it is true right after the last record."""
        if self._lines is None:
            return self._finished
        return self._position.part + 1 >= self._loops and self._lines.at_end()

    def read(self, max_records: int, max_bytes: int) -> Chunk | None:
        """See ``Source.read``; a chunk never spans two passes, and has no event when all its lines are dead."""
        lines, sizes = self._take(max_records, max_bytes)
        while not lines and not self._finished:
            # A pass that began here and gave nothing means an empty file, however often it is played.
            part = self._position.part + 1 if self._position.offset else self._loops
            self.seek(Position(self._position.record, part, 0))
            lines, sizes = self._take(max_records, max_bytes)
        if not lines:
            return None
        start = self._position
        long = {i for i, line in enumerate(lines) if len(line) > MAX_LINE_BYTES}
        batch, dead = self._decoder.decode([b"" if i in long else line for i, line in enumerate(lines)])
        dead += [(i, f"the line is longer than {MAX_LINE_BYTES} bytes") for i in long]
        offset = start.offset
        offsets = []
        for size in sizes:
            offsets.append(offset)
            offset += size
        self._position = Position(start.record + len(lines), start.part, offset)
        return Chunk(
            with_loop_ids(batch, self._id_field, start.part),
            start,
            self._position,
            tuple(
                DeadRecord(start.record + i, offsets[i], reason, lines[i][:_RAW_KEPT_BYTES])
                for i, reason in sorted(dead)
            ),
        )

    def _take(self, max_records: int, max_bytes: int) -> tuple[list[bytes], list[int]]:
        lines: list[bytes] = []
        sizes: list[int] = []
        total_bytes = 0
        while self._lines is not None and len(lines) < max_records and total_bytes < max_bytes:
            line = self._lines.next_line()
            if line is None:
                break
            lines.append(line[0])
            sizes.append(line[1])
            total_bytes += line[1]
        return lines, sizes

    def close(self) -> None:
        """See ``Source.close``."""
        if self._lines is not None:
            self._lines.close()
            self._lines = None
