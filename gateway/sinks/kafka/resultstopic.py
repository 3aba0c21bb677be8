"""Looks into the topic of the results: where it ends, and which records' results are in it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition

from gateway.connectors.kafkaclients import close_client, start_client
from gateway.sinks.base import SinkUnavailableError
from gateway.sinks.kafka.naming import EventName
from gateway.sinks.kafka.producer import KAFKA_ERRORS

_ANSWER_S: Final = 15.0
_POLL_MS: Final = 200
_NEWEST: Final = 200


class ResultsTopic:
    """Reads a topic of results, and the records that they name.

    Args:
        settings: how to reach the brokers.
        topic: its name.
    """

    def __init__(self, settings: Mapping[str, Any], topic: str) -> None:
        self._settings = settings
        self._topic = topic

    async def ends(self) -> dict[int, int]:
        """Return the offset after the last record of each partition.

        Raises:
            SinkUnavailableError: the brokers do not answer.
        """
        async with self._consumer() as consumer:
            return {each.partition: end for each, end in (await self._ends(consumer)).items()}

    async def names_after(
        self, begins: Mapping[int, int], source: Mapping[str, int]
    ) -> tuple[Counter[EventName], dict[int, int]]:
        """Return of which records results are in the topic, and how many; and up to where it has looked.

        Args:
            begins: the offset of each partition to begin at; of others it is the first one.
            source: only records of these partitions (``<topic>/<partition>``) count, from these offsets on.

        Raises:
            SinkUnavailableError: the brokers do not answer.
        """
        found: Counter[EventName] = Counter()
        async with self._consumer() as consumer:
            ends = await self._ends(consumer)
            consumer.assign(list(ends))
            for each in ends:
                consumer.seek(each, begins.get(each.partition, 0))
            async for records in _until(consumer, ends):
                names = (EventName.of(record.headers) for record in records)
                found.update(name for name in names if name is not None and _is_after(name, source))
            return found, {each.partition: end for each, end in ends.items()}

    async def newest(self, source: Mapping[str, int]) -> tuple[EventName, float] | None:
        """Return the record that the newest result names, and how long after that record it came, in seconds.

        Args:
            source: only records of these partitions (``<topic>/<partition>``) count, from these offsets on; and only
                the last results in each partition of the topic.

        Raises:
            SinkUnavailableError: the brokers do not answer.
        """
        async with self._consumer() as consumer:
            newest: tuple[EventName, Any] | None = None
            for each, end in (await self._ends(consumer)).items():
                for result in await _records_from(consumer, each, max(0, end - _NEWEST)) if end else []:
                    name = EventName.of(result.headers)
                    if name is None or not _is_after(name, source):
                        continue
                    if newest is None or result.timestamp > newest[1].timestamp:
                        newest = name, result
            if newest is None:
                return None
            name, result = newest
            events = await _records_from(consumer, TopicPartition(name.topic, name.partition), name.offset, most=1)
            if not events or events[0].offset != name.offset:
                return None
            return name, max(0.0, (result.timestamp - events[0].timestamp) / 1000)

    async def _ends(self, consumer: AIOKafkaConsumer) -> dict[TopicPartition, int]:
        places = [TopicPartition(self._topic, number) for number in sorted(self._numbers(consumer))]
        async with asyncio.timeout(_ANSWER_S):
            ends: dict[TopicPartition, int] = await consumer.end_offsets(places)
        return ends

    def _numbers(self, consumer: AIOKafkaConsumer) -> set[int]:
        found: set[int] | None = consumer.partitions_for_topic(self._topic)
        if not found:
            raise SinkUnavailableError(f"the brokers do not know the partitions of topic {self._topic}")
        return found

    @asynccontextmanager
    async def _consumer(self) -> AsyncIterator[AIOKafkaConsumer]:
        # It is subscribed to the topic only to learn of its partitions.
        consumer = AIOKafkaConsumer(
            self._topic, **self._settings, isolation_level="read_committed", enable_auto_commit=False
        )
        try:
            await start_client(consumer)
            consumer.unsubscribe()
            yield consumer
        except (*KAFKA_ERRORS, TimeoutError) as error:
            raise SinkUnavailableError(f"the topic {self._topic} cannot be read: {error!r}") from error
        finally:
            await close_client(consumer.stop())


def _is_after(name: EventName, source: Mapping[str, int]) -> bool:
    begin = source.get(f"{name.topic}/{name.partition}")
    return begin is not None and name.offset >= begin


async def _until(
    consumer: AIOKafkaConsumer, ends: Mapping[TopicPartition, int]
) -> AsyncIterator[Sequence[ConsumerRecord]]:
    """Yield the records before these offsets."""
    async with asyncio.timeout(_ANSWER_S) as limit:
        while left := [each for each, end in ends.items() if await consumer.position(each) < end]:
            for records in (await consumer.getmany(*left, timeout_ms=_POLL_MS)).values():
                limit.reschedule(asyncio.get_running_loop().time() + _ANSWER_S)
                yield records


async def _records_from(
    consumer: AIOKafkaConsumer, partition: TopicPartition, offset: int, *, most: int = _NEWEST
) -> Sequence[ConsumerRecord]:
    """Return records from an offset on, as many as come at once."""
    consumer.assign([partition])
    consumer.seek(partition, offset)
    async with asyncio.timeout(_ANSWER_S):
        found = await consumer.getmany(partition, timeout_ms=_POLL_MS, max_records=most)
    records: Sequence[ConsumerRecord] = found.get(partition, [])
    return records
