"""A file of JSON lines, plain or compressed, read once or several times."""

from __future__ import annotations

import zlib
from collections import deque
from dataclasses import dataclass
from typing import Final

import numpy as np
import zstandard

from infra.files.base import FilePlace, Portion, Refused, Skipped
from infra.files.packed import is_packed, open_plain
from infra.rows.base import SourceError
from infra.rows.jsonlines import LineDecoder

RAW_KEPT_BYTES: Final = 1 << 16
_LINE_END: Final = ord("\n")


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

    Args:
        path: the file.
        limits: how much is read and held at a time.

    Attributes:
        can_skip: whether lines can be passed over; those of a compressed file cannot.
    """

    def __init__(self, path: FilePlace, limits: LineLimits = LINE_LIMITS) -> None:
        self._path = path
        self._limits = limits
        self._end: int | None = None
        self._file = open_plain(path)
        self.can_skip = not is_packed(path)
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
        if self.can_skip:
            self.offset = offset
            self._rewind()
            return
        if offset < self.offset:
            self._file.close()
            self._file = open_plain(self._path)
            self._restart()
            self.offset = 0
        while self.offset < offset and self.next_line() is not None:
            pass

    def stop_at(self, end: int | None) -> None:
        """Let the lines end at this offset; None: at the file's end. Those of a compressed file always do."""
        if self.can_skip:
            self._end = end
            self._rewind()

    def skip(self, max_lines: int, max_bytes: int, without: bytes = b"") -> int:
        """Pass over lines, at least one unless that is not allowed, without splitting them; return how many.

        Args:
            max_lines: the most.
            max_bytes: no line follows when they have so much.
            without: no line with this byte is passed over, nor one after it.

        Raises:
            SourceError: the file cannot be read to its end.
        """
        first, lines, begun_bytes, stops = self.offset, 0, 0, False
        self._rewind()
        while not stops and lines < max_lines and self.offset - first < max_bytes:
            block = self._block()
            if not block:
                lines, self.offset = lines + bool(begun_bytes), self.offset + begun_bytes
                break
            free_bytes = block.find(without) if without else -1
            stops = free_bytes >= 0
            data = np.frombuffer(block[:free_bytes] if stops else block, np.uint8)
            ends = begun_bytes + 1 + np.flatnonzero(data == _LINE_END)
            taken = ends[: max_lines - lines]
            taken = taken[: 1 + np.searchsorted(taken, max_bytes - (self.offset - first))]
            lines += len(taken)
            passed_bytes = int(taken[-1]) if len(taken) else 0
            self.offset += passed_bytes
            begun_bytes += len(block) - passed_bytes
            stops = stops or len(taken) < len(ends)
        self._rewind()
        return lines

    def _rewind(self) -> None:
        self._file.seek(self.offset)
        self._restart()

    def at_end(self) -> bool:
        """Return whether no line is left."""
        if self._ready or self._rest or self._ended or self._end is not None or not self.can_skip:
            return not self._load()
        try:
            # Splitting a block into lines takes longer.
            return not self._file.peek(1)  # type: ignore[attr-defined]
        except OSError as error:
            raise self._unreadable(error) from error

    def _load(self) -> bool:
        """Return whether a line is ready; read until there is one, or the end."""
        while not self._ready and not self._ended:
            self._fill()
        return bool(self._ready)

    def next_line(self) -> tuple[bytes, int] | None:
        """Return (line without its end, bytes it takes in the file), or None at the end."""
        if not self._load():
            return None
        line = self._ready.popleft()
        self.offset += line[1]
        return line

    def _block(self) -> bytes:
        wanted_bytes = self._limits.block_bytes
        if self._end is not None:
            wanted_bytes = min(wanted_bytes, max(0, self._end - self._file.tell()))
        try:
            return self._file.read(wanted_bytes)
        except (OSError, EOFError, zlib.error, zstandard.ZstdError) as error:
            raise self._unreadable(error) from error

    def _unreadable(self, error: Exception) -> SourceError:
        return SourceError(f"{self._path} cannot be read to its end ({error}): restore the file")

    def _fill(self) -> None:
        block = self._block()
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

    def __init__(self, path: FilePlace, decoder: LineDecoder, limits: LineLimits = LINE_LIMITS) -> None:
        self._lines = Lines(path, limits)
        self._decoder = decoder
        self._limits = limits

    @property
    def can_skip(self) -> bool:
        """See ``FileReader.can_skip``."""
        return self._lines.can_skip

    def stop_at(self, end: int | None) -> None:
        """See ``FileReader.stop_at``."""
        self._lines.stop_at(end)

    def skip(self, max_records: int, max_bytes: int) -> Skipped:
        """See ``FileReader.skip``."""
        return Skipped(self._lines.skip(max_records, max_bytes), self._lines.offset)

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
