"""The moments of the last 24 hours: each of the last minutes, and before that one for each minute.

The minutes are also on disk (``state_dir/history``), so that a new gateway continues with them. Everything is bounded:
by time, by number and by size.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from gateway.views.live.moments import Moment, minute_of, of_query
from gateway.views.why.linewriter import LineWriter
from infra.statefiles import numbered_files
from infra.threads import run_to_end

_LOG = logging.getLogger(__name__)
DAY_S: Final = 86_400.0
MINUTE_S: Final = 60.0
NEWEST_MOST: Final = 900
"""So many moments are kept one by one: 15 minutes of slots of one second."""

NEWEST_BYTES: Final = 16_000_000
MINUTES_BYTES: Final = 32_000_000
FILE_BYTES: Final = 1_000_000
DISK_BYTES: Final = 64_000_000


class Recalled(NamedTuple):
    """What is known of the past, as lines of JSON, oldest first.

    Attributes:
        minutes: one moment for each minute, of the time before ``newest``.
        newest: one moment for each slot.
        last_id: of the newest moment; 0 if there is none.
    """

    minutes: list[bytes]
    newest: list[bytes]
    last_id: int


class _Kept:
    """Encoded moments, oldest first, with a bound on their size."""

    def __init__(self, bytes_most: int, number_most: int) -> None:
        self._bytes_most, self._number_most = bytes_most, number_most
        self._bytes = 0
        self.lines: deque[tuple[int, bytes]] = deque()
        self.forgotten_id = 0

    def add(self, moment_id: int, line: bytes) -> None:
        self.lines.append((moment_id, line))
        self._bytes += len(line)
        while len(self.lines) > 1 and (self._bytes > self._bytes_most or len(self.lines) > self._number_most):
            self._forget()

    def forget_before(self, moment_id: int) -> None:
        while self.lines and self.lines[0][0] < moment_id:
            self._forget()

    def _forget(self) -> None:
        self.forgotten_id, line = self.lines.popleft()
        self._bytes -= len(line)

    def after(self, moment_id: int) -> list[tuple[int, bytes]]:
        found: list[tuple[int, bytes]] = []
        for each in reversed(self.lines):
            if each[0] <= moment_id:
                break
            found.append(each)
        found.reverse()
        return found


class History:
    """Keeps moments, and wakes those who wait for the next one.

    Args:
        folder: of the minutes on disk; those of the last day are read.
        wall_s: now, in seconds since 1970.
        newest_most: how many moments are kept one by one.
    """

    def __init__(self, folder: Path, wall_s: float, newest_most: int = NEWEST_MOST) -> None:
        self._minutes = _Kept(MINUTES_BYTES, int(DAY_S / MINUTE_S) + 1)
        self._newest = _Kept(NEWEST_BYTES, newest_most)
        self._open: list[Moment] = []
        for moment_id, line in _read(folder, int((wall_s - DAY_S) * 1000)):
            self._minutes.add(moment_id, line)
        self._writer = LineWriter(folder, "minutes of the history", encode=bytes, limits=(FILE_BYTES, DISK_BYTES))
        self._last_id = self._minutes.lines[-1][0] if self._minutes.lines else 0
        self._newest.forgotten_id = self._last_id
        self._next = asyncio.Event()

    def next_id(self, wall_s: float) -> int:
        """Return the id of a moment that ends now; ids grow even if the clock is set back."""
        return max(self._last_id + 1, int(wall_s * 1000))

    def add(self, moment: Moment) -> None:
        """Add a moment, and wake those who wait."""
        self._last_id = moment.id
        self._newest.add(moment.id, msgspec.json.encode(moment))
        self._open.append(moment)
        if sum(each.for_s for each in self._open) >= MINUTE_S:
            self._close_minute()
        self._minutes.forget_before(moment.id - int(DAY_S * 1000))
        self._next.set()
        self._next = asyncio.Event()

    def _close_minute(self) -> None:
        minute = minute_of(self._open)
        self._open = []
        line = msgspec.json.encode(minute)
        self._minutes.add(minute.id, line)
        self._writer.add(line)
        self._writer.write_soon()

    async def wait_beyond(self, moment_id: int) -> None:
        """Return once there is a moment after this one."""
        while self._last_id <= moment_id:
            await self._next.wait()

    @property
    def last_id(self) -> int:
        """Return the id of the newest moment; 0 if there is none."""
        return self._last_id

    def after(self, moment_id: int) -> list[tuple[int, bytes]] | None:
        """Return the moments after one, with their ids; None if some of them are not kept one by one any more."""
        if moment_id < self._newest.forgotten_id:
            return None
        return self._newest.after(moment_id)

    async def recalled(self, query: str | None) -> Recalled:
        """Return what is known of one query, or of all. Each moment is in it once."""
        last_id = self._last_id
        ends, forgotten_id = [moment_id for moment_id, _ in self._minutes.lines], self._newest.forgotten_id
        # A minute is shown as a whole if any of its moments is no longer kept one by one.
        whole = [moment_id for moment_id in ends if moment_id >= forgotten_id] or ends
        until = whole[0] if whole and forgotten_id else 0
        minutes = [line for moment_id, line in self._minutes.lines if moment_id <= until]
        newest = [line for moment_id, line in self._newest.lines if moment_id > until]
        # There may be many megabytes.
        return await run_to_end(lambda: Recalled(list(_only(minutes, query)), list(_only(newest, query)), last_id))

    async def close(self) -> None:
        """Write the minute that has begun."""
        if self._open:
            self._close_minute()
        await self._writer.close()


def _only(lines: list[bytes], query: str | None) -> Iterator[bytes]:
    if query is None:
        yield from lines
        return
    decoder = msgspec.json.Decoder(Moment)
    for line in lines:
        yield msgspec.json.encode(of_query(decoder.decode(line), query))


def minutes_between(folder: Path, from_s: float, to_s: float) -> list[Moment]:
    """Return the minutes on disk that ended in a period (s since 1970), oldest first; blocks.

    They reach back farther than a gateway shows them; of very long times only the last ``MINUTES_BYTES`` are read.
    """
    decoder = msgspec.json.Decoder(Moment)
    return [decoder.decode(line) for at, line in _read(folder, int(from_s * 1000)) if at <= to_s * 1000]


def _read(folder: Path, oldest_id: int) -> list[tuple[int, bytes]]:
    """Return the minutes on disk since ``oldest_id``; what cannot be read is only missing from pictures."""
    decoder, found, size = msgspec.json.Decoder(Moment), list[tuple[int, bytes]](), 0
    for _, path in sorted(numbered_files(folder), reverse=True):
        lines: list[tuple[int, bytes]] = []
        try:
            raw = path.read_bytes()
        except OSError as error:
            _LOG.warning("%s: the history in it is not shown: %s", path, error)
            continue
        for line in raw.splitlines():
            try:
                moment = decoder.decode(line)
            except msgspec.DecodeError:
                continue  # the gateway was killed while it wrote this line
            if moment.id >= oldest_id:
                lines.append((moment.id, line))
                size += len(line)
        found = lines + found
        if not lines or size > MINUTES_BYTES:
            break
    return sorted(found)
