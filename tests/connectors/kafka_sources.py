"""Helpers of the Kafka source's tests: producing, making sources, reading."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from aiokafka import AIOKafkaProducer

from gateway.config.connectors.kafka import KafkaSourceConfig
from gateway.sources.base import Chunk
from gateway.sources.kafka.kafkasource import KafkaSource
from infra.clock import SystemClock
from infra.rows.base import SourceUnavailableError
from tests.connectors.kafka_broker import Broker
from tests.connectors.source_contract import DEADLINE_S, SCHEMA


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
    """Write values, to all partitions in turn if none is given; return when the broker has them."""
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
    """A source, not opened; its group has the name of its first topic."""
    config = KafkaSourceConfig.model_validate(
        {"type": "kafka", "brokers": broker.brokers, "topics": topics, "group": topics[0], **said}
    )
    return KafkaSource(config, query="q", owner=owner, clock=SystemClock(), strict=strict)


class Reading:
    """A source that a separate task reads all the time, like the ingress.

    Args:
        source: an opened source.
        acknowledges: whether each chunk is acknowledged as soon as it is read.
    """

    def __init__(self, source: KafkaSource, *, acknowledges: bool = True) -> None:
        self.source = source
        self.acknowledges = acknowledges
        self.chunks: list[Chunk] = []
        self.outages = 0
        self._task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        while True:
            try:
                chunk = await self.source.read(10, 1 << 20)
                if chunk is None:
                    continue
                self.chunks.append(chunk)
                if self.acknowledges:
                    await self.source.acknowledge(chunk.end)
            except SourceUnavailableError:
                self.outages += 1
                await asyncio.sleep(0.1)

    def numbers(self) -> list[int]:
        """The column n of all events so far."""
        return [n for chunk in self.chunks for n in chunk.batch.column("n").to_pylist()]

    async def until(self, state: Callable[[], bool], what: str) -> None:
        """Wait for a state; an error of the reading task is raised here."""
        ends = time.monotonic() + DEADLINE_S
        while not state():
            if self._task.done():
                self._task.result()
            assert time.monotonic() < ends, f"not within {DEADLINE_S:g} s: {what}; read: {len(self.numbers())}"
            await asyncio.sleep(0.01)

    async def stop(self) -> None:
        """Stop reading, and close the source."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self.source.close()


@asynccontextmanager
async def reading(source: KafkaSource, *, acknowledges: bool = True) -> AsyncIterator[Reading]:
    """Open a source and return a ``Reading`` of it."""
    await source.open(SCHEMA)
    task = Reading(source, acknowledges=acknowledges)
    try:
        yield task
    finally:
        await task.stop()
