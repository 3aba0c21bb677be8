"""A query from file to sink in a process of its own, with a host that answers at once: to be killed.

Usage: python gateway_process.py FOLDER; it ends by itself once all is committed.
"""

from __future__ import annotations

import asyncio
import random
import sys
from pathlib import Path

import pyarrow as pa
from gateway_doubles import INPUT, FakeHost, opened

from gateway import delivery
from gateway.deadletters import DeadLetterFile
from gateway.gate import ByteGate
from gateway.ingress import Ingress, RunLimits
from gateway.pipeline import Pipeline
from gateway.position import Position
from gateway.profiler import Profiler
from gateway.runlog import LogHead, RunLog
from gateway.sinks.file import FileSink
from gateway.sources.lines import LinesSource
from gateway.sources.threaded import ThreadedSource
from gateway.statistics import Tally
from infra.clock import SystemClock
from policies.signals import HOME

RETIRE_BYTES = 2_000


class SmallLog(RunLog):
    """A log that is rewritten often."""

    def retire(self, before_seq: int, *, rewrite_bytes: int = RETIRE_BYTES) -> None:
        super().retire(before_seq, rewrite_bytes=rewrite_bytes)


async def answer_all(host: FakeHost) -> None:
    """Answer runs in bunches, each bunch in another order."""
    answered = 0
    while True:
        await asyncio.sleep(0.002)
        new = host.runs[answered:]
        answered += len(new)
        random.shuffle(new)
        for run in new:
            host.consume(run)
            host.answer(run.first_seq, run.last_seq, [row["id"] for row in host.rows_of(run)])


async def acknowledge(position: Position) -> None:
    """A file needs none."""


async def main(folder: Path) -> None:
    clock = SystemClock()
    delivery.PART_S, delivery._TICK_S = 0.01, 0.005
    letters = DeadLetterFile(folder / "dead.jsonl")
    log = SmallLog(folder / "runs.log", LogHead("me", clock.wall()))
    sink = FileSink(folder / "out", owner="me", format="jsonl", ordered=True)
    gate = ByteGate(20_000)
    pipeline = Pipeline(
        "q",
        stateful=False,
        log=log,
        sink=opened(sink),
        dead_letters=letters,
        flush_s=0.02,
        ordered=True,
        gate=gate,
        profiler=Profiler(1.0, {"q": "mean"}),
        tally=Tally(),
        clock=clock,
        on_acknowledge=acknowledge,
        on_commit=lambda _: None,
        on_failed=lambda lane, reason: sys.exit(f"{lane}: {reason}"),
    )
    source = LinesSource(folder / "in.jsonl.gz", loops=2)
    source.open(pa.schema(list(INPUT)))
    ingress = Ingress(
        source=ThreadedSource(source),
        log=log,
        dead_letters=letters,
        schedule=None,
        limits=RunLimits(7, 1 << 20, 1.0),
        gate=gate,
        clock=clock,
        order_column=None,
        on_run=pipeline.offer,
    )
    hosts = [FakeHost(HOME), FakeHost("vm1")]
    for host in hosts:
        pipeline.add_lane(host.lane(pipeline, clock))
    pipeline.set_shares({HOME: 0.5, "vm1": 0.5})
    tasks = [asyncio.create_task(pipeline.run()), *(asyncio.create_task(answer_all(host)) for host in hosts)]
    await ingress.recover(sink.committed)
    await ingress.run()
    while not pipeline.idle:
        await asyncio.sleep(0.01)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await pipeline.close()
    source.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
