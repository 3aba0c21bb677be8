"""Delivers releases to the sink: writes parts and dead letters, and reports commits."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa

from gateway.config.sections.handling import OrderConfig
from gateway.connectors.position import Position
from gateway.core.exchange import ExchangeSettings
from gateway.core.exchange.instructions import Release
from gateway.core.exchange.reorder import Released
from gateway.core.intervals import IntervalSet
from gateway.journal.deadletters import DeadLetter, DeadLetterFile
from gateway.sinks.base import FencedError, Sink, SinkError, SinkUnavailableError
from infra.clock import Clock
from infra.failpoints import reached
from infra.retries import Outage
from infra.threads import run_to_end
from infra.together import end_tasks
from policies.failures.overdue import Patience

_LOG = logging.getLogger(__name__)
PART_S = 1.0
PART_BYTES = 64_000_000
# How many bytes of results may wait, for an earlier run or for the sink, before dispatch stops.
HELD_BYTES_MAX = 64_000_000
TICK_S = 0.1


@dataclass(frozen=True, slots=True)
class Pace:
    """How often a query's sink is written.

    Attributes:
        part_s: what was released within so long is committed together.
        tick_s: how often results are looked for that are released because time has passed.
        rest_times: after a commit, the next one waits for so many times as long as that one took, a second at most.
    """

    part_s: float = PART_S
    tick_s: float = TICK_S
    rest_times: float = 0.0

    def due_s(self, begun_s: float, now_s: float) -> float:
        """Return when the next commit is due, after one that began at a time and has just ended."""
        return now_s + max(self.part_s, min(PART_S, self.rest_times * (now_s - begun_s)))


PACE: Final = Pace()
_MESSAGES: Final = ("kafka", "mqtt", "http")
_MESSAGES_S = 0.02
_MESSAGES_REST_TIMES = 4.0


def pace_of(sink: str, pace: Pace, *, divided: bool) -> Pace:
    """Return how often a sink of a type is written, if sinks of files are written with ``pace``.

    A sink of messages gets results as soon as they are there, but commits a fifth of the time at most. Those of a
    divided query are committed at each tick.
    """
    if divided:
        return replace(pace, part_s=0.0)
    if sink in _MESSAGES:
        return replace(pace, part_s=min(pace.part_s, _MESSAGES_S), rest_times=_MESSAGES_REST_TIMES)
    return pace


def settings_of(order: OrderConfig | None, patience: Patience, *, home_only: bool, place: str) -> ExchangeSettings:
    """Return the settings of a query's exchange.

    Args:
        order: of its results.
        patience: how long a lane's answer is waited for.
        home_only: whether its runs go to one place only.
        place: which that is.
    """
    return ExchangeSettings(
        patience=patience,
        home_only=home_only,
        place=place,
        ordered=order is not None,
        flush_s=None if order is None else order.flush_s,
        held_bytes_max=HELD_BYTES_MAX,
    )


@dataclass(frozen=True, slots=True)
class Results:
    """The results of a run (or of consecutive ones), and the events without a result."""

    batch: pa.RecordBatch
    letters: tuple[DeadLetter, ...] = ()


class Delivery:
    """Writes the released results of one query to the sink in parts.

    Args:
        sink: opened.
        dead_letters: the file for poison events, which are written before their run is committed.
        clock: time.
        position_after: returns, for the committed ranges, the source position up to which everything is committed.
        on_tick: called several times a second, for results that are released because time has passed.
        on_commit: awaited after each commit with the closed ranges of seq that it added.
        part_bytes: so many bytes are committed at once, without waiting for ``pace.part_s``.
        pace: how often the sink is written.

    Attributes:
        note_batches: called on a thread with the ends (seq, exclusive) of answers before the sink gets them.
    """

    def __init__(
        self,
        sink: Sink,
        dead_letters: DeadLetterFile,
        clock: Clock,
        *,
        position_after: Callable[[IntervalSet], Position],
        on_tick: Callable[[], None],
        on_commit: Callable[[tuple[tuple[int, int], ...]], Awaitable[None]],
        part_bytes: int = PART_BYTES,
        pace: Pace = PACE,
    ) -> None:
        self._sink = sink
        self._dead_letters = dead_letters
        self._clock = clock
        self._position_after = position_after
        self._on_tick = on_tick
        self._on_commit = on_commit
        self._part_bytes = part_bytes
        self._pace = pace
        self.note_batches: Callable[[Sequence[int]], None] = lambda _: None
        self._outbox: list[Release[Results]] = []
        self._outbox_bytes = 0
        self._woken: asyncio.Future[None] | None = None
        self._outage = Outage(clock, (SinkUnavailableError, OSError))

    @property
    def trouble(self) -> str:
        """Why the sink accepts nothing now; empty if it does."""
        return self._outage.why

    def take(self, release: Release[Results]) -> None:
        """Accept results for the sink."""
        if not self._outbox and self._woken is not None and not self._woken.done():
            self._woken.set_result(None)
        self._outbox.append(release)
        self._outbox_bytes += release.results.batch.nbytes

    async def run(self) -> None:
        """Commit parts when they are due, or have 64 MB, until cancelled; a sink that does not work is waited out."""
        due_s = self._clock.now() + self._pace.part_s
        while True:
            await self._rest(due_s)
            self._on_tick()
            if self._outbox and (self._clock.now() >= due_s or self._outbox_bytes >= self._part_bytes):
                begun_s = self._clock.now()
                await self._commit()
                due_s = self._pace.due_s(begun_s, self._clock.now())

    async def _rest(self, due_s: float) -> None:
        """Return after a tick, when something is due, or as soon as the first results for the next part are there."""
        until_s = self._clock.now() + self._pace.tick_s
        self._woken = asyncio.get_running_loop().create_future()
        sleeping = asyncio.ensure_future(self._clock.sleep_until(min(until_s, due_s) if self._outbox else until_s))
        try:
            await asyncio.wait((sleeping, self._woken), return_when=asyncio.FIRST_COMPLETED)
        finally:
            await end_tasks(sleeping)

    async def _commit(self) -> None:
        batch = self._outbox
        self._outbox, self._outbox_bytes = [], 0
        try:
            await self._outage.outlast("the dead-letter file", lambda: self._keep_letters(batch))
            await self._outage.outlast("the sink", lambda: self._write(batch))
            await self._on_commit(tuple((release.first_seq, release.last_seq) for release in batch))
        except asyncio.CancelledError:
            # If this is written again, the sink skips what it has already.
            self._outbox = batch + self._outbox
            raise

    async def _keep_letters(self, batch: list[Release[Results]]) -> None:
        """Write events without a result to the dead-letter file before their run is committed."""
        letters = [letter for release in batch for letter in release.results.letters]
        await run_to_end(lambda: self._dead_letters.add(letters))

    async def _write(self, batch: list[Release[Results]]) -> None:
        after = IntervalSet([*self._sink.committed, *((r.first_seq, r.last_seq) for r in batch)])
        await run_to_end(lambda: self.note_batches([release.last_seq + 1 for release in batch]))
        reached("sink.commit.before")
        await self._sink.commit(
            [Released(r.first_seq, r.last_seq, r.results.batch, r.late) for r in batch], self._position_after(after)
        )
        reached("sink.commit.after")

    async def close(self) -> None:
        """Commit what is released, and close the sink; what it does not accept now is delivered at the next start."""
        try:
            if self._outbox:
                await self._keep_letters(self._outbox)
                await self._write(self._outbox)
        except (SinkUnavailableError, FencedError, SinkError, OSError) as error:
            _LOG.error("the sink did not accept the last results (%s): they are delivered after the next start", error)
        self._outbox = []
        try:
            await self._sink.close()
        except (SinkUnavailableError, OSError) as error:
            _LOG.error("the sink could not be closed cleanly (%s): the next start reads what it has committed", error)
