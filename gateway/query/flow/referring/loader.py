"""Runs by reference: the gateway knows their offsets, and reads their events only if it needs them itself."""

from __future__ import annotations

import asyncio
from typing import Final

from gateway.query.flow.run import Run
from gateway.sources.base import Ahead, Chunk
from gateway.sources.replayed import WithReplays
from infra.clock import Clock
from infra.messages import Range
from infra.retries import Outage
from infra.rows.base import SourceUnavailableError

_FIRST_GUESS_BYTES: Final = 1_000.0
_WEIGHT: Final = 0.2


class RunLoader:
    """Reads the events of runs by reference, and estimates how large those are that were not read.

    Args:
        source: of the query.
        clock: time.
    """

    def __init__(self, source: WithReplays, clock: Clock) -> None:
        self._source = source
        self._turn = asyncio.Lock()
        self._outage = Outage(clock, (SourceUnavailableError, OSError))
        self._finding = Outage(clock, (SourceUnavailableError, OSError))
        self._event_bytes = _FIRST_GUESS_BYTES

    def bytes_of(self, events: int) -> int:
        """Return about how much memory so many events take."""
        return max(1, int(events * self._event_bytes))

    def learn(self, events: int, raw_bytes: int) -> None:
        """Note how much memory some events have taken."""
        if events:
            self._event_bytes += _WEIGHT * (raw_bytes / events - self._event_bytes)

    async def ahead(self, max_records: int, max_bytes: int) -> Chunk | Ahead | None:
        """See ``WithReplays.ahead``."""
        return await self._source.ahead(max_records, max_bytes)

    async def ranges(self, run: Run) -> tuple[Range, ...]:
        """Return the ranges of a run by reference, in the order of its events; waits as ``load`` does.

        Raises:
            SourceError: the source does not know them any more.
        """
        assert run.reference is not None
        start, end = run.reference
        return await self._finding.outlast("the source", lambda: self._source.ranges(start, end))

    async def load(self, run: Run) -> None:
        """Read the events of a run, unless it has them; waits while the source cannot be reached.

        Raises:
            SourceError: the source does not have them any more.
        """
        async with self._turn:
            if run.reference is None or run.loaded:
                return
            start, end = run.reference
            found = await self._outage.outlast("the source", lambda: self._source.read_range(start, end))
            dead = tuple((run.first_seq + at, record) for at, record in found.dead)
            run.fill(found.batch, run.first_seq + found.index, dead)
