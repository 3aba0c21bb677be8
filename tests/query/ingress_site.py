"""An ingress with a source and a run log that its tests drive."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from gateway.core.intervals import IntervalSet
from gateway.journal.deadletters import DeadLetterFile
from gateway.query.flow.ingress import Ingress, RunLimits
from gateway.query.flow.memory import MemoryPool
from gateway.query.flow.run import Run
from gateway.query.flow.runlog import LogHead, RunLog
from gateway.query.flow.selecting.selector import selector_for
from gateway.sources.base import BlockingSource, Chunk
from gateway.sources.files.table import TableSource
from gateway.sources.schedule import Schedule
from gateway.sources.threaded import ThreadedSource
from infra.messages import SelectionRule
from tests.support.gateway_doubles import ManualClock

SCHEMA = pa.schema([("n", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
EPOCH = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
ROW_BYTES = 16
PLENTY = RunLimits(max_events=1000, max_bytes=1 << 30, linger_s=1000.0)


def table_source(count: int, times: list[int | None] | None = None) -> BlockingSource:
    seconds = list(range(count)) if times is None else times
    at = [None if s is None else EPOCH + dt.timedelta(seconds=s) for s in seconds]
    source = TableSource(lambda: pa.table({"n": range(count), "at": at}, schema=SCHEMA))
    source.open(SCHEMA)
    return source


class Trickle(TableSource):
    """Never has more events available than were read."""

    def read(self, max_records: int, max_bytes: int) -> Chunk | None:
        chunk = super().read(max_records, max_bytes)
        return chunk and replace(chunk, more=False)


class Site:
    """A query's ingress with files on disk; ``started`` may be called again, as after a kill."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = ManualClock()
        self.memory = MemoryPool(1 << 31).share()
        self.runs: list[Run] = []
        self.waiting_runs, self.served_per_s = 0, 0.0
        self.dead_letters = DeadLetterFile(folder / "dead.jsonl")

    @asynccontextmanager
    async def started(
        self,
        source: BlockingSource,
        *,
        limits: RunLimits = PLENTY,
        rate: float | None = None,
        order_column: str | None = None,
        done: IntervalSet | None = None,
        run: bool = True,
        on_run: Callable[[Run], None] | None = None,
        rule: SelectionRule | None = None,
    ) -> AsyncIterator[Ingress]:
        log = RunLog(self.folder / "runs.log", LogHead("me", self.clock.wall()))
        self.log = log
        committed_before = 0 if done is None else done.watermark()
        ingress = Ingress(
            source=ThreadedSource(source),
            log=log,
            dead_letters=self.dead_letters,
            schedule=None if rate is None else Schedule([(1.0, rate)]),
            limits=limits,
            memory=self.memory,
            clock=self.clock,
            order_column=order_column,
            on_run=on_run or self.runs.append,
            backlog=lambda _: (self.waiting_runs, self.served_per_s),
            selector=selector_for(rule, None, log, committed_before, 0, 1 << 30),
        )
        task = None
        try:
            await ingress.recover(done or IntervalSet())
            if run:
                task = asyncio.create_task(ingress.run())
            yield ingress
            if task is not None and task.done():
                task.result()
        finally:
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            log.close(rewrite=False)  # as a kill would
            source.close()

    def cut(self) -> list[tuple[int, int]]:
        return [(run.first_seq, run.last_seq) for run in self.runs]


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)
