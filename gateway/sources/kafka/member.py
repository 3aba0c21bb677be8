"""A member of a consumer group that reads its partitions from its own log's position, and hands them over cleanly."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import KafkaError

from gateway.sources.kafka.lent import Lent
from gateway.sources.kafka.partitions import by_partition, partitions_of
from gateway.sources.kafka.starts import begin_at_end, starts_of
from infra.clock import Clock
from infra.kafka.fetched import Fetched
from infra.kafka.fetching import FETCHING, REQUEST_TIMEOUT_MS, STOP_S

_LOG = logging.getLogger(__name__)
# How long a read that has some records waits for those that came since the client asked the last time: for a broker
# nearby a few times as long as it takes to answer.
MORE_S: Final = 0.01
# How long a static member may be away before its partitions go to others; a restart of its gateway is much shorter.
_SESSION_TIMEOUT_MS: Final = 45_000
_HEARTBEAT_MS: Final = 1000
# How long a revoked partition waits until its records are in the sink. The group waits meanwhile.
HANDOVER_S: Final = 20.0
_REBALANCE_TIMEOUT_MS: Final = 60_000
# A gateway whose sink stands still keeps its partitions, since it holds records of them.
_POLL_INTERVAL_MS: Final = 2**31 - 1
# Fetches are answered at least each half second; no answer for this long is an outage.
_SILENT_S: Final = 5.0
_ANSWER_S: Final = 15.0


class Member(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka has no types
    """One consumer in a group.

    A partition begins at what this query has read or at what the group has committed, whichever is later. Before it
    goes to another member, its records must be acknowledged and its offsets committed.

    Args:
        settings: the connection to the brokers.
        topics: the topics to read.
        group: the consumer group.
        instance: name of this member; the same after a restart, so that it gets its partitions back at once.
        clock: time; aiokafka counts in wall time.
        sink_commits: whether the sink's transactions commit the group's offsets, so that this member commits nothing.
        lent: the partitions that somebody else delivers.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        topics: Sequence[str],
        group: str,
        instance: str,
        clock: Clock,
        *,
        sink_commits: bool,
        lent: Lent,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._topics = topics
        self._group = group
        self._sink_commits = sink_commits
        self._lent = lent
        self._consumer = AIOKafkaConsumer(
            **settings,
            **FETCHING,
            group_id=group,
            group_instance_id=instance,
            session_timeout_ms=_SESSION_TIMEOUT_MS,
            heartbeat_interval_ms=_HEARTBEAT_MS,
            rebalance_timeout_ms=_REBALANCE_TIMEOUT_MS,
            max_poll_interval_ms=_POLL_INTERVAL_MS,
        )
        self.fetched = Fetched(self._consumer)
        # Counts events that invalidate records in flight: partitions lost or gained, another position.
        self.generation = 0
        self._assigned: tuple[TopicPartition, ...] = ()
        self._delivered: dict[TopicPartition, int] = {}
        self._acked: dict[TopicPartition, int] = {}
        self.committed: dict[TopicPartition, int] = {}
        self._reached: dict[TopicPartition, int] = {}
        self._begun_wall_s = 0.0
        self._known: dict[str, int] = {}
        self._told = asyncio.Event()
        self._committing = asyncio.Lock()
        self._closing = False

    # ----------------------------------------------------------------------------------------------- join and leave

    async def join(self, *, from_end: bool) -> None:
        """Join the group; the partitions are assigned later.

        Args:
            from_end: if the group has committed nothing at all, begin at the present end of the topics.

        Raises:
            SourceError: a topic does not exist.
            KafkaError: the brokers do not answer.
        """
        partitions = await partitions_of(self._connection(), self._topics)
        for partition in partitions:
            self._known[partition.topic] = self._known.get(partition.topic, 0) + 1
        if from_end:
            await begin_at_end(self._connection(), self._group, partitions)
        await self._consumer.start()
        self._consumer.subscribe(self._topics, listener=self)

    def _connection(self) -> dict[str, Any]:
        return {**self._settings, "request_timeout_ms": REQUEST_TIMEOUT_MS}

    async def stop(self) -> None:
        """Commit acknowledged offsets, and leave; the partitions stay this member's for the session's time."""
        self._closing = True
        self._told.set()
        try:
            async with asyncio.timeout(STOP_S):
                await self.commit()
        except (KafkaError, TimeoutError) as error:
            _LOG.warning("group %s: offsets were not committed (%r): the run log has them", self._group, error)
        self._assigned = ()
        try:
            async with asyncio.timeout(STOP_S):
                await self._consumer.stop()
        except TimeoutError:
            _LOG.warning("group %s: the Kafka client did not stop within %g s", self._group, STOP_S)

    # --------------------------------------------------------------------------------------------------- rebalances

    async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        """Return no more records of these, wait until returned ones are acknowledged, and commit."""
        begun = [partition for partition in revoked if partition in self._delivered]
        self._assigned = ()
        if revoked:
            self._lent.wanted_back.set()
        self.generation += 1
        try:
            async with asyncio.timeout(HANDOVER_S):
                while self._outstanding(begun) and not self._closing:
                    self._told.clear()
                    await self._told.wait()
        except TimeoutError:
            late = {each: (self._acked[each], self._delivered[each]) for each in begun}
            _LOG.warning(
                "group %s: partitions are revoked, and %g s later some of their records are still not in the sink; "
                "their next owner reads these again (acknowledged, read): %s",
                self._group,
                HANDOVER_S,
                {f"{each.topic}/{each.partition}": both for each, both in late.items() if both[0] < both[1]},
            )
        try:
            async with asyncio.timeout(_ANSWER_S):
                await self.commit()
        except (KafkaError, TimeoutError) as error:
            _LOG.warning("group %s: offsets could not be committed before the rebalance: %r", self._group, error)
        self._delivered.clear()

    def _outstanding(self, begun: Sequence[TopicPartition]) -> bool:
        # While it waits, all partitions may have begun again.
        return bool(self._lent.partitions) or not self.settled(begun)

    def lend(self, partitions: Collection[TopicPartition]) -> None:
        """Return no more records of these until ``take_back``: somebody else delivers them."""
        self._lent.partitions.update(partitions)
        self.generation += 1
        self.fetched.drop(list(partitions))
        self._consumer.pause(*self._lent_here())

    def _lent_here(self) -> list[TopicPartition]:
        return [each for each in self._consumer.assignment() if each in self._lent.partitions]

    def settled(self, partitions: Collection[TopicPartition]) -> bool:
        """Return whether everything that was read of these is acknowledged."""
        return all(self._acked.get(each, 0) >= self._delivered.get(each, 0) for each in partitions)

    def take_back(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Read these again, from these offsets on: somebody else has delivered everything before them."""
        self.generation += 1
        self._lent.partitions.difference_update(offsets)
        self._lent.changed.set()
        self._begun_wall_s = self._clock.wall()  # nothing was asked of their brokers meanwhile
        for partition, offset in offsets.items():
            if partition in self._delivered and partition in self._consumer.assignment():
                self._consumer.seek(partition, offset)
                self._delivered[partition] = self._acked[partition] = self._reached[partition] = offset
        self._told.set()

    async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        """Note the partitions; ``begin`` finds out where they begin."""
        self.generation += 1
        self._delivered.clear()
        self._lent.wanted_back.clear()
        self._assigned = tuple(sorted(assigned))
        _LOG.info("group %s: %d partitions are assigned to this gateway", self._group, len(self._assigned))

    @property
    def partitions(self) -> tuple[TopicPartition, ...]:
        """The partitions that have begun, without those that are lent."""
        return tuple(each for each in self._delivered if each not in self._lent.partitions) if self._assigned else ()

    @property
    def may_begin(self) -> bool:
        """Whether there are partitions that have not begun."""
        return bool(self._assigned) and not self._delivered

    def rewind(self) -> None:
        """Let all partitions begin again."""
        self.generation += 1
        self._delivered.clear()

    async def begin(self, own: Mapping[str, int]) -> dict[TopicPartition, int]:
        """Return where the partitions begin; nothing if they were revoked meanwhile.

        Args:
            own: what this query has read, as in ``Position.offsets``.

        Raises:
            SourceError: a partition lacks the next record.
            KafkaError: the brokers do not answer.
        """
        self.fetched.drop()
        generation, assigned = self.generation, self._assigned
        self._consumer.pause(*self._lent_here())
        async with asyncio.timeout(_ANSWER_S):
            committed = {each: await self._consumer.committed(each) for each in assigned}
            known = (by_partition(own), {each: offset for each, offset in committed.items() if offset is not None})
            wanted = {
                each: max(offsets[each] for offsets in known if each in offsets)
                for each in assigned
                if any(each in offsets for offsets in known)
            }
            begins = await starts_of(self._consumer, assigned, wanted, self._clock)
        if generation != self.generation:
            return {}
        for partition, offset in begins.items():
            self._consumer.seek(partition, offset)
            before = committed[partition]
            # Where nobody has committed or read anything, there is nothing before the beginning to wait for.
            self.committed[partition] = (0 if partition in wanted else offset) if before is None else before
        self._acked = dict(self.committed)
        self._delivered = dict(begins)
        self._reached = dict(begins)
        self._begun_wall_s = self._clock.wall()
        return begins

    # --------------------------------------------------------------------------------------------- reading and state

    async def fill(self, max_records: int, max_bytes: int, *, wait_s: float) -> None:
        """Fetch records of the partitions that have begun; see ``Fetched.fill``."""
        self.look_for_partitions()
        partitions = self.partitions
        self.fetched.drop(list(self._lent.partitions))  # what was on its way when they were lent
        self._consumer.resume(*partitions)
        await self._fill(partitions, max_records, max_bytes, wait_s=wait_s)
        # Meanwhile they may have been revoked.
        if self.partitions == partitions and 0 < self.fetched.count <= max_records and not self.unfetched():
            # The client asks for more only once its buffer is empty, so what came since the last call is not there yet.
            await self._fill(partitions, max_records, max_bytes, more_s=MORE_S)

    async def _fill(
        self,
        partitions: Sequence[TopicPartition],
        max_records: int,
        max_bytes: int,
        *,
        wait_s: float = 0.0,
        more_s: float = 0.0,
    ) -> None:
        await self.fetched.fill(partitions, max_records, max_bytes, wait_s=wait_s, more_s=more_s)
        for partition in partitions:
            if partition in self._consumer.assignment():
                self._reached[partition] = await self._consumer.position(partition)

    async def lent_ends(self) -> dict[TopicPartition, int]:
        """Return the offsets after the last records of the partitions that are lent.

        Raises:
            KafkaError: the brokers do not answer.
        """
        self.look_for_partitions()
        async with asyncio.timeout(_ANSWER_S):
            ends: dict[TopicPartition, int] = await self._consumer.end_offsets(self._lent_here())
        return ends

    async def ends(self) -> dict[TopicPartition, int]:
        """Return the offsets after the last records of the partitions that have begun, and fetch none of them.

        Raises:
            IllegalStateError: they are being revoked.
            KafkaError: the brokers do not answer.
        """
        self.look_for_partitions()
        partitions = self.partitions
        self._consumer.pause(*partitions)
        async with asyncio.timeout(_ANSWER_S):
            ends: dict[TopicPartition, int] = await self._consumer.end_offsets(partitions)
        return ends

    def look_for_partitions(self) -> None:
        """Join again when a topic has more partitions than it had.

        aiokafka does this in the group's leader, but a leader that came back as a static member does not know that it
        is the leader.
        """
        found = {topic: len(self._consumer.partitions_for_topic(topic) or ()) for topic in self._topics}
        if any(found[topic] > self._known[topic] for topic in self._topics):
            self._known = found
            _LOG.info("group %s: the topics have new partitions: %s", self._group, found)
            # Subscribing again would lose the assignment before its offsets are committed.
            self._consumer._coordinator.request_rejoin()  # noqa: SLF001 -- aiokafka has no public word for it

    def deliver(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Note the next offsets of partitions after the records that were read."""
        self._delivered.update(offsets)

    def unfetched(self) -> int:
        """Return how many offsets are not fetched yet, as far as the brokers have reported them."""
        assigned = self._consumer.assignment()
        count = 0
        for partition in self.partitions:
            if partition in assigned:
                end = self._consumer.last_stable_offset(partition)
                if end is None or end < 0:
                    end = self._consumer.highwater(partition) or 0
                count += max(0, end - self._reached[partition])
        return count

    def silent_s(self) -> float | None:
        """Return how long a partition's broker has not answered, if that is an outage."""
        assigned, now_s = self._consumer.assignment(), self._clock.wall()
        times = [
            (self._consumer.last_poll_timestamp(partition) or 0) / 1000
            for partition in self.partitions
            if partition in assigned
        ]
        oldest_s = now_s - max(min(times, default=now_s), self._begun_wall_s)
        return oldest_s if oldest_s > _SILENT_S else None

    def acknowledge(self, offsets: Mapping[str, int]) -> None:
        """Note that the records before these offsets are in the sink."""
        for partition, offset in by_partition(offsets).items():
            if partition in self._acked:
                self._acked[partition] = max(self._acked[partition], offset)
        self._told.set()

    async def commit(self) -> None:
        """Commit to the group what is acknowledged in this member's partitions, unless the sink commits.

        Raises:
            KafkaError: they belong to others now, or the brokers do not answer.
        """
        if self._sink_commits:
            return
        async with self._committing:
            later = {
                each: self._acked[each] for each in self._delivered if self._acked[each] > self.committed.get(each, -1)
            }
            if later:
                await self._consumer.commit(later)
                self.committed.update(later)
