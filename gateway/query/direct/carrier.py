"""Hands partitions over to Spark at home, and takes them back: who owns which offsets is in the sink's control topic.

While Spark carries a query the gateway notes, each few seconds, the offsets before which all results are written, and
where in the results' topic those of later events begin. Whatever dies: whoever continues reads from these offsets, and
leaves out the results that are in the topic already, since each names its event.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import msgspec

from gateway.connectors.position import Position
from gateway.hosts.connection import Connection, QueryRefusedError
from gateway.sinks.base import SinkUnavailableError
from gateway.sinks.kafka.kafkasink import KafkaSink
from gateway.sinks.kafka.resultstopic import ResultsTopic
from infra.clock import Clock
from infra.failpoints import reached
from infra.link.channel import LinkLost
from infra.messages import (
    Completed,
    Credit,
    DirectFlow,
    DirectProgress,
    IsolatingMessage,
    OffsetAt,
    OpenQuery,
    QueryFailed,
)
from infra.retries import Outage
from infra.together import end_tasks

_LOG = logging.getLogger(__name__)
_OPEN_S: Final = 120.0
_STOP_S: Final = 30.0
_LOOK_S: Final = 2.0
"""How often the latency of the newest result is looked at."""
_QUIET_S: Final = 0.3
_QUIET_MOST_S: Final = 5.0
_SILENT_TIMES: Final = 6.0
"""Spark must make progress within so many times the interval of its checkpoints."""
_SILENT: Final = f"Spark made no progress within {_SILENT_TIMES:g} times the interval of its checkpoints"


class Watcher(Protocol):
    """Says while Spark carries a query when the gateway is to take over."""

    def is_late(self, latency_s: float) -> bool:
        """Return whether this latency has been too high for long enough."""
        ...

    async def wanted_back(self) -> str:
        """Return why the gateway wants its partitions back, once it does."""
        ...


@dataclass(frozen=True, slots=True)
class Carried:
    """How Spark's turn ended.

    Attributes:
        position: everything before it is delivered.
        reason: why it ended.
        failed: Spark could not go on, or not begin.
        refused: it can never carry this query here.
    """

    position: Position
    reason: str
    failed: bool = False
    refused: bool = False


class DirectCarrier:
    """Lets Spark carry one query.

    Args:
        message: opens the query at home under its name for this, without its flow.
        flow: where its results go; its ``starts`` do not count.
        home: returns the present connection to the private engine host; None if there is none.
        sink: the query's, opened; nobody else writes to it meanwhile.
        results: the topic of the results.
        clock: time.
        on_events: called with how many events Spark has read since the last call.
    """

    def __init__(
        self,
        message: OpenQuery,
        flow: DirectFlow,
        home: Callable[[], Connection | None],
        sink: KafkaSink,
        results: ResultsTopic,
        clock: Clock,
        on_events: Callable[[int], None],
    ) -> None:
        self._message, self._flow, self._home = message, flow, home
        self._sink, self._results, self._clock, self._on_events = sink, results, clock, on_events
        self._outage = Outage(clock, (SinkUnavailableError, OSError))
        self._said: asyncio.Queue[DirectProgress | QueryFailed] = asyncio.Queue()

    @property
    def trouble(self) -> str:
        """Why the brokers cannot be asked now; empty if they can."""
        return self._outage.why

    @property
    def settled(self) -> bool:
        """Whether everything that Spark has delivered is behind the gateway."""
        return self._sink.passed

    async def take_back(self, position: Position) -> Position:
        """Return where the gateway continues after Spark has delivered, perhaps under another gateway.

        The host has ended what it carried when it opened the query again.

        Args:
            position: where the gateway would continue without that.
        """
        direct = self._sink.direct
        if direct is None:
            return position
        known = self._sink.source.offsets
        offsets = {place: max(offset, known.get(place, 0)) for place, offset in position.offsets.items()}
        merged = msgspec.structs.replace(position, offsets={**known, **offsets})
        await self._quiet()
        delivered = await self._outage.outlast(
            "the topic of the results", lambda: self._results.names_after(direct, merged.offsets)
        )
        self._sink.leave_out(delivered)
        reached("direct.taken")
        return merged

    async def carry(self, position: Position, partitions: tuple[str, ...], watcher: Watcher) -> Carried:
        """Let Spark carry the query until it fails, or the gateway is to take over; return how that ended.

        Args:
            position: everything before it is delivered.
            partitions: those that this gateway owns, as ``<topic>/<partition>``.
            watcher: says when the gateway is to take over.
        """
        if (home := self._home()) is None:
            return Carried(position, "the private engine host is not there", failed=True)
        self._said = asyncio.Queue()
        ends = await self._ask_ends()
        await self._note(position, ends)
        reached("direct.noted")
        starts = tuple(_place(key, position.offsets[key]) for key in partitions)
        flow = msgspec.structs.replace(self._flow, starts=starts)
        message = msgspec.structs.replace(self._message, direct=flow)
        try:
            await home.open_query(message, self._hear, _OPEN_S)
        except QueryRefusedError as error:
            self._sink.leave_out({})
            return Carried(position, str(error), failed=True, refused=True)
        except (LinkLost, TimeoutError) as error:
            return Carried(await self.take_back(position), f"the host did not open it: {error}", failed=True)
        reached("direct.opened")
        work = (self._watch(watcher), watcher.wanted_back(), home.lost())
        watching = [asyncio.create_task(each, name=f"watch {message.query}") for each in work]
        stopped = None
        try:
            position, end = await self._follow(position, ends, watching)
        except BaseException:
            await self._stop(home, message)
            raise
        finally:
            await end_tasks(*watching)
        if not isinstance(end, QueryFailed):
            stopped = await self._stop(home, message)
        reached("direct.stopped")
        if stopped is not None:
            position = _after(position, stopped)
        reason = end.reason if isinstance(end, QueryFailed) else end
        failed = isinstance(end, QueryFailed) or end == _SILENT or not home.alive
        return Carried(await self.take_back(position), reason, failed)

    def _hear(self, said: Completed | Credit | IsolatingMessage | QueryFailed | DirectProgress, payload: bytes) -> None:
        del payload
        if isinstance(said, QueryFailed | DirectProgress):
            self._said.put_nowait(said)

    async def _follow(
        self, position: Position, ends: dict[int, int], watching: Sequence[asyncio.Task[str]]
    ) -> tuple[Position, QueryFailed | str]:
        """Note progress until Spark fails or is to stop; return how far it is, and which of both, with the reason."""
        # Results of events after a progress were written later than the one before it. One more is for messages that
        # are late.
        known = deque([ends], maxlen=2)
        while True:
            said = await self._next(watching)
            if not isinstance(said, DirectProgress):
                return position, said
            if said.stopped:
                continue  # of an earlier turn
            self._on_events(said.events)
            if (after := _after(position, said)) == position:
                continue  # it lives; results of later events may be written meanwhile
            position = after
            await self._note(position, known[0])
            known.append(await self._ask_ends())
            reached("direct.progress")

    async def _next(self, watching: Sequence[asyncio.Task[str]]) -> DirectProgress | QueryFailed | str:
        """Return what the host says next, or why Spark is to stop."""
        hearing = asyncio.ensure_future(self._said.get())
        silent_s = self._flow.checkpoint_s * _SILENT_TIMES
        try:
            done, _ = await asyncio.wait({hearing, *watching}, timeout=silent_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            hearing.cancel()
        if hearing in done:
            return hearing.result()
        return next((each.result() for each in watching if each in done), _SILENT)

    async def _watch(self, watcher: Watcher) -> str:
        """Return why the query is too late, once it is."""
        seen = None
        while True:
            await self._clock.sleep_until(self._clock.now() + _LOOK_S)
            found = await self._outage.outlast("the topic of the results", self._results.newest)
            if found is None or found[0] == seen:
                continue
            seen, latency_s = found
            if watcher.is_late(latency_s):
                return f"the newest result came {latency_s:.2f} s after its event"

    async def _stop(self, home: Connection, message: OpenQuery) -> DirectProgress | None:
        """Let the host stop; return what it says then, None if it says nothing in time."""
        if not home.alive:
            return None
        try:
            await home.close_query(message.query, message.epoch, listens_on=True)
            async with asyncio.timeout(_STOP_S):
                while True:
                    said = await self._said.get()
                    if isinstance(said, DirectProgress):
                        self._on_events(said.events)
                        if said.stopped:
                            return said
        except (TimeoutError, LinkLost) as error:
            _LOG.warning("query %s: the host has not said that it stopped it: %r", message.query, error)
            return None

    async def _quiet(self) -> None:
        """Wait until no more results come: Spark's producers send what they had when its tasks were ended."""
        gives_up_s, before = self._clock.now() + _QUIET_MOST_S, await self._ask_ends()
        while self._clock.now() < gives_up_s:
            await self._clock.sleep_until(self._clock.now() + _QUIET_S)
            if (now := await self._ask_ends()) == before:
                return
            before = now

    async def _ask_ends(self) -> dict[int, int]:
        return await self._outage.outlast("the topic of the results", self._results.ends)

    async def _note(self, position: Position, ends: dict[int, int]) -> None:
        await self._outage.outlast("the sink", lambda: self._sink.note_direct(position, ends))


def _after(position: Position, said: DirectProgress) -> Position:
    ends = {f"{each.topic}/{each.partition}": each.offset for each in said.ends}
    return msgspec.structs.replace(position, offsets={**position.offsets, **ends})


def _place(key: str, offset: int) -> OffsetAt:
    topic, _, partition = key.rpartition("/")
    return OffsetAt(topic, int(partition), offset)
