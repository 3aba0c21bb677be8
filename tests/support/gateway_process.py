"""A query from file to sink in a separate process, with a host that answers at once; tests kill or starve it.

Usage: python gateway_process.py FOLDER [poison|replay]; it ends by itself once all is committed, and prints when an
outage begins and ends. With ``poison`` every tenth event fails its query. With ``replay`` the dead letters are
replayed, once, when everything else is done.
"""

from __future__ import annotations

import asyncio
import random
import sys
from pathlib import Path

import pyarrow as pa

from gateway.core.decide.profiler import Profiler
from gateway.core.exchange import ExchangeSettings
from gateway.journal.deadletters import DeadLetterFile
from gateway.query.flow.delivery import HELD_BYTES_MAX, Pace
from gateway.query.flow.ingress import Ingress, RunLimits
from gateway.query.flow.memory import MemoryPool
from gateway.query.flow.pipeline import Pipeline
from gateway.query.flow.runlog import LogHead, RunLog
from gateway.query.flow.statistics import Tally
from gateway.sinks.parts.filesink import FileSink
from gateway.sources.replayed import ReplayFiles, WithReplays
from gateway.sources.threaded import ThreadedSource
from infra.clock import SystemClock
from infra.messages import Poison
from policies.failures.overdue import Patience
from policies.failures.poison import BadRows
from policies.signals import HOME
from tests.support.gateway_doubles import INPUT, FakeHost, opened
from tests.support.source_data import LinesSource

RETIRE_BYTES = 2_000


class SmallLog(RunLog):
    """A log that is rewritten often."""

    def retire(self, before_seq: int, *, rewrite_bytes: int = RETIRE_BYTES) -> None:
        super().retire(before_seq, rewrite_bytes=rewrite_bytes)


async def answer_all(host: FakeHost, *, poison: bool) -> None:
    """Answer runs in groups, each group in another order."""
    answered = 0
    while True:
        await asyncio.sleep(0.002)
        new = host.runs[answered:]
        answered += len(new)
        random.shuffle(new)
        for run in new:
            host.consume(run)
            ids = [row["id"] for row in host.rows_of(run)]
            bad = [i for i, number in enumerate(ids) if poison and number % 10 == 5]
            good = [number for i, number in enumerate(ids) if i not in bad]
            host.answer(run.first_seq, run.last_seq, good, [Poison(row=i, reason="it is poison") for i in bad])


async def tell_trouble(ingress: Ingress, pipeline: Pipeline) -> None:
    """Print each change."""
    told = ""
    while True:
        now = ingress.trouble or pipeline.trouble
        if bool(now) != bool(told):
            print(f"trouble: {now}" if now else "well", flush=True)
        told = now
        await asyncio.sleep(0.005)


async def replay(folder: Path, letters: DeadLetterFile, source: WithReplays, pipeline: Pipeline) -> None:
    """Request a replay of the dead letters once everything else is committed, unless that was done before."""
    while not pipeline.idle:
        await asyncio.sleep(0.01)
    if not (folder / "asked").exists():
        letters.move_out(folder / "replay", pipeline.committed_before)
        await source.look()
        (folder / "asked").touch()


class Owner:
    """Ends the process when the query fails."""

    def __init__(self, source: WithReplays) -> None:
        self.on_acknowledge = source.acknowledge

    def on_commit(self, last_seq: int) -> None:
        """Nothing follows from a commit."""

    def on_failed(self, lane: str, reason: str) -> None:
        sys.exit(f"{lane}: {reason}")

    def on_broken(self, reason: str, exhausted: bool) -> None:
        sys.exit(f"{reason} (exhausted: {exhausted})")

    def on_overdue(self, reason: str) -> None:
        sys.exit(reason)


async def main(folder: Path, mode: str) -> None:
    clock = SystemClock()
    letters = DeadLetterFile(folder / "dead.jsonl")
    log = SmallLog(folder / "runs.log", LogHead("me", clock.wall()))
    sink = FileSink(folder / "out", owner="me", format="jsonl", ordered=True)
    memory = MemoryPool(40_000).share()
    lines = ThreadedSource(LinesSource(folder / "in.jsonl.gz", loops=2))
    source = WithReplays(lines, ReplayFiles(folder / "replay"))
    pipeline = Pipeline(
        "q",
        ExchangeSettings(patience=Patience(), flush_s=0.02, held_bytes_max=HELD_BYTES_MAX),
        Owner(source),
        log=log,
        sink=opened(sink),
        dead_letters=letters,
        bad_rows=BadRows(0.2),
        memory=memory,
        profiler=Profiler(1.0, {"q": "mean"}),
        tally=Tally(),
        clock=clock,
        pace=Pace(part_s=0.01, tick_s=0.005),
    )
    await source.open(pa.schema(list(INPUT)))
    ingress = Ingress(
        source=source,
        log=log,
        dead_letters=letters,
        schedule=None,
        limits=RunLimits(7, 1 << 20, 1.0),
        memory=memory,
        clock=clock,
        order_column=None,
        on_run=pipeline.offer,
        backlog=lambda batch_runs: (pipeline.queued_runs(batch_runs), 0.0),
    )
    hosts = [FakeHost(HOME), FakeHost("vm1")]
    for host in hosts:
        pipeline.parts[0].add_lane(host.lane(pipeline.parts[0], clock))
    pipeline.set_shares({HOME: 0.5, "vm1": 0.5})
    tasks = [
        asyncio.create_task(pipeline.run()),
        *(asyncio.create_task(answer_all(host, poison=mode == "poison")) for host in hosts),
    ]
    tasks.append(asyncio.create_task(tell_trouble(ingress, pipeline)))
    await ingress.recover(sink.committed)
    await ingress.run()
    if mode == "replay":
        await replay(folder, letters, source, pipeline)
        await ingress.run()
    while not pipeline.idle:
        await asyncio.sleep(0.01)
    await pipeline.forget_committed()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await pipeline.close()
    await source.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), "".join(sys.argv[2:])))
