"""The control topic: the progress of a query, in the same transactions as its results.

It is compacted, only one partition is used, and one record of a query counts: the last committed one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import (
    BrokerResponseError,
    NoError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
    for_code,
)

from gateway.connectors.kafkaclients import close_client, start_client
from gateway.connectors.position import Position
from gateway.sinks.base import SinkUnavailableError
from infra.clock import Clock
from infra.retries import Retries
from infra.statefiles import StateError

# A record of progress and the marker of its transaction take two offsets: the last record of a query that uses the
# topic alone is always in the first window.
_FIRST_WINDOW = 64
_POLL_MS = 200
# Brokers learn one after another that a topic was created, or that a partition has a new leader.
_SPREADING = Retries(first_s=0.1, most_s=0.4, tries=9)
_ONCE = Retries(first_s=0.0, most_s=0.0, tries=1)
# Small segments: only closed ones are compacted, and a query's first start must read what is not compacted.
_CONTROL_CONFIGS = {
    "cleanup.policy": "compact",
    "segment.bytes": "16777216",
    "segment.ms": "3600000",
    "min.cleanable.dirty.ratio": "0.1",
}


class ControlRecord(msgspec.Struct, frozen=True):
    """A record of the control topic.

    Attributes:
        owner: the state that numbers the seqs.
        epoch: of the gateway that wrote it.
        writer: names the one opening of the sink that wrote it.
        committed: the seq intervals whose results are in, those of its own transaction included.
        source: the source position up to which every result is committed.
        handover: see ``gateway.sinks.base.Handover``; null without a fleet.
        direct: while Spark itself delivers, and until what it delivered after ``source`` is passed: the offset of each
            partition of the results' topic after which results of events after ``source`` may be; otherwise null.
    """

    owner: str
    epoch: int
    writer: str
    committed: list[tuple[int, int]]
    source: Position
    handover: msgspec.Raw = msgspec.Raw(b"null")
    direct: dict[int, int] | None = None


class ControlTopic:
    """Makes the topic, and finds a query's last record in it.

    Args:
        topic: its name.
        query: whose records count.
        settings: how every client reaches the brokers.
        clock: measures pauses.
    """

    def __init__(self, topic: str, query: str, settings: dict[str, Any], clock: Clock) -> None:
        self.topic = topic
        self.key = query.encode()
        self._settings = settings
        self._clock = clock
        self._partition = TopicPartition(topic, 0)

    async def prepare(self, results_topic: str) -> None:
        """Check that both topics exist and fit; the control topic is created if it is missing.

        Raises:
            StateError: the results' topic is missing, or the control topic may lose records.
        """
        admin = AIOKafkaAdminClient(**self._settings)
        try:
            await start_client(admin)
            replicas = await self._replicas(admin, results_topic)
            if replicas is None:
                raise StateError(
                    f"the topic {results_topic} does not exist: create it, with as many partitions as wanted"
                )
            if await self._replicas(admin, self.topic, _ONCE) is None:
                await self._create(admin, replicas)
            await self._check(admin)
        finally:
            await close_client(admin.close())

    async def last(self, *, settled: bool) -> ControlRecord | None:
        """Return the query's last committed record; None if there is none.

        Args:
            settled: wait until the outcome of every transaction that began before this call is known. Otherwise records
                after an open transaction are not seen.

        Raises:
            StateError: it cannot be read.
        """
        async with self._consumer("read_committed") as consumer:
            consumer.assign([self._partition])
            begin = (await consumer.beginning_offsets([self._partition]))[self._partition]
            end = await self._end(consumer, settled=settled)
            found: bytes | None = None
            window, stop = _FIRST_WINDOW, end
            # From the end to the front: the log is as long as compaction leaves it.
            while found is None and stop > begin:
                start = max(begin, end - window)
                found = await self.last_between(consumer, start, stop)
                window, stop = 4 * window, start
        return None if found is None else self._decode(found)

    async def _end(self, consumer: AIOKafkaConsumer, *, settled: bool) -> int:
        if not settled:
            return int((await consumer.end_offsets([self._partition]))[self._partition])
        # For a reader of committed records the topic ends before the first open transaction.
        async with self._consumer("read_uncommitted") as bold:
            return int((await bold.end_offsets([self._partition]))[self._partition])

    async def last_between(self, consumer: AIOKafkaConsumer, start: int, stop: int) -> bytes | None:
        """Return the last record of this query from offset ``start`` to before ``stop``; None if there is none."""
        found: bytes | None = None
        consumer.seek(self._partition, start)
        while await consumer.position(self._partition) < stop:
            batches = await consumer.getmany(self._partition, timeout_ms=_POLL_MS)
            for record in batches.get(self._partition, ()):
                if record.key == self.key and record.offset < stop:
                    found = record.value
        return found

    def _decode(self, value: bytes) -> ControlRecord:
        try:
            return msgspec.json.decode(value, type=ControlRecord)
        except msgspec.DecodeError as error:
            raise StateError(
                f"the progress of query {self.key.decode()} in topic {self.topic} cannot be read ({error}): set "
                "another control_topic, which nothing else writes"
            ) from error

    @asynccontextmanager
    async def _consumer(self, isolation: str) -> AsyncIterator[AIOKafkaConsumer]:
        consumer = AIOKafkaConsumer(
            **self._settings, isolation_level=isolation, enable_auto_commit=False, auto_offset_reset="earliest"
        )
        try:
            await start_client(consumer)
            yield consumer
        finally:
            await close_client(consumer.stop())

    async def _replicas(self, admin: AIOKafkaAdminClient, topic: str, retries: Retries = _SPREADING) -> int | None:
        """Return how many copies of a topic are kept; None if it is not there, even after a while for its creation."""

        async def ask() -> int:
            described = (await admin.describe_topics([topic]))[0]
            error = for_code(described["error_code"])
            if error is not NoError:
                raise error
            return min(len(partition["replicas"]) for partition in described["partitions"])

        try:
            return await retries.retry(ask, self._clock, BrokerResponseError)
        except UnknownTopicOrPartitionError:
            return None
        except BrokerResponseError as error:
            raise SinkUnavailableError(f"topic {topic}: {type(error).__name__}") from error

    async def _create(self, admin: AIOKafkaAdminClient, replicas: int) -> None:
        answer: Any = await admin.create_topics([NewTopic(self.topic, 1, replicas, topic_configs=_CONTROL_CONFIGS)])
        for said in answer.topic_errors:
            error = for_code(said[1])
            if error not in (NoError, TopicAlreadyExistsError):
                raise SinkUnavailableError(
                    f"the control topic {self.topic} could not be created ({error.__name__}): create it with one "
                    "partition and cleanup.policy=compact"
                )
        await self._replicas(admin, self.topic)

    async def _check(self, admin: AIOKafkaAdminClient) -> None:
        resource = ConfigResource(ConfigResourceType.TOPIC, self.topic, configs={"cleanup.policy": ""})
        answer: Any = (await admin.describe_configs([resource]))[0]
        code, said, _, _, values = answer.resources[0]
        if for_code(code) is not NoError:
            raise SinkUnavailableError(f"the settings of the control topic {self.topic} cannot be read: {said}")
        policy = next(value[1] for value in values if value[0] == "cleanup.policy")
        if policy != "compact":
            raise StateError(
                f"the control topic {self.topic} has cleanup.policy={policy} and would lose the progress: set it to "
                "compact, or set another control_topic"
            )
