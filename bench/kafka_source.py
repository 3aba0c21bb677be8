"""The rate at which the Kafka source decodes JSON records, compared with a ``getmany`` loop that only counts them.

Needs the tests' broker (``.ci/broker``). Prints events per second of each, in turn, and their ratio.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import tempfile
import time
import uuid
from pathlib import Path

import pyarrow as pa
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from gateway.config.connectors.kafka import KafkaSourceConfig
from gateway.sources.kafka.kafkasource import KafkaSource
from infra.clock import SystemClock

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.connectors.kafka_broker import Broker

COUNT = 200_000
ROUNDS = 3
PARTITIONS = 4
SCHEMA = pa.schema([("id", pa.string()), ("n", pa.int64()), ("value", pa.float64()), ("text", pa.string())])


async def fill(broker: Broker, topic: str) -> None:
    """Write small JSON objects."""
    producer = AIOKafkaProducer(bootstrap_servers=broker.brokers, linger_ms=5, max_batch_size=256 * 1024)
    await producer.start()
    for n in range(COUNT):
        value = json.dumps({"id": f"id-{n}", "n": n, "value": n / 7, "text": "x" * 60}).encode()
        await producer.send(topic, value, partition=n % PARTITIONS)
    await producer.stop()


async def plain(broker: Broker, topic: str, max_records: int) -> float:
    """Return records per second of ``getmany``."""
    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=broker.brokers,
        group_id=f"plain-{uuid.uuid4()}",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
    )
    await consumer.start()
    began_s = time.perf_counter()
    count = 0
    while count < COUNT:
        found = await consumer.getmany(timeout_ms=50, max_records=max_records)
        count += sum(map(len, found.values()))
    took_s = time.perf_counter() - began_s
    await consumer.stop()
    return count / took_s


async def source(broker: Broker, topic: str, max_records: int) -> float:
    """Return events per second of the source; as in a gateway, acknowledgements run beside the reading."""
    name = str(uuid.uuid4())
    config = KafkaSourceConfig(type="kafka", brokers=broker.brokers, topics=(topic,), group=name)
    reader = KafkaSource(config, query="bench", owner=name, clock=SystemClock())
    await reader.open(SCHEMA)
    while reader.backlog() is None:
        await reader.read(1, 1)
    began_s = time.perf_counter()
    count = 0
    telling = asyncio.create_task(asyncio.sleep(0))
    while count < COUNT - 10:
        chunk = await reader.read(max_records, 1 << 24)
        if chunk is not None:
            count += chunk.batch.num_rows
            if telling.done():
                telling = asyncio.create_task(reader.acknowledge(chunk.end))
    await telling
    took_s = time.perf_counter() - began_s
    await reader.close()
    return count / took_s


async def main() -> None:
    """Measure both in turn."""
    with tempfile.TemporaryDirectory() as folder:
        broker = Broker(Path(folder) / "kafka")
        broker.start()
        try:
            topic = await broker.create_topic(partitions=PARTITIONS)
            await fill(broker, topic)
            for max_records in (2000, 20_000):
                peers, ours = [], []
                for _ in range(ROUNDS):
                    peers.append(await plain(broker, topic, max_records))
                    ours.append(await source(broker, topic, max_records))
                peer, our = statistics.median(peers), statistics.median(ours)
                print(f"{max_records} a read: getmany {peer:,.0f}/s, source {our:,.0f}/s, ratio {our / peer:.2f}")
        finally:
            broker.stop()


if __name__ == "__main__":
    asyncio.run(main())
