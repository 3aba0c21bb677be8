"""A file of JSON lines, plain or compressed, read once or several times."""

from __future__ import annotations

import zlib
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import zstandard

from infra.files.base import Portion, Refused
from infra.files.packed import open_plain
from infra.rows.base import SourceError
from infra.rows.jsonlines import LineDecoder

RAW_KEPT_BYTES: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class LineLimits:
    """How much of a file of lines is read and held at a time.

    Attributes:
        block_bytes: read from the file at once.
        line_bytes: a longer line is a dead record.
        raw_kept_bytes: a dead record keeps so much of its line.
        quoted_bytes: a CSV quote that is not closed within so much is taken for a mistake of its row alone.
    """

    block_bytes: int = 1 << 18
    line_bytes: int = 16 << 20
    raw_kept_bytes: int = RAW_KEPT_BYTES
    quoted_bytes: int = 1 << 20


LINE_LIMITS: Final = LineLimits()


class Lines:
    """The lines of a file, from its beginning; a line over the limit is cut and marked.

    ``offset`` is where the next line begins, in uncompressed bytes.
    """

    def __init__(self, path: Path, limits: LineLimits = LINE_LIMITS) -> None:
        self._path = path
        self._limits = limits
        self._file = open_plain(path)
        self.offset = 0
        self._restart()

    def _restart(self) -> None:
        self._rest = b""
        self._ready: deque[tuple[bytes, int]] = deque()
        self._skipped_bytes = 0
        self._ended = False

    def seek(self, offset: int) -> None:
        """Continue at ``offset``, the beginning of a line; a compressed file is read up to there."""
        if offset == self.offset:
            return
        if self._file.seekable() and self._path.suffix not in (".gz", ".zst"):
            self._file.seek(offset)
            self._restart()
            self.offset = offset
            return
        if offset < self.offset:
            self._file.close()
            self._file = open_plain(self._path)
            self._restart()
            self.offset = 0
        while self.offset < offset and self.next_line() is not None:
            pass

    def at_end(self) -> bool:
        """Return whether no line is left."""
        while not self._ready and not self._ended:
            self._fill()
        return not self._ready

    def next_line(self) -> tuple[bytes, int] | None:
        """Return (line without its end, bytes it takes in the file), or None at the end."""
        if self.at_end():
            return None
        line = self._ready.popleft()
        self.offset += line[1]
        return line

    def _fill(self) -> None:
        try:
            block = self._file.read(self._limits.block_bytes)
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
        # One byte over the limit stays as the mark that the line was too long.
        held_bytes = self._limits.line_bytes + 1
        if len(self._rest) > held_bytes:
            self._skipped_bytes += len(self._rest) - held_bytes
            self._rest = self._rest[:held_bytes]

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class JsonLinesReader:
    """Reader of ``.jsonl``, ``.jsonl.gz`` and ``.jsonl.zst``; offsets are uncompressed bytes."""

    def __init__(self, path: Path, decoder: LineDecoder, limits: LineLimits = LINE_LIMITS) -> None:
        self._lines = Lines(path, limits)
        self._decoder = decoder
        self._limits = limits

    def seek(self, offset: int) -> None:
        """See ``FileReader.seek``."""
        self._lines.seek(offset)

    def at_end(self) -> bool:
        """See ``FileReader.at_end``."""
        return self._lines.at_end()

    def read(self, max_records: int, max_bytes: int) -> Portion:
        """See ``FileReader.read``."""
        lines: list[bytes] = []
        offsets = [self._lines.offset]
        while len(lines) < max_records and offsets[-1] - offsets[0] < max_bytes:
            line = self._lines.next_line()
            if line is None:
                break
            lines.append(line[0])
            offsets.append(self._lines.offset)
        long = {i for i, line in enumerate(lines) if len(line) > self._limits.line_bytes}
        batch, dead = self._decoder.decode([b"" if i in long else line for i, line in enumerate(lines)])
        dead += [(i, f"the line is longer than {self._limits.line_bytes} bytes") for i in long]
        kept_bytes = self._limits.raw_kept_bytes
        refused = tuple(Refused(i, offsets[i], why, lines[i][:kept_bytes]) for i, why in sorted(dead))
        blank: tuple[int, ...] = ()
        if batch.num_rows + len(dead) != len(lines):
            blank = tuple(i for i, line in enumerate(lines) if not line.strip(b" \t\r\n\xef\xbb\xbf"))
        return Portion(batch, len(lines), offsets[-1], refused, blank)

    def close(self) -> None:
        """See ``FileReader.close``."""
        self._lines.close()
