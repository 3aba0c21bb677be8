"""What a query costs that has nothing to do: memory and CPU, in the gateway and in its engine host with Spark."""

from __future__ import annotations

import asyncio
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

from suite.row import Row, lasts_s
from suite.tax.clock import Results, end, fill, leave_cpu, log_told, new_topics
from suite.tax.load import light
from suite.tax.programs import around, gateway_of, query
from suite.turns import OURS, Goal, Sample

QUERIES = 200
MEMORY, CPU, HOST_CPU = "MB a query, gateway", "% of a core a query, gateway", "% of a core a query, host"
_SETTLES_S, _MEASURED_S = 10.0, 20.0
_ANSWERS_WITHIN_S = 600.0
_MB = 1e6


@dataclass(frozen=True, slots=True)
class _Used:
    """What processes use: memory of the gateway, CPU of the gateway, and of the host with Spark's processes."""

    gateway_bytes: float
    gateway_cpu: float
    host_cpu: float


def _cpu_s(processes: list[psutil.Process]) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in processes if process.is_running())


def _watched(gateway: psutil.Process, for_s: float) -> _Used:
    host = gateway.children(recursive=True)
    begun_s, before_s, host_before_s = time.monotonic(), _cpu_s([gateway]), _cpu_s(host)
    time.sleep(for_s)
    past_s = time.monotonic() - begun_s
    gateway_cpu, host_cpu = (_cpu_s([gateway]) - before_s) / past_s, (_cpu_s(host) - host_before_s) / past_s
    return _Used(gateway.memory_full_info().uss, gateway_cpu, host_cpu)


async def _until_all_answer(topic: str, process: subprocess.Popen[bytes], results: int) -> None:
    async with Results(topic, lambda: process.poll() is None).reading() as found:
        await found.wait(results, _ANSWERS_WITHIN_S)


def _idle(queries: int) -> _Used:
    work = light()
    events, results = asyncio.run(new_topics())
    asyncio.run(fill(events, work, 100))
    with tempfile.TemporaryDirectory(prefix="spillway-bench-") as name:
        log = Path(name) / "log"
        # A name is that of a consumer group, in which a gateway that has ended stays a member for a while.
        names = [f"q{at:03}-of-{queries}" for at in range(queries)]
        all_queries: Mapping[str, object] = {each: query(work, events, results) for each in names}
        process = gateway_of(Path(name), all_queries, log)
        leave_cpu()
        try:
            with log_told(log):
                asyncio.run(_until_all_answer(results, process, queries * work.results(100)))
            part = min(1.0, lasts_s())
            time.sleep(_SETTLES_S * part)
            return _watched(psutil.Process(process.pid), max(1.0, _MEASURED_S * part))
        finally:
            end(process)


def ours() -> Sample:
    """Measure a gateway with one query and with many; what the others add, by query."""
    more = max(2, int(QUERIES * min(1.0, lasts_s())))
    one, many = _idle(1), _idle(more)
    return Sample(
        {
            MEMORY: (many.gateway_bytes - one.gateway_bytes) / _MB / (more - 1),
            CPU: 100 * (many.gateway_cpu - one.gateway_cpu) / (more - 1),
            HOST_CPU: 100 * (many.host_cpu - one.host_cpu) / (more - 1),
        }
    )


ROW = Row(
    name="idle",
    title="queries without events: what each costs, of 200 in one gateway",
    sides={OURS: ours},
    goals=(
        Goal(MEMORY, None, 3.0, at_least=False),
        Goal(CPU, None, 0.2, at_least=False),
        Goal(HOST_CPU, None, 0.5, at_least=False),
    ),
    note="200 queries that read one Kafka topic, and one query; the difference for each of the other 199. All have "
    "answered 100 events; then nothing comes for 30 s, of which the last 20 are measured.",
    around=around,
    turns_most=1,
    side_s=900.0,
)
