"""The gateway and Spark take turns in delivering one query."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

import msgspec

from gateway.query.direct.carrier import Carried, DirectCarrier
from gateway.query.direct.rule import DirectRule
from gateway.query.flow.ingress import Ingress
from gateway.query.flow.pipeline import Pipeline
from gateway.query.flow.runlog import RunLog
from gateway.sources.kafka.kafkasource import KafkaSource
from gateway.sources.replayed import WithReplays
from infra.clock import Clock
from infra.together import end_tasks
from policies.signals import HOME

_LOG = logging.getLogger(__name__)
_LOOK_S: Final = 0.25
_IDLE_S: Final = 0.02


class DirectTurns:
    """Reads a query's events through the gateway, or lets Spark carry it, as a rule says.

    Args:
        name: the query's.
        carrier: lets Spark carry it.
        rule: decides.
        source: the query's, with replayed dead letters; its main one is a topic.
        log: the run log.
        ingress: reads for the gateway.
        pipeline: delivers what the gateway has read.
        late_above_s: what waits for longer is no calm.
        on_turn: called with whether Spark carries the query, and why it does not any more.
        carries: whether Spark is to carry it at all; otherwise only what it has delivered before is left out.
        clock: time.
    """

    def __init__(
        self,
        name: str,
        carrier: DirectCarrier,
        rule: DirectRule,
        *,
        source: WithReplays,
        log: RunLog,
        ingress: Ingress,
        pipeline: Pipeline,
        late_above_s: float,
        on_turn: Callable[[bool, str], None],
        carries: bool,
        clock: Clock,
    ) -> None:
        assert isinstance(source.main, KafkaSource)
        self._name, self._carrier, self._rule = name, carrier, rule
        self._source, self._topic = source, source.main
        self._log, self._ingress, self._pipeline = log, ingress, pipeline
        self._late_above_s, self._on_turn, self._clock = late_above_s, on_turn, clock
        self._refused = not carries

    async def recover(self) -> None:
        """Continue after what Spark has delivered, perhaps under another gateway; before anything is read."""
        position = await self._carrier.take_back(self._log.position)
        self._log.skip(position)

    async def run(self) -> None:
        """Take turns until cancelled."""
        while True:
            await self._by_gateway()
            await self._by_spark()

    # See ``Watcher``.

    def is_late(self, latency_s: float) -> bool:
        """See ``Watcher.is_late``."""
        return self._rule.is_late(self._clock.now(), latency_s)

    async def wanted_back(self) -> str:
        """See ``Watcher.wanted_back``."""
        while not self._wanted.is_set():
            self._topic.look()
            if self._source.waiting:
                return "dead letters are to be replayed"
            await self._clock.sleep_until(self._clock.now() + _LOOK_S)
        return "the consumer group wants some of its partitions back"

    async def _by_gateway(self) -> None:
        """Read until Spark is to carry the query, and everything that was read is delivered."""
        reading = asyncio.create_task(self._ingress.run(), name=f"read {self._name} by the gateway")
        try:
            while not self._may_begin():
                done, _ = await asyncio.wait({reading}, timeout=_LOOK_S)
                if done:
                    break
            self._ingress.rest()
            await reading
        finally:
            await end_tasks(reading)
        while not self._pipeline.idle:
            await self._clock.sleep_until(self._clock.now() + _IDLE_S)

    def _may_begin(self) -> bool:
        oldest_s, now_s = self._ingress.oldest_unread_s(), self._clock.now()
        waits = oldest_s is not None and now_s - oldest_s > self._late_above_s
        at_home = self._pipeline.cloud_share == 0 and set(self._pipeline.lanes) == {HOME}
        settled = self._carrier.settled and not self._source.waiting
        calm = at_home and settled and not waits and bool(self._topic.places())
        return not self._refused and self._rule.may_begin(now_s, calm=calm)

    async def _by_spark(self) -> None:
        places = self._topic.places()
        if not places:
            return  # the group has just taken them away
        known = self._log.position
        offsets = {place: max(offset, known.offsets.get(place, 0)) for place, offset in places.items()}
        position = msgspec.structs.replace(known, offsets={**known.offsets, **offsets})
        self._wanted = self._topic.lend()
        self._on_turn(True, "")
        _LOG.info("query %s: Spark carries it from now on", self._name)
        begun_s = self._clock.now()
        try:
            carried = await self._carrier.carry(position, tuple(places), self)
        finally:
            self._topic.take_back()
        await self._goes_on(carried)
        taken_s = self._clock.now() - begun_s
        _LOG.info("query %s: the gateway takes over after %.1f s: %s", self._name, taken_s, carried.reason)

    async def _goes_on(self, carried: Carried) -> None:
        self._log.skip(carried.position)
        await self._source.seek(carried.position)
        self._refused = carried.refused
        self._rule.ended(self._clock.now(), failed=carried.failed)
        self._on_turn(False, carried.reason)

    @property
    def trouble(self) -> str:
        """Why the brokers cannot be asked while Spark carries the query; empty if they can."""
        return self._carrier.trouble
