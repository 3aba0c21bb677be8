"""How long results pause while the gateway takes a query over from Spark, and while Spark carries it again."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import psutil
from aiokafka import AIOKafkaProducer

from suite.brokers import BROKERS
from suite.row import Row, SideError, lasts_s
from suite.tax.clock import Results, end, fill, leave_cpu, log_told, new_topics
from suite.tax.load import Work, light, now
from suite.tax.programs import around, gateway
from suite.turns import OURS, Goal, Sample

TAKES_OVER, CARRIES = "s without a result, the gateway takes over", "s without a result, Spark carries it again"
CPU, CPU_GATEWAY = "us of CPU an event, gateway, Spark carries it", "us of CPU an event, gateway, by the gateway"
RATE_PER_S = 500
_TICK_S, _POLL_S, _WITHIN_S, _STEADY_S = 0.01, 0.1, 180.0, 8.0
_NO_EVENT = b"{no JSON"


class _Load:
    """Sends events at an even rate until it is stopped."""

    def __init__(self, work: Work, topic: str, producer: AIOKafkaProducer) -> None:
        self._work, self._topic, self._producer = work, topic, producer
        self.sent = 0

    async def run(self) -> None:
        begun_s = time.monotonic()
        while True:
            while self.sent < (time.monotonic() - begun_s) * RATE_PER_S:
                await self._producer.send(self._topic, self._work.event(now(), self.sent))
                self.sent += 1
            await asyncio.sleep(_TICK_S)

    async def spoil(self) -> None:
        """Send a record that is no event."""
        await self._producer.send_and_wait(self._topic, _NO_EVENT)


async def until(holds: Callable[[], bool], what: str) -> None:
    """Return once it holds.

    Raises:
        SideError: it does not hold in time.
    """
    ends_s = time.monotonic() + _WITHIN_S
    while not holds():
        if time.monotonic() > ends_s:
            raise SideError(f"not within {_WITHIN_S:g} s: {what}")
        await asyncio.sleep(_POLL_S)


def _longest_s(came_s: list[float], from_s: float, until_s: float) -> float:
    times = [from_s, *(each for each in came_s if from_s <= each <= until_s), until_s]
    return max(later - before for before, later in pairwise(times))


async def _measured(work: Work, topics: tuple[str, str], pid: int, log: Path) -> Sample:
    def carried(times: int) -> Callable[[], bool]:
        return lambda: log.read_text().count("from now on") >= times

    async def cpu_us(load: _Load) -> float:
        used_s, sent = sum(psutil.Process(pid).cpu_times()[:2]), load.sent
        await asyncio.sleep(max(1.0, _STEADY_S * min(1.0, lasts_s())))
        return 1e6 * (sum(psutil.Process(pid).cpu_times()[:2]) - used_s) / (load.sent - sent)

    brokers = os.environ[BROKERS]
    async with (
        Results(topics[1], lambda: psutil.pid_exists(pid)).reading() as results,
        AIOKafkaProducer(bootstrap_servers=brokers, linger_ms=1) as producer,
        asyncio.TaskGroup() as group,
    ):
        load = _Load(work, topics[0], producer)
        sending = group.create_task(load.run())
        await until(carried(1), "Spark carries the query")
        by_spark = await cpu_us(load)
        spoilt_s = time.time()
        await load.spoil()
        await until(lambda: "the gateway takes over" in log.read_text(), "the gateway takes over")
        by_gateway = await cpu_us(load)
        taken_s = time.time()
        await until(carried(2), "Spark carries the query again")
        await asyncio.sleep(_STEADY_S)
        sending.cancel()
    return Sample(
        {
            TAKES_OVER: _longest_s(results.came_s, spoilt_s, taken_s),
            CARRIES: _longest_s(results.came_s, taken_s, time.time() - _STEADY_S / 2),
            CPU: by_spark,
            CPU_GATEWAY: by_gateway,
        }
    )


def ours() -> Sample:
    """Measure a gateway whose query gets a record that is no event."""
    work, topics = light(), asyncio.run(new_topics())
    asyncio.run(fill(topics[0], work, 100))
    with tempfile.TemporaryDirectory(prefix="spillway-bench-") as name:
        log = Path(name) / "log"
        process = gateway(Path(name), work, log, *topics, data_path="direct", master="local[2]")
        leave_cpu()
        try:
            with log_told(log):
                return asyncio.run(_measured(work, topics, process.pid, log))
        finally:
            end(process)


ROW = Row(
    name="handover",
    title="a query is handed over between Spark and the gateway",
    sides={OURS: ours},
    goals=(Goal(TAKES_OVER, None, 2.0, at_least=False), Goal(CARRIES, None, 2.0, at_least=False)),
    note=f"data_path: direct, {RATE_PER_S} events/s, real-time mode on one core. A record that is no event makes the "
    "gateway take over; after 15 s Spark carries the query again. The longest time between two results.",
    around=around,
    turns_most=2,
)
