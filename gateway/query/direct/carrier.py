"""Hands a part of a query over to Spark at home, and takes it back.

Who owns which offsets is in the sink's control topic.

While Spark carries a part the gateway notes, each few seconds, the offsets before which all results are written, and
where in the results' topic those of later events begin. Whatever dies: whoever continues reads from these offsets, and
leaves out the results that are in the topic already, since each names its event.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from gateway.hosts.connection import Connection, QueryRefusedError
from gateway.query.direct.notes import DeliveryNotes
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
from infra.together import end_tasks

_LOG = logging.getLogger(__name__)
_OPEN_S: Final = 120.0
_STOP_S: Final = 45.0
"""The host may wait for a batch and then for its tasks, which takes 25 s at most."""
_SILENT_TIMES: Final = 6.0
"""Spark must make progress within so many times the interval of its checkpoints."""
_SILENT: Final = f"Spark made no progress within {_SILENT_TIMES:g} times the interval of its checkpoints"


@dataclass(frozen=True, slots=True)
class TakenBack:
    """The gateway is to take over.

    Attributes:
        reason: why.
        after_batch: once Spark's present batch has ended: then hardly anything is read, and processed, again.
    """

    reason: str
    after_batch: bool


@dataclass(frozen=True, slots=True)
class Carried:
    """How Spark's turn ended.

    Attributes:
        offsets: everything before these is delivered.
        reason: why it ended.
        failed: Spark could not go on, or not begin.
        refused: it can never carry this query here.
    """

    offsets: Mapping[str, int]
    reason: str
    failed: bool = False
    refused: bool = False


class DirectCarrier:
    """Lets Spark carry one part of a query: some partitions of its source.

    Args:
        part: names it.
        message: opens it at home under its name for this, without its flow.
        flow: where its results go; its ``starts`` do not count.
        home: returns the present connection to the private engine host; None if there is none.
        notes: of the query.
        clock: time.
        on_events: called with how many events Spark has read since the last call.
    """

    def __init__(
        self,
        part: str,
        message: OpenQuery,
        flow: DirectFlow,
        home: Callable[[], Connection | None],
        notes: DeliveryNotes,
        clock: Clock,
        on_events: Callable[[int], None],
    ) -> None:
        self._part, self._message, self._flow, self._home = part, message, flow, home
        self._notes, self._clock, self._on_events = notes, clock, on_events
        self._said: asyncio.Queue[DirectProgress | QueryFailed] = asyncio.Queue()

    async def prepare(self, offsets: Mapping[str, int]) -> None:
        """Let the host read the query, and plan its stream if there are offsets: then ``carry`` starts it sooner."""
        if (home := self._home()) is None:
            return
        message = msgspec.structs.replace(self._opening(offsets), analyse_only=True)
        try:
            await home.open_query(message, self._hear, _OPEN_S)
        except (QueryRefusedError, LinkLost, TimeoutError) as error:
            _LOG.debug("query %s: not prepared: %s", self._message.query, error)  # carry says it again

    async def carry(
        self, offsets: Mapping[str, int], asked: asyncio.Future[TakenBack], on_begun: Callable[[], None]
    ) -> Carried:
        """Let Spark carry the part until it fails, or the gateway is to take over; return how that ended.

        Args:
            offsets: of its partitions, as ``<topic>/<partition>``: everything before them is delivered.
            asked: says why and how the gateway is to take over, once it is.
            on_begun: called once Spark reads.
        """
        if (home := self._home()) is None:
            return Carried(offsets, "the private engine host is not there", failed=True)
        self._said = asyncio.Queue()
        begins = await self._notes.ends()
        await self._notes.note(self._part, offsets, begins)
        reached("direct.noted")
        message = self._opening(offsets)
        try:
            await home.open_query(message, self._hear, _OPEN_S)
        except QueryRefusedError as error:
            await self._notes.take_back(self._part, offsets, begins)
            return Carried(offsets, str(error), failed=True, refused=True)
        except (LinkLost, TimeoutError) as error:
            await self._notes.take_back(self._part, offsets, begins)
            return Carried(offsets, f"the host did not open it: {error}", failed=True)
        on_begun()
        reached("direct.opened")
        try:
            offsets, begins, end = await self._follow(offsets, begins, home, asked)
        except BaseException:
            await self._stop(home, message)
            raise
        if isinstance(end, QueryFailed):
            failed, stopped = True, None
        else:
            stopped = await self._stop(home, message, after_batch=end.after_batch)
            failed = end.reason == _SILENT
        reached("direct.stopped")
        if stopped is not None:
            offsets = _after(offsets, stopped)
        await self._notes.take_back(self._part, offsets, begins)
        return Carried(offsets, end.reason, failed or not home.alive)

    def _opening(self, offsets: Mapping[str, int]) -> OpenQuery:
        flow = msgspec.structs.replace(self._flow, starts=tuple(_place(*each) for each in offsets.items()))
        return msgspec.structs.replace(self._message, direct=flow)

    def _hear(self, said: Completed | Credit | IsolatingMessage | QueryFailed | DirectProgress, payload: bytes) -> None:
        del payload
        if isinstance(said, QueryFailed | DirectProgress):
            self._said.put_nowait(said)

    async def _follow(
        self, offsets: Mapping[str, int], begins: dict[int, int], home: Connection, asked: asyncio.Future[TakenBack]
    ) -> tuple[Mapping[str, int], dict[int, int], QueryFailed | TakenBack]:
        """Note progress until Spark fails or is to stop.

        Returns:
            The offsets that were noted last, where the results of later events begin, and what ended it.
        """
        # Results of events after a progress were written later than the one before it. One more is for messages that
        # are late.
        known = deque([begins], maxlen=2)
        lost = asyncio.create_task(home.lost(), name=f"watch the host of {self._message.query}")
        try:
            while True:
                said = await self._next(asked, lost)
                if not isinstance(said, DirectProgress):
                    return offsets, begins, said
                if said.stopped:
                    continue  # of an earlier turn
                self._on_events(said.events)
                if (after := _after(offsets, said)) == offsets:
                    continue  # it lives; results of later events may be written meanwhile
                offsets, begins = after, known[0]
                await self._notes.note(self._part, offsets, begins)
                known.append(await self._notes.ends())
                reached("direct.progress")
        finally:
            await end_tasks(lost)

    async def _next(
        self, asked: asyncio.Future[TakenBack], lost: asyncio.Future[str]
    ) -> DirectProgress | QueryFailed | TakenBack:
        """Return what the host says next, or why Spark is to stop."""
        hearing = asyncio.ensure_future(self._said.get())
        silent_s = self._flow.checkpoint_s * _SILENT_TIMES
        watched: set[asyncio.Future[Any]] = {hearing, asked, lost}
        try:
            done, _ = await asyncio.wait(watched, timeout=silent_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            hearing.cancel()
        if hearing in done:
            return hearing.result()
        if asked in done:
            return asked.result()
        return TakenBack(lost.result() if lost in done else _SILENT, after_batch=False)

    async def _stop(self, home: Connection, message: OpenQuery, *, after_batch: bool = False) -> DirectProgress | None:
        """Let the host stop; return what it says then, None if it says nothing in time."""
        if not home.alive:
            return None
        try:
            await home.close_query(message.query, message.epoch, listens_on=True, after_batch=after_batch)
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


def _after(offsets: Mapping[str, int], said: DirectProgress) -> Mapping[str, int]:
    """Return the offsets after a progress; that of an earlier turn, if it comes late, takes nothing back."""
    ends = {f"{each.topic}/{each.partition}": each.offset for each in said.ends}
    return {**offsets, **{place: max(end, offsets.get(place, end)) for place, end in ends.items()}}


def _place(key: str, offset: int) -> OffsetAt:
    topic, _, partition = key.rpartition("/")
    return OffsetAt(topic, int(partition), offset)
