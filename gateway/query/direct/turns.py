"""The gateway and Spark deliver one query together: each part of its source is with one of them at a time."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Protocol

from gateway.query.direct.carrier import Carried, DirectCarrier, TakenBack
from gateway.query.direct.notes import DeliveryNotes
from gateway.query.direct.rule import DirectRule, DirectTerms, Lateness
from gateway.query.flow.ingress import Ingress
from gateway.query.flow.pipeline import Pipeline
from gateway.query.flow.runlog import RunLog
from gateway.sinks.kafka.naming import EventName
from gateway.sources.kafka.kafkasource import KafkaSource
from infra.clock import Clock
from infra.rows.base import SourceUnavailableError
from infra.together import end_tasks
from policies.signals import HOME

_LOG = logging.getLogger(__name__)
_LOOK_S: Final = 0.25
_COUNT_S: Final = 0.5
_DRAIN_S: Final = 0.02
_LATE_LOOK_S: Final = 1.0
"""How often the latency of the newest result is looked at."""
_MOST_PARTS: Final = 2
"""Each part is a stream of its own, which Spark plans again for each interval of its checkpoints."""
_WANTED: Final = "the consumer group wants some of its partitions back"


class TurnsOwner(Protocol):
    """Is told what happens."""

    def on_turn(self, carried: int, parts: int, reason: str) -> None:
        """Note how many parts Spark carries, of how many, and why the gateway has taken over the last one."""
        ...

    def on_arrived(self, events: int, since_s: float, now_s: float) -> None:
        """Note that so many events came between two times for Spark to read."""
        ...


@dataclass(slots=True, eq=False)
class _Part:
    """Some partitions of the source.

    Attributes:
        name: among the parts of the query.
        carrier: lets Spark carry it.
        rule: when.
        places: its partitions, as ``<topic>/<partition>``.
        begun: where Spark has begun with each.
        late: whether it is asked back because its results come too late.
        turn: Spark's; None while the gateway reads the part.
        asked: set with the reason for which the gateway is to take over.
    """

    name: str
    carrier: DirectCarrier
    rule: DirectRule
    places: tuple[str, ...] = ()
    begun: Mapping[str, int] = field(default_factory=dict)
    late: bool = False
    turn: asyncio.Task[None] | None = None
    asked: asyncio.Future[TakenBack] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def ask(self, reason: str) -> None:
        if not self.asked.done():
            self.asked.set_result(TakenBack(reason, after_batch=reason is not _WANTED))


class DirectTurns:
    """Reads the parts of a query's source through the gateway, or lets Spark carry them, as a rule says.

    Args:
        name: the query's.
        carrier_of: makes what lets Spark carry the part with a name.
        notes: of the query.
        terms: of the rule.
        source: the query's; its main one is a topic.
        log: the run log.
        ingress: reads for the gateway.
        pipeline: delivers what the gateway has read.
        owner: is told.
        carries: whether Spark is to carry it at all; otherwise only what it has delivered before is left out.
        clock: time.
    """

    def __init__(
        self,
        name: str,
        carrier_of: Callable[[str], DirectCarrier],
        notes: DeliveryNotes,
        terms: DirectTerms,
        *,
        source: KafkaSource,
        log: RunLog,
        ingress: Ingress,
        pipeline: Pipeline,
        owner: TurnsOwner,
        carries: bool,
        clock: Clock,
    ) -> None:
        self._name, self._notes, self._terms, self._source = name, notes, terms, source
        self._log, self._ingress, self._pipeline = log, ingress, pipeline
        self._owner, self._clock = owner, clock
        self._refused = not carries
        self._all_parts = [_Part(each, carrier_of(each), DirectRule(terms)) for each in map(str, range(_MOST_PARTS))]
        self._parts: Sequence[_Part] = ()
        self._lateness = Lateness(terms)
        self._seen: EventName | None = None
        self._ends: dict[str, int] = {}
        self._looked_s = self._latency_due_s = 0.0

    @property
    def trouble(self) -> str:
        """Why the brokers cannot be asked while Spark carries the query; empty if they can."""
        return self._notes.trouble

    async def recover(self) -> None:
        """Continue after what Spark has delivered; before anything is read."""
        self._log.skip(await self._notes.recover(self._log.position))

    async def run(self) -> None:
        """Deliver until cancelled."""
        reading = asyncio.create_task(self._ingress.run(), name=f"read {self._name} by the gateway")
        sharing = asyncio.create_task(self._share(), name=f"share {self._name} with Spark")
        try:
            done, _ = await asyncio.wait({reading, sharing}, return_when=asyncio.FIRST_COMPLETED)
            for each in done:
                each.result()
        finally:
            await end_tasks(reading, sharing, *(part.turn for part in self._all_parts))

    # ------------------------------------------------------------------------------------------------ who gets what

    async def _share(self) -> None:
        while True:
            await self._clock.sleep_until(self._clock.now() + _LOOK_S)
            for part in self._carried:
                if part.turn is not None and part.turn.done():
                    part.turn.result()
                    part.turn = None
            if self._carried:
                await self._look()
            self._begin()

    @property
    def _carried(self) -> list[_Part]:
        return [part for part in self._parts if part.turn is not None]

    def _begin(self) -> None:
        """Let Spark carry the parts that it may."""
        here = self._source.places()
        if not self._carried:
            self._divide(sorted(here))
        calm = bool(here) and not self._refused and self._is_calm()
        for part in self._parts:
            ready = part.turn is None and here.keys() >= set(part.places)
            if part.rule.may_begin(self._clock.now(), calm=calm and ready):
                part.begun, part.late = {}, False
                part.asked = asyncio.get_running_loop().create_future()
                part.turn = asyncio.create_task(self._turn(part), name=f"{self._name}, part {part.name}")

    def _divide(self, places: list[str]) -> None:
        parts = self._all_parts[: len(places)]
        for at, part in enumerate(parts):
            part.places = tuple(places[at :: len(parts)])
        self._parts = parts

    def _is_calm(self) -> bool:
        oldest_s, now_s = self._ingress.oldest_unread_s(), self._clock.now()
        waits = oldest_s is not None and now_s - oldest_s > self._terms.late_above_s
        at_home = self._pipeline.cloud_share == 0 and HOME in self._pipeline.lanes
        return at_home and self._notes.settled and not waits

    async def _look(self) -> None:
        """Ask parts back whose results come too late, or that others want."""
        now_s, carried = self._clock.now(), self._carried
        if now_s - self._looked_s >= _COUNT_S:
            await self._count_arrived(now_s)
        if self._source.wanted_back:
            self._ask(carried, _WANTED)
        elif share := self._pipeline.cloud_share:
            wanted = math.ceil(share * len(self._parts)) - (len(self._parts) - len(carried))
            self._ask(carried[: max(0, wanted)], f"{share:.0%} of the events are to go to VMs")
        elif now_s >= self._latency_due_s:
            self._latency_due_s = now_s + _LATE_LOOK_S
            begun = {place: offset for part in carried for place, offset in part.begun.items()}
            newest = await self._notes.newest(begun)
            if newest is not None and newest[0] != self._seen:
                self._seen, latency_s = newest
                late = self._lateness.to_take(now_s, latency_s, len(carried))
                self._ask(carried[:late], f"the newest result came {latency_s:.2f} s after its event", late=True)

    def _ask(self, parts: Collection[_Part], reason: str, *, late: bool = False) -> None:
        for part in parts:
            part.ask(reason)
            part.late = late

    async def _count_arrived(self, now_s: float) -> None:
        """Tell how many events came for Spark, by the ends of its partitions."""
        try:
            ends = await self._source.lent_ends()
        except SourceUnavailableError as error:
            _LOG.debug("query %s: %s", self._name, error)  # the next look counts what came meanwhile
            return
        events = sum(end - self._ends.get(place, end) for place, end in ends.items())
        if events:
            self._owner.on_arrived(events, self._looked_s, now_s)
        self._ends, self._looked_s = ends, now_s

    # ------------------------------------------------------------------------------------------------- Spark's turn

    async def _turn(self, part: _Part) -> None:
        """Let Spark carry a part until the gateway takes over."""
        await part.carrier.prepare({})
        try:
            offsets = self._source.lend(part.places)
        except SourceUnavailableError:
            return  # the group has just taken them away
        drained, _ = await asyncio.gather(self._is_drained(part), part.carrier.prepare(offsets))
        if not drained:
            self._source.take_back(offsets)
            return
        begun_s = self._clock.now()
        part.rule.began(begun_s)
        carried = await part.carrier.carry(offsets, part.asked, partial(self._begun, part, offsets))
        self._source.take_back(carried.offsets)
        self._end(part, carried, self._clock.now() - begun_s)

    def _begun(self, part: _Part, offsets: Mapping[str, int]) -> None:
        part.begun = offsets
        _LOG.info("query %s: Spark carries %s from now on", self._name, _listed(part))
        self._tell("")

    async def _is_drained(self, part: _Part) -> bool:
        """Return once everything that was read of a part is delivered; False if Spark is not to carry it after all."""
        while not part.asked.done():
            if self._source.settled(part.places) or (self._ingress.at_rest and self._pipeline.idle):
                return True
            await self._clock.sleep_until(self._clock.now() + _DRAIN_S)
        return False

    def _end(self, part: _Part, carried: Carried, carried_s: float) -> None:
        part.rule.ended(self._clock.now(), in_vain=carried.failed or part.late)
        if carried.refused:
            self._refused = True
        self._tell(carried.reason, without=part)
        text = "query %s: the gateway takes over %s after %.1f s: %s"
        _LOG.info(text, self._name, _listed(part), carried_s, carried.reason)

    def _tell(self, reason: str, without: _Part | None = None) -> None:
        carried = [part for part in self._carried if part.begun and part is not without]
        self._owner.on_turn(len(carried), len(self._parts), reason)


def _listed(part: _Part) -> str:
    return ", ".join(part.places)
