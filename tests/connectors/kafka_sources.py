"""Helpers of the Kafka source's tests: producing, making sources, reading."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from aiokafka import AIOKafkaProducer
from kafka_broker import Broker

from gateway.config.kafka import KafkaSource as KafkaSourceConfig
from gateway.sources.kafka import KafkaSource


@asynccontextmanager
async def producer(broker: Broker, **settings: Any) -> AsyncIterator[AIOKafkaProducer]:
    """A producer that is stopped at the end."""
    client = AIOKafkaProducer(bootstrap_servers=broker.brokers, **settings)
    await client.start()
    try:
        yield client
    finally:
        await client.stop()


async def put(broker: Broker, topic: str, values: Sequence[bytes | None], partition: int | None = None) -> None:
    """Write values, over all partitions in turn if none is given; return when they are there."""
    async with producer(broker) as client:
        partitions = sorted(await client.partitions_for(topic))
        sent = [
            await client.send(
                topic, value, partition=partitions[i % len(partitions)] if partition is None else partition
            )
            for i, value in enumerate(values)
        ]
        for future in sent:
            await future


def lines(rows: Sequence[dict[str, Any]]) -> list[bytes | None]:
    """Rows as JSON."""
    return [json.dumps(row).encode() for row in rows]


def make_source(broker: Broker, *topics: str, owner: str = "me", strict: bool = False, **said: Any) -> KafkaSource:
    """A source, not opened; its group is its first topic's name."""
    config = KafkaSourceConfig.model_validate(
        {"type": "kafka", "brokers": broker.brokers, "topics": topics, "group": topics[0], **said}
    )
    return KafkaSource(config, query="q", owner=owner, strict=strict)
