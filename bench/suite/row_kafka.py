"""Reading from a real Kafka broker, to Arrow batches."""

from __future__ import annotations

import asyncio
import os
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import msgspec
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from gateway.config.connectors.kafka import KafkaSourceConfig
from gateway.sources.kafka.kafkasource import KafkaSource
from infra.clock import SystemClock
from suite.brokers import BROKERS, broker
from suite.row import Row
from suite.row_decode import NEEDED, Reading, lines
from suite.turns import OURS, Goal, Sample
from tests.connectors.kafka_broker import Broker

EVENTS, PARTITIONS, READ_EVENTS, READ_BYTES = 200_000, 4, 20_000, 1 << 24
RATE = "events/s"
_TOPIC = "SPILLWAY_BENCH_TOPIC"


async def _fill(there: Broker, topic: str) -> None:
    said = lines()
    producer = AIOKafkaProducer(bootstrap_servers=there.brokers, linger_ms=5, max_batch_size=256 * 1024)
    await producer.start()
    for at in range(EVENTS):
        await producer.send(topic, said[at % len(said)], partition=at % PARTITIONS)
    await producer.stop()


@contextmanager
def around() -> Iterator[Mapping[str, str]]:
    """Run a broker whose topic has all events."""
    with broker() as there:
        topic = asyncio.run(there.create_topic(partitions=PARTITIONS))
        asyncio.run(_fill(there, topic))
        yield {BROKERS: there.brokers, _TOPIC: topic}


async def _by_source() -> float:
    name = str(uuid.uuid4())
    config = KafkaSourceConfig(type="kafka", brokers=os.environ[BROKERS], topics=(os.environ[_TOPIC],), group=name)
    source = KafkaSource(config, query="bench", owner=name, clock=SystemClock())
    await source.open(NEEDED)
    while source.backlog() is None:
        await source.read(1, 1)
    begun_s, count = time.perf_counter(), 0
    acknowledging = asyncio.create_task(asyncio.sleep(0))
    # A few were read until the backlog was known.
    while count < EVENTS - 10 * PARTITIONS:
        chunk = await source.read(READ_EVENTS, READ_BYTES)
        if chunk is not None:
            count += chunk.batch.num_rows
            if acknowledging.done():
                acknowledging = asyncio.create_task(source.acknowledge(chunk.end))
    await acknowledging
    took_s = time.perf_counter() - begun_s
    await source.close()
    return count / took_s


async def _by_getmany() -> float:
    consumer = AIOKafkaConsumer(
        os.environ[_TOPIC],
        bootstrap_servers=os.environ[BROKERS],
        group_id=str(uuid.uuid4()),
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
    )
    await consumer.start()
    decoder, begun_s, count = msgspec.json.Decoder(Reading), time.perf_counter(), 0
    while count < EVENTS:
        found = await consumer.getmany(timeout_ms=50, max_records=READ_EVENTS)
        for records in found.values():
            count += len(decoder.decode_lines(b"\n".join(record.value for record in records)))
    took_s = time.perf_counter() - begun_s
    await consumer.stop()
    return count / took_s


def ours() -> Sample:
    """Measure the gateway's source; as in a gateway, acknowledgements run beside the reading."""
    return Sample({RATE: asyncio.run(_by_source())})


def by_getmany() -> Sample:
    """Measure the limit: aiokafka's getmany, and msgspec, which makes no batch."""
    return Sample({RATE: asyncio.run(_by_getmany())})


ROW = Row(
    name="kafka",
    title="from Kafka to Arrow batches: JSON of 226 bytes",
    sides={OURS: ours, "getmany and msgspec": by_getmany},
    goals=(Goal(RATE, "getmany and msgspec", 0.85),),
    note="A real broker with 200,000 events in 4 partitions. 4 of 12 fields are needed.",
    around=around,
)
