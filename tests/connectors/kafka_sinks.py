"""Helpers of the Kafka sink's tests: sinks for a topic of the test, and an independent reader."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition

from gateway.config.connectors.kafka import KafkaSinkConfig
from gateway.sinks.kafka.kafkasink import KafkaSink
from infra.clock import SystemClock
from tests.connectors.kafka_broker import Broker

READ_S = 60.0


def make_sink(
    brokers: str,
    topic: str,
    *,
    owner: str = "me",
    epoch: int = 1,
    query: str = "q",
    group: str | None = None,
    transaction_bytes: int = 32 * 2**20,
    silence_s: float = 15.0,
    **settings: Any,
) -> KafkaSink:
    """A sink for a topic, not opened."""
    config = KafkaSinkConfig(type="kafka", brokers=brokers, topic=topic, **settings)
    return KafkaSink(
        config,
        query=query,
        owner=owner,
        epoch=epoch,
        clock=SystemClock(),
        offsets_group=group,
        transaction_bytes=transaction_bytes,
        silence_s=silence_s,
    )


async def records(broker: Broker, topic: str, *, isolation: str = "read_committed") -> list[ConsumerRecord]:
    """All records of a topic up to its end, by partition; with read_committed it waits for open transactions."""
    everything = AIOKafkaConsumer(topic, bootstrap_servers=broker.brokers)
    consumer = AIOKafkaConsumer(
        bootstrap_servers=broker.brokers, isolation_level=isolation, auto_offset_reset="earliest"
    )
    await everything.start()
    await consumer.start()
    try:
        async with asyncio.timeout(READ_S):
            places = [TopicPartition(topic, number) for number in sorted(everything.partitions_for_topic(topic) or ())]
            assert places, f"no topic {topic}"
            ends = await everything.end_offsets(places)
            consumer.assign(places)
            await consumer.seek_to_beginning()
            found: list[ConsumerRecord] = []
            for place in places:
                while await consumer.position(place) < ends[place]:
                    found += (await consumer.getmany(place, timeout_ms=100)).get(place, [])
            return found
    finally:
        await consumer.stop()
        await everything.stop()


async def values(broker: Broker, topic: str) -> list[dict[str, Any]]:
    """The committed results of a topic."""
    return [json.loads(record.value or b"") for record in await records(broker, topic)]
