"""Feeds a system that reads one Kafka topic and writes another, and measures its throughput and latency."""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
import psutil
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from confluent_kafka import Producer

from infra.together import end_tasks
from suite.brokers import BROKERS
from suite.row import SideError, lasts_s
from suite.tax.load import LATEST, Work, answer, now
from suite.turns import Sample

RATE, P50, P99 = "events/s", "ms, median", "ms, 99 %"
P50_FEW, P99_FEW = "ms, median, few events", "ms, 99 %, few events"
OWN_CPU = "us of CPU an event, the gateway's process"
_WITHIN_S = 240.0
_SETTLES_S = 1.5
_TICK_S = 0.002
_STOPS_S = 20.0


class Results:
    """What has come out of a topic of one partition, and when.

    Args:
        topic: of the results.
        is_alive: whether the system still runs that writes them.
        only_new: leave out what is there already.
    """

    def __init__(self, topic: str, is_alive: Callable[[], bool], *, only_new: bool = False) -> None:
        self._partition = TopicPartition(topic, 0)
        self._is_alive, self._only_new = is_alive, only_new
        self._came, self._reads = asyncio.Event(), asyncio.Event()
        self.forget()

    def forget(self) -> None:
        """Forget what has come."""
        self.rows: list[dict[str, object]] = []
        self.came_s: list[float] = []

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[Results]:
        """Read until the block ends."""
        task = asyncio.create_task(self._read())
        try:
            async with asyncio.timeout(_WITHIN_S):
                await self._reads.wait()
            yield self
        finally:
            await end_tasks(task)

    async def _read(self) -> None:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=os.environ[BROKERS], isolation_level="read_committed", fetch_max_wait_ms=5
        )
        await consumer.start()
        consumer.assign([self._partition])
        await (consumer.seek_to_end() if self._only_new else consumer.seek_to_beginning())
        await consumer.position(self._partition)
        self._reads.set()
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

    async def wait(self, count: int, within_s: float = _WITHIN_S) -> float:
        """Return when so many results had come.

        Raises:
            SideError: the system ended, or took too long.
        """
        ends_s = time.monotonic() + within_s
        while len(self.rows) < count:
            if not self._is_alive() or time.monotonic() > ends_s:
                ended = "" if self._is_alive() else ", and then the system ended"
                raise SideError(f"{len(self.rows):,} of {count:,} results came{ended}")
            self._came.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._came.wait(), 1.0)
        return self.came_s[count - 1]


def _produce(topic: str, work: Work, events: int) -> None:
    """Write events much faster than any system reads them, with librdkafka's producer.

    Raises:
        SideError: the broker does not take them in time.
    """
    producer = Producer({"bootstrap.servers": os.environ[BROKERS], "linger.ms": 5, "batch.size": 256 * 1024})
    for number in range(events):
        while True:
            try:
                producer.produce(topic, work.event(number, number))
                break
            except BufferError:
                producer.poll(0.01)
    if left := producer.flush(_WITHIN_S):
        raise SideError(f"the broker has not taken {left:,} of {events:,} events")


async def pour(work: Work, system: System, per_s: float) -> int:
    """Send a system events at an even rate, and wait for their results; return how many events.

    Raises:
        SideError: it ended, or took too long.
    """
    async with Results(system.results, system.is_alive, only_new=True).reading() as results, _producer() as producer:
        events = await _paced(producer, system.events, work, 0, per_s)
        await results.wait(work.results(events))
    return events


async def _paced(producer: AIOKafkaProducer, topic: str, work: Work, first: int, per_s: float) -> int:
    """Produce at an even rate; return how many events."""
    lasts = max(1.0, work.paced_s * min(1.0, lasts_s()))
    begun_s, sent = time.monotonic(), 0
    while (past_s := time.monotonic() - begun_s) < lasts:
        while sent < past_s * per_s:
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
    await asyncio.to_thread(_produce, topic, work, events)


async def first_result(topic: str, is_alive: Callable[[], bool]) -> float:
    """Return when the first result came, in seconds since the epoch.

    Raises:
        SideError: the system ended, or took too long.
    """
    async with Results(topic, is_alive).reading() as results:
        return await results.wait(1)


def _producer() -> AIOKafkaProducer:
    return AIOKafkaProducer(bootstrap_servers=os.environ[BROKERS], linger_ms=1, max_batch_size=256 * 1024)


def is_alive(pid: int) -> bool:
    """Return whether a process runs."""
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


@dataclass(frozen=True, slots=True)
class System:
    """A system that reads one topic and writes another.

    Attributes:
        pid: its process.
        events: the topic that it reads.
        results: the topic that it writes.
        is_gateway: whether the CPU of that process alone is a figure, too.
    """

    pid: int
    events: str
    results: str
    is_gateway: bool = False

    def is_alive(self) -> bool:
        """Return whether it runs."""
        return is_alive(self.pid)


def _own_cpu_s(pid: int) -> float:
    """Return how much CPU a process has used, without its children."""
    return float(sum(psutil.Process(pid).cpu_times()[:2]))


async def new_topics() -> tuple[str, str]:
    """Return a new topic for events, and one for their results; the second is named as MirrorMaker names a copy."""
    events = f"in-{uuid.uuid4().hex}"
    await make_topics(events, f"out-{events}")
    return events, f"out-{events}"


async def warm_up(work: Work, system: System, before: int = 0) -> None:
    """Send a system the events before those that are measured, and wait for their results; it has had ``before``."""
    async with Results(system.results, system.is_alive).reading() as results:
        await fill(system.events, work, work.warm_up)
        await results.wait(work.results(before) + work.results(work.warm_up))


async def turn(work: Work, system: System, per_s: float = 0.0) -> Sample:
    """Measure a system that has answered everything so far.

    Args:
        work: what the system does.
        system: it runs, and is warm.
        per_s: events/s while latency is measured; 0: it is not.

    Raises:
        SideError: it ended, or took too long.
    """
    async with Results(system.results, system.is_alive, only_new=True).reading() as results, _producer() as producer:
        settle = work.bulk // 10
        await fill(system.events, work, settle)
        await results.wait(work.results(settle))
        results.forget()
        begun_s, begun_cpu_s = time.time(), _own_cpu_s(system.pid)
        await fill(system.events, work, work.bulk)
        bulk_s = await results.wait(work.results(work.bulk)) - begun_s
        figures = {RATE: work.bulk / bulk_s}
        if system.is_gateway:
            figures[OWN_CPU] = 1e6 * (_own_cpu_s(system.pid) - begun_cpu_s) / work.bulk
        answered = answer(results.rows, work)
        paces = ((per_s, P50, P99), (work.few_per_s if per_s else 0.0, P50_FEW, P99_FEW))
        for pace_per_s, middle, most in paces:
            if pace_per_s:
                results.forget()
                paced = await _paced(producer, system.events, work, 0, pace_per_s)
                await results.wait(work.results(paced))
                middle_s, most_s = np.quantile(_latencies(results, work), [0.5, 0.99]).tolist()
                figures |= {middle: 1e3 * middle_s, most: 1e3 * most_s}
    return Sample(figures, answered)


def measure(work: Work, start: Callable[[str, str], subprocess.Popen[bytes]], log: Path) -> Sample:
    """Start a system, warm it up, measure it once, and end it; this process leaves its CPU to it.

    Args:
        work: what the system does.
        start: starts it; gets the topics of events and of results.
        log: its output.

    Raises:
        SideError: the system ended, or took too long.
    """
    topics = asyncio.run(new_topics())
    process = start(*topics)
    leave_cpu()
    system = System(process.pid, *topics)
    try:
        with log_told(log):
            asyncio.run(warm_up(work, system))
            return asyncio.run(turn(work, system))
    finally:
        end(process)


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


def leave_cpu() -> None:
    """Run this process on another CPU than the system that it has started."""
    if hasattr(os, "sched_setaffinity"):
        others = set(range(os.cpu_count() or 1)) - os.sched_getaffinity(0)
        os.sched_setaffinity(0, others or os.sched_getaffinity(0))


def end(process: subprocess.Popen[bytes]) -> None:
    """Terminate a system and wait for all its processes; kill what takes too long.

    The JVM of a plain Spark program outlives its Python by a moment, and still writes checkpoints meanwhile.
    """
    family: list[psutil.Process] = []
    with suppress(psutil.NoSuchProcess):
        family = psutil.Process(process.pid).children(recursive=True)
    process.terminate()
    try:
        process.wait(_STOPS_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for late in psutil.wait_procs(family, _STOPS_S)[1]:
        with suppress(psutil.NoSuchProcess):
            late.kill()
    psutil.wait_procs(family, _STOPS_S)
