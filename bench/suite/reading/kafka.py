"""Reading from a real Kafka broker, to Arrow batches."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import msgspec
import orjson
import pyarrow as pa
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer

from gateway.config.connectors.kafka import KafkaSourceConfig
from gateway.sources.kafka.kafkasource import KafkaSource
from infra.clock import SystemClock
from suite.brokers import BROKERS, broker
from suite.reading.decode import NEEDED, Reading, lines
from suite.row import ROOT, Row, SideError
from suite.turns import OURS, Goal, Sample
from tests.connectors.kafka_broker import Broker

EVENTS, PARTITIONS, READ_EVENTS, READ_BYTES = 200_000, 4, 20_000, 1 << 24
RATE = "events/s"
PEER, QUIX, FAUST = "confluent-kafka, orjson", "Quix Streams", "Faust"
_PROGRAMS, _ENVIRONMENT = Path(__file__).parent / "frameworks", ROOT / "build" / "frameworks"
_FRAMEWORK_S = 240.0
FAUST_EVENTS = 40_000
"""Faust takes half a minute for all."""
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


def by_confluent() -> Sample:
    """Measure librdkafka's consumer for Python with orjson, whose rows become batches; from its first event on."""
    settings = {
        "bootstrap.servers": os.environ[BROKERS],
        "group.id": str(uuid.uuid4()),
        "auto.offset.reset": "earliest",
    }
    consumer, batches, begun_s = Consumer(settings), Batches(), 0.0
    consumer.subscribe([os.environ[_TOPIC]])
    while batches.events < EVENTS:
        for message in consumer.consume(READ_EVENTS // 10, timeout=1.0):
            if message.error() is not None:
                raise SideError(str(message.error()))
            begun_s = begun_s or time.perf_counter()
            batches.add(orjson.loads(message.value()))
    took_s = time.perf_counter() - begun_s
    consumer.close()
    return Sample({RATE: EVENTS / took_s})


def _by_framework(program: str, events: int) -> Sample:
    python = _ENVIRONMENT / "bin" / "python"
    if not python.exists():
        raise SideError(f"{program} is missing: run make frameworks")
    command = [python, _PROGRAMS / program, os.environ[BROKERS], os.environ[_TOPIC], str(events)]
    try:
        with tempfile.TemporaryDirectory(prefix="spillway-bench-") as folder:
            done = subprocess.run([*command, folder], capture_output=True, text=True, timeout=_FRAMEWORK_S, check=True)
    except subprocess.CalledProcessError as error:
        raise SideError(f"{program}: exit code {error.returncode}\n{error.stderr[-2000:]}") from None
    except subprocess.TimeoutExpired:
        raise SideError(f"{program}: not done within {_FRAMEWORK_S:g} s") from None
    # Faust draws a spinner around it.
    said = re.search(r"^events/s: (\S+)$", done.stdout, re.MULTILINE)
    if said is None:
        raise SideError(f"{program} told no rate:\n{done.stdout[-2000:]}")
    return Sample({RATE: float(said[1])})


class Batches:
    """Collects the needed fields of events, and makes Arrow batches of them."""

    def __init__(self) -> None:
        self._rows: list[dict[str, object]] = []
        self.events = 0

    def add(self, row: dict[str, object]) -> None:
        """Add an event."""
        self._rows.append(row)
        self.events += 1
        if len(self._rows) == READ_EVENTS:
            pa.RecordBatch.from_pylist(self._rows, NEEDED)
            self._rows = []


ROW = Row(
    name="kafka",
    title="from Kafka to Arrow batches: JSON of 226 bytes",
    sides={
        OURS: ours,
        PEER: by_confluent,
        QUIX: partial(_by_framework, "quix.py", EVENTS),
        FAUST: partial(_by_framework, "fauststream.py", FAUST_EVENTS),
        "getmany and msgspec": by_getmany,
    },
    goals=(
        Goal(RATE, "getmany and msgspec", 0.85),
        Goal(RATE, PEER, 1.0),
        Goal(RATE, QUIX, 5.0),
        Goal(RATE, FAUST, 5.0),
    ),
    note="A real broker with 200,000 events in 4 partitions. 4 of 12 fields are needed. Quix Streams and Faust have "
    f"a Python environment of their own; Faust reads {FAUST_EVENTS:,}.",
    around=around,
)
