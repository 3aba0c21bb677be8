"""Feeds a system that reads one Kafka topic and writes another, and measures its throughput and latency."""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
import numpy as np
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from infra.together import end_tasks
from suite.brokers import BROKERS
from suite.row import SideError, lasts_s
from suite.taxload import LATEST, Work, answer, now
from suite.turns import Sample

RATE, P50, P99 = "events/s", "ms, median", "ms, 99 %"
_WITHIN_S = 240.0
_PACED_S, _SETTLES_S = 10.0, 2.0
_TICK_S = 0.002
_STOPS_S = 20.0


class Results:
    """What has come out of a topic, and when.

    Args:
        topic: of the results.
        process: the system that writes them.
    """

    def __init__(self, topic: str, process: subprocess.Popen[bytes]) -> None:
        self._topic = topic
        self._process = process
        self.rows: list[dict[str, object]] = []
        self.came_s: list[float] = []
        self._came = asyncio.Event()

    async def read(self) -> None:
        """Read until cancelled."""
        consumer = AIOKafkaConsumer(
            self._topic,
            bootstrap_servers=os.environ[BROKERS],
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            fetch_max_wait_ms=5,
        )
        await consumer.start()
        decoder = msgspec.json.Decoder(dict[str, object])
        try:
            while True:
                for records in (await consumer.getmany(timeout_ms=100)).values():
                    came_s = time.time()
                    self.rows += [decoder.decode(record.value) for record in records]
                    self.came_s += [came_s] * len(records)
                    self._came.set()
        finally:
            await consumer.stop()

    async def wait(self, count: int) -> float:
        """Return when so many results had come.

        Raises:
            SideError: the system ended, or took too long.
        """
        ends_s = time.monotonic() + _WITHIN_S
        while len(self.rows) < count:
            if self._process.poll() is not None or time.monotonic() > ends_s:
                raise SideError(f"{len(self.rows):,} of {count:,} results came; exit code {self._process.poll()}")
            self._came.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._came.wait(), 1.0)
        return self.came_s[count - 1]


async def _produce(producer: AIOKafkaProducer, topic: str, work: Work, first: int, events: int) -> None:
    for number in range(first, first + events):
        await producer.send(topic, work.event(number, number))


async def _paced(producer: AIOKafkaProducer, topic: str, work: Work, first: int) -> int:
    """Produce at an even rate; return how many events."""
    lasts = max(1.0, _PACED_S * min(1.0, lasts_s()))
    begun_s, sent = time.monotonic(), 0
    while (past_s := time.monotonic() - begun_s) < lasts:
        while sent < past_s * work.per_s:
            await producer.send(topic, work.event(now(), first + sent))
            sent += 1
        await asyncio.sleep(_TICK_S)
    return sent


async def make_topics(*topics: str) -> None:
    """Create topics of one partition."""
    admin = AIOKafkaAdminClient(bootstrap_servers=os.environ[BROKERS])
    await admin.start()
    await admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=1) for topic in topics])
    await admin.close()


async def fill(topic: str, work: Work, events: int) -> None:
    """Write events."""
    async with _producer() as producer:
        await _produce(producer, topic, work, 0, events)


async def first_result_s(topic: str, start: Callable[[], subprocess.Popen[bytes]]) -> float:
    """Start a system; return how long it takes until its first result, in seconds.

    Raises:
        SideError: it ended, or took too long.
    """
    begun_s = time.time()
    process = start()
    _leave_cpu()
    results = Results(topic, process)
    reading = asyncio.create_task(results.read())
    try:
        return await results.wait(1) - begun_s
    finally:
        process.terminate()
        await end_tasks(reading)
        _end(process)


def _producer() -> AIOKafkaProducer:
    return AIOKafkaProducer(bootstrap_servers=os.environ[BROKERS], linger_ms=1, max_batch_size=256 * 1024)


async def _measured(work: Work, start: Callable[[str, str], subprocess.Popen[bytes]]) -> Sample:
    name = uuid.uuid4().hex
    there, out = f"in-{name}", f"out-{name}"
    await make_topics(there, out)
    process = start(there, out)
    _leave_cpu()
    results = Results(out, process)
    reading = asyncio.create_task(results.read())
    try:
        async with _producer() as producer:
            await _produce(producer, there, work, 0, work.warm_up)
            await results.wait(work.results(work.warm_up))
            begun_s, both = time.time(), work.warm_up + work.bulk
            await _produce(producer, there, work, work.warm_up, work.bulk)
            bulk_s = await results.wait(work.results(both)) - begun_s
            paced = await _paced(producer, there, work, both)
            await results.wait(work.results(both + paced))
    finally:
        process.terminate()
        await end_tasks(reading)
        _end(process)
    middle_s, most_s = np.quantile(_latencies(results, work), [0.5, 0.99]).tolist()
    figures = {RATE: work.bulk / bulk_s, P50: 1e3 * middle_s, P99: 1e3 * most_s}
    return Sample(figures, answer(results.rows, work))


def measure(work: Work, start: Callable[[str, str], subprocess.Popen[bytes]], log: Path) -> Sample:
    """Measure a system; this process leaves its CPU to it.

    Args:
        work: what the system does.
        start: starts it; gets the topics of events and of results.
        log: its output.

    Raises:
        SideError: the system ended, or took too long.
    """
    with log_told(log):
        return asyncio.run(_measured(work, start))


@contextmanager
def log_told(log: Path) -> Iterator[None]:
    """Add the end of a log to what a ``SideError`` says."""
    try:
        yield
    except SideError as error:
        raise SideError(f"{error}\n{log.read_text(errors='replace')[-2000:]}") from None


def _latencies(results: Results, work: Work) -> np.ndarray:
    """Return the seconds from an event's production to its result, without those before the flow had settled."""
    timed = [
        (number / 1e6, came_s)
        for row, came_s in zip(results.rows, results.came_s, strict=True)
        if (number := work.number(row)) >= LATEST
    ]
    made_s, came_s = np.array(timed).T
    settled = made_s >= min(made_s.min() + _SETTLES_S, np.median(made_s))
    return np.asarray((came_s - made_s)[settled])


def _leave_cpu() -> None:
    if hasattr(os, "sched_setaffinity"):
        others = set(range(os.cpu_count() or 1)) - os.sched_getaffinity(0)
        os.sched_setaffinity(0, others or os.sched_getaffinity(0))


def _end(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(_STOPS_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
