"""Topics of a load: they are created, filled at the times of a schedule, read to their end, and deleted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import NoError, for_code

from infra.kafka.clients import client_settings
from infra.kafka.fetched import as_source_errors
from infra.kafka.fetching import FETCHING
from infra.messages import BrokerAccess
from infra.rows.base import SourceUnavailableError

_BATCH_BYTES: Final = 256 * 1024
_SILENT_S: Final = 30.0
_POLL_MS: Final = 500


class TimedRecord(NamedTuple):
    """A record to write: its partition, its time in ms since 1970, and its value."""

    partition: int
    at_ms: int
    value: bytes


class LoadTopics:
    """Topics of one cluster.

    Args:
        access: how to reach its brokers.
    """

    def __init__(self, access: BrokerAccess) -> None:
        self._settings = client_settings(access)
        self._what = f"using {access.brokers}"

    async def create(self, topic: str, partitions: int, settings: Mapping[str, str]) -> None:
        """Create a topic, with one replica: what a load leaves is of no use later.

        Raises:
            SourceUnavailableError: the brokers do not answer, or refuse.
        """
        new = NewTopic(topic, partitions, 1, topic_configs=dict(settings))
        async with self._admin() as admin:
            answer: Any = await admin.create_topics([new])
        for error in answer.topic_errors:
            if for_code(error[1]) is not NoError:
                raise SourceUnavailableError(f"topic {topic} cannot be created: {for_code(error[1]).__name__}")

    async def delete(self, topics: Sequence[str]) -> None:
        """Delete topics; one that does not exist is ignored.

        Raises:
            SourceUnavailableError: the brokers do not answer.
        """
        async with self._admin() as admin:
            await admin.delete_topics(list(topics))

    @asynccontextmanager
    async def writer(self, topic: str) -> AsyncIterator[TopicWriter]:
        """Write to a topic.

        Raises:
            SourceUnavailableError: the brokers do not answer.
        """
        with as_source_errors(self._what):
            producer = AIOKafkaProducer(**self._settings, enable_idempotence=True, max_batch_size=_BATCH_BYTES)
            async with producer:
                yield TopicWriter(producer, topic)

    async def records(self, topic: str) -> AsyncIterator[Sequence[ConsumerRecord]]:
        """Yield the committed records that a topic has now, in the order of each partition.

        Raises:
            SourceUnavailableError: the brokers do not answer.
            TimeoutError: they send nothing for long.
        """
        with as_source_errors(self._what):
            # It is subscribed to the topic only to learn of its partitions.
            async with AIOKafkaConsumer(topic, **self._settings, **FETCHING) as consumer:
                places = [TopicPartition(topic, each) for each in consumer.partitions_for_topic(topic) or ()]
                consumer.unsubscribe()
                consumer.assign(places)
                ends = await consumer.end_offsets(places)
                for place, begin in (await consumer.beginning_offsets(places)).items():
                    consumer.seek(place, begin)
                async with asyncio.timeout(_SILENT_S) as limit:
                    while left := [each for each, end in ends.items() if await consumer.position(each) < end]:
                        for records in (await consumer.getmany(*left, timeout_ms=_POLL_MS)).values():
                            limit.reschedule(asyncio.get_running_loop().time() + _SILENT_S)
                            yield records

    @asynccontextmanager
    async def _admin(self) -> AsyncIterator[AIOKafkaAdminClient]:
        client = AIOKafkaAdminClient(**self._settings)
        with as_source_errors(self._what):
            try:
                await client.start()
                yield client
            finally:
                await client.close()


class TopicWriter:
    """Writes to a topic; order holds within each partition.

    Args:
        producer: started.
        topic: its name.
    """

    def __init__(self, producer: AIOKafkaProducer, topic: str) -> None:
        self._producer, self._topic = producer, topic

    async def write(self, records: Sequence[TimedRecord]) -> None:
        """Return once these records are written."""
        by_partition: dict[int, list[TimedRecord]] = {}
        for record in records:
            by_partition.setdefault(record.partition, []).append(record)
        await asyncio.gather(*(self._write(partition, own) for partition, own in by_partition.items()))

    async def _write(self, partition: int, records: Sequence[TimedRecord]) -> None:
        # Whole batches: a future for each record would cost more than the record.
        sent = []
        batch = self._producer.create_batch()
        for record in records:
            while batch.append(key=None, value=record.value, timestamp=record.at_ms) is None:
                sent.append(await self._producer.send_batch(batch, self._topic, partition=partition))
                batch = self._producer.create_batch()
        sent.append(await self._producer.send_batch(batch, self._topic, partition=partition))
        await asyncio.gather(*sent)
