"""Plays the demo from a topic of mails into a topic of results."""

from __future__ import annotations

import asyncio
import math
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from engines.email.mailbox import Mail
from engines.email.queries import FLAT_SCHEMA_DDL, FLAT_SQL
from gateway.demo.kafka.answers import MailAnswers, measured, read_answers
from gateway.demo.kafka.carried import CarriedRun, carried_by
from gateway.demo.kafka.feed import MailFeed
from gateway.demo.kafka.mails import PARTITIONS, MailRecords
from gateway.demo.kafka.site import KafkaSite
from gateway.demo.kafka.turns import CarryTurn, carried_by_spark, hand_overs, turns_in
from gateway.demo.load import DemoPace, RateSegment, due_times_s
from gateway.demo.playing.player import DEADLINE_S, SWITCHING, WARM_UP, Player, how_it_is
from gateway.demo.playing.progress import Stages
from gateway.demo.report import Mode, ModeRun, Policy
from gateway.demo.stage import BOOT_S, Stage, StagedGateway, StageError
from gateway.demo.verify import ExpectedResults
from gateway.views.runrecord import GatewayRecord
from infra.clock import SystemClock
from infra.kafka.topics import LoadTopics
from infra.messages import BrokerAccess
from infra.rows.base import SourceError

Show = Callable[[float, Mapping[str, Any]], None]
"""See ``StagedGateway.watch``."""

_FIRST: Final = 100 * PARTITIONS
_ALL_OUT_MOST_S: Final = 60.0
_RESULTS: Final = {"message.timestamp.type": "LogAppendTime"}
# Spark alone: results that are ever so late are no reason to hand over.
_ALONE: Final = {"switching": {**SWITCHING, "mode": "off", "start_vm_above": "2h", "send_above": "1h"}}


@dataclass(frozen=True, slots=True)
class _Played:
    """What a gateway has left."""

    record: GatewayRecord
    turns: Sequence[CarryTurn]
    answers: MailAnswers
    feed: MailFeed
    ends_s: float


class KafkaPlayer(Player):
    """Plays on the topics of a broker, which it creates and deletes.

    Args:
        stage: see ``Player``.
        base: see ``Player``.
        stages: see ``Player``.
        policy: see ``Player``.
        site: the broker.
    """

    def __init__(self, stage: Stage, base: Sequence[Mail], stages: Stages, policy: Policy, site: KafkaSite) -> None:
        super().__init__(stage, base, stages, False, policy)
        self._site = site
        self._topics = LoadTopics(BrokerAccess(brokers=site.brokers))
        self._records, self._expected = MailRecords(base), ExpectedResults(base)
        self._token = uuid.uuid4().hex[:8]
        self._created: list[str] = []

    def warm_up(self, pace: DemoPace) -> None:
        """See ``Player.warm_up``: first through the gateway, with VMs, then by Spark."""
        events = pace.warm_up_events
        self._play_all_out("warm-up", "warm-up of the gateway's path and a VM", WARM_UP, events, by_spark=False)
        self._play_all_out("warm-up-direct", "warm-up of Spark by itself", _ALONE, events, by_spark=True)

    def sustained(self, name: str, title: str, pace: DemoPace) -> float:
        """See ``Player.sustained``; Spark carries all of it by itself."""
        played = self._play_all_out(name, title, _ALONE, pace.capacity_events, by_spark=True)
        try:
            return played.answers.rate_per_s() / float(self._expected.counts(len(self.base)).mean())
        except ValueError as error:
            raise StageError(f"the rate that home sustains cannot be measured: {error}") from error

    def query(self, mode: Mode) -> Mapping[str, Any]:
        """See ``Player.query``."""
        return _ALONE if mode == "private_only" else super().query(mode)

    def play_mode(
        self, name: str, title: str, mode: Mode, profile: Sequence[RateSegment], *, keep_hosts: bool
    ) -> ModeRun:
        """See ``Player.play_mode``."""
        planned_s = sum(step.duration_s for step in profile)
        due_s = due_times_s(profile)
        bar = self.stages.begin(title, planned_s)

        def show(elapsed_s: float, status: Mapping[str, Any]) -> None:
            self.stages.show(bar, min(elapsed_s, planned_s), how_it_is(name, status))

        played = self._play(name, self.query(mode), due_s, show, by_spark=True, keep_hosts=keep_hosts)
        feed = played.feed
        record = measured(played.record, played.answers, due_s, feed.begins_s, feed.first)
        self.stages.end(bar, planned_s, f"mean latency {record.totals.latency_ms.mean / 1e3:.2f} s")
        found = hand_overs(played.turns, feed.begins_s, played.ends_s)
        verdict = played.answers.verdict(self._expected, feed.events)
        return CarriedRun(record=record, verdict=verdict, carried=carried_by(record, found))

    def forget(self, name: str) -> None:
        """See ``Player.forget``; the topics are deleted by ``close``."""

    def _play_all_out(self, name: str, title: str, query: Mapping[str, Any], events: int, *, by_spark: bool) -> _Played:
        """Play ``events`` mails that are all due at once, or what is processed of them in a while."""
        bar = self.stages.begin(title, events)

        def show(_: float, status: Mapping[str, Any]) -> None:
            if said := status["queries"].get(name):
                self.stages.show(bar, said["events"], f"{said['events']} mails")

        due_s = np.zeros(events)
        played = self._play(name, query, due_s, show, by_spark=by_spark, keep_hosts=True, most_s=_ALL_OUT_MOST_S)
        self.stages.end(bar, events, f"{played.record.totals.events} mails")
        return played

    def _play(
        self,
        name: str,
        query: Mapping[str, Any],
        due_s: NDArray[np.float64],
        show: Show,
        *,
        by_spark: bool,
        keep_hosts: bool,
        most_s: float = math.inf,
    ) -> _Played:
        """Play mails.

        Args:
            name: of the run.
            query: of its mode.
            due_s: when each is due, in seconds after the first.
            show: see ``StagedGateway.watch``.
            by_spark: whether the first one is due once Spark carries all partitions.
            keep_hosts: see ``Stage.play``.
            most_s: so long after the first mail the gateway is ended, whatever is left.

        Raises:
            StageError: a gateway failed, or the broker.
        """
        try:
            mails, results = self._create(name)
            feed = MailFeed(self._topics, mails, self._records, due_s, _FIRST if by_spark else 0)
            whole = {**self._whole(mails, results), **query}
            with self.stage.running(
                name, whole, BOOT_S, cold=False, keep_hosts=keep_hosts, private=self._site.private
            ) as gateway:
                if by_spark:
                    _begin_by_spark(gateway, feed, name, show)
                _produce(gateway, feed, name, show, DEADLINE_S + float(due_s[-1]), most_s)
                ends_s = SystemClock().wall()
            answers = asyncio.run(read_answers(self._topics, results, self._expected, feed.events))
        except (SourceError, TimeoutError) as error:
            raise StageError(f"run {name}: {error}") from error
        return _Played(gateway.record(), turns_in(gateway.log), answers, feed, ends_s)

    def close(self) -> None:
        """See ``Player.close``. Spark's producers keep asking for topics that they know, so none is deleted before."""
        try:
            asyncio.run(self._topics.delete(self._created))
        except SourceError as error:
            raise StageError(f"the demo's topics are left: {error}") from error

    def _create(self, name: str) -> tuple[str, str]:
        """Create the topics of a run; return that of the mails and that of the results."""
        mails = f"spillway-demo-{self._token}-{name}"
        results = f"{mails}-results"
        self._created += [mails, results, f"{results}-progress"]
        asyncio.run(self._topics.create(mails, PARTITIONS, {}))
        asyncio.run(self._topics.create(results, 1, _RESULTS))
        return mails, results

    def _whole(self, mails: str, results: str) -> dict[str, Any]:
        return {
            "source": {"type": "kafka", "brokers": self._site.brokers, "topics": [mails]},
            "schema": FLAT_SCHEMA_DDL,
            "sql": FLAT_SQL,
            "sink": {"type": "kafka", "brokers": self._site.brokers, "topic": results},
        }


def _begin_by_spark(gateway: StagedGateway, feed: MailFeed, name: str, show: Show) -> None:
    """Return once Spark carries all partitions, and its streams have processed the first mails."""

    def wait_until_carried(events: int) -> None:
        def carried(status: Mapping[str, Any]) -> bool:
            spark = carried_by_spark(turns_in(gateway.log))
            return len(spark) == PARTITIONS and _events(name, status) >= events

        gateway.watch(lambda _, status: show(0.0, status), carried, DEADLINE_S)

    wait_until_carried(0)
    asyncio.run(feed.produce_first())
    wait_until_carried(feed.first)


def _produce(
    gateway: StagedGateway, feed: MailFeed, name: str, show: Show, deadline_s: float, most_s: float = math.inf
) -> None:
    """Return once all mails are produced and processed, or ``most_s`` after the first of them."""
    clock, ends_s = SystemClock(), math.inf
    with feed.running() as producing:

        def is_over(status: Mapping[str, Any]) -> bool:
            nonlocal ends_s
            if ends_s == math.inf and _events(name, status) > 0:
                ends_s = clock.now() + most_s
            if clock.now() > ends_s:
                return True
            if not producing.done():
                return False
            producing.result()
            return _events(name, status) >= feed.events

        gateway.watch(show, is_over, deadline_s)


def _events(name: str, status: Mapping[str, Any]) -> int:
    """Return how many events of its query are processed, as far as a gateway knows."""
    said = status["queries"].get(name)
    return sum(said["events_by_lane"].values()) if said else -1
