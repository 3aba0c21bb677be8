"""A query that Spark carries by itself, beside plain Spark in both of its modes on the same core."""

from __future__ import annotations

import asyncio
import dataclasses
import tempfile
from functools import partial
from pathlib import Path

from suite.row import Row, SideError
from suite.tax.clock import (
    OWN_CPU,
    P50,
    P50_FEW,
    P99,
    P99_FEW,
    RATE,
    System,
    end,
    leave_cpu,
    log_told,
    new_topics,
    turn,
    warm_up,
)
from suite.tax.handover import until
from suite.tax.load import Work, long, scaled
from suite.tax.programs import gateway
from suite.tax.sides import MICRO, REAL, around, half_per_s, measured
from suite.turns import OURS, Goal, Sample

_FIRST, _WARM_UP = 100, 250_000
_QUERY = {"qos": {"latency": "10m"}}  # a bulk makes results late, and is no reason to take over


async def _turn(work: Work, system: System, log: Path) -> Sample:
    await warm_up(dataclasses.replace(work, warm_up=_FIRST), system)
    await until(lambda: "from now on" in log.read_text(), "Spark carries the query")
    more = dataclasses.replace(work, warm_up=scaled(_WARM_UP))
    await warm_up(more, system, before=_FIRST)
    found = await turn(work, system, half_per_s())
    if "takes over" in await asyncio.to_thread(log.read_text):
        raise SideError("the gateway took over")
    return found


def ours() -> Sample:
    """Measure a gateway, which is started for it."""
    work, topics = long(), asyncio.run(new_topics())
    with tempfile.TemporaryDirectory(prefix="spillway-bench-") as name:
        log = Path(name) / "log"
        # One of Spark's cores is real-time mode's; all of it runs on one CPU.
        process = gateway(Path(name), work, log, *topics, data_path="direct", master="local[2]", more=_QUERY)
        leave_cpu()
        try:
            with log_told(log):
                return asyncio.run(_turn(work, System(process.pid, *topics, is_gateway=True), log))
        finally:
            end(process)


ROW = Row(
    name="direct",
    title="Spark at home carries a query by itself, from Kafka to Kafka on one core",
    sides={OURS: ours, MICRO: partial(measured, "long", MICRO), REAL: partial(measured, "long", REAL)},
    goals=(
        Goal(RATE, REAL, 0.9),
        Goal(P50, REAL, 1.2, at_least=False),
        Goal(P99, REAL, 1.2, at_least=False),
        Goal(P50_FEW, REAL, 1.2, at_least=False),
        Goal(P99_FEW, REAL, 1.2, at_least=False),
        Goal(OWN_CPU, None, 1.0, at_least=False),
    ),
    note="data_path: direct; 600,000 events of the row light. Latency at half of what the slower mode of plain Spark "
    "took when warm; that of few events at 200 a second. Spillway is started for each turn and warmed up with 250,000 "
    "events. It has a checkpoint each 10 s, plain Spark in real-time mode one each 5 minutes.",
    around=partial(around, "long", (MICRO, REAL), (MICRO, REAL), batches=False),
    turns_most=2,
)
