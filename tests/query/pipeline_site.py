"""A pipeline with hosts and a sink that its tests drive."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.connectors.position import Position
from gateway.core.decide.profiler import Profiler
from gateway.core.exchange import ExchangeSettings
from gateway.journal.deadletters import DeadLetterFile
from gateway.query.flow.delivery import HELD_BYTES_MAX
from gateway.query.flow.dispatcher import Watch
from gateway.query.flow.keyed.together import Division
from gateway.query.flow.memory import MemoryPool, MemoryShare
from gateway.query.flow.pipeline import Pipeline
from gateway.query.flow.run import Run
from gateway.query.flow.runlog import LogHead, RunLog, RunRecord
from gateway.query.flow.statistics import Tally
from gateway.sinks.parts.filesink import FileSink
from policies.failures.overdue import Patience
from policies.failures.poison import BadRows
from tests.support.file_parts import parts
from tests.support.gateway_doubles import FakeHost, ManualClock, events, opened
from tests.support.waiting import until


class Query:
    """A pipeline with hosts that the test controls, and its sink and log on disk."""

    def __init__(
        self,
        folder: Path,
        *,
        stateful: bool = False,
        flush_s: float | None = 30.0,
        ordered: bool = True,
        held_bytes_max: int = HELD_BYTES_MAX,
        memory: MemoryShare | None = None,
        division: Division | None = None,
        watching: Callable[[int | None], Watch | None] = lambda _: None,
    ) -> None:
        self.folder = folder
        self.clock = ManualClock()
        self.memory = memory or MemoryPool(1 << 31).share()
        self.log = RunLog(folder / "runs.log", LogHead("me", self.clock.wall()))
        self.sink = FileSink(folder / "out", owner="me", format="jsonl", ordered=ordered)
        self.letters = DeadLetterFile(folder / "dead.jsonl")
        self.profiler = Profiler(1.0, {"q": "mean"})
        self.committed: list[int] = []
        self.acknowledged: list[int] = []
        self.failed: list[tuple[str, str]] = []
        self.broken: list[str] = []
        self.overdue: list[str] = []
        self.hosts: dict[str, FakeHost] = {}
        self.all_hosts: list[FakeHost] = []
        settings = ExchangeSettings(
            patience=Patience(), home_only=stateful, ordered=ordered, flush_s=flush_s, held_bytes_max=held_bytes_max
        )
        self.pipeline = Pipeline(
            "q",
            settings,
            self,
            log=self.log,
            sink=opened(self.sink),
            dead_letters=self.letters,
            bad_rows=BadRows(0.2),
            memory=self.memory,
            profiler=self.profiler,
            tally=Tally(),
            clock=self.clock,
            division=division,
            watching=watching,
        )

    async def on_acknowledge(self, position: Position) -> None:
        self.acknowledged.append(position.record)

    def on_commit(self, last_seq: int) -> None:
        self.committed.append(last_seq)

    def on_failed(self, lane: str, reason: str) -> None:
        self.failed.append((lane, reason))

    def on_broken(self, reason: str, exhausted: bool) -> None:
        self.broken.append(reason)

    def on_overdue(self, reason: str) -> None:
        self.overdue.append(reason)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.pipeline.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await self.pipeline.close()
            for host in self.all_hosts:
                await host.connection.close("test over")

    def add_host(self, name: str, part: int = 0, **kwargs: Any) -> FakeHost:
        host = FakeHost(name, **kwargs)
        self.hosts[name] = host
        self.all_hosts.append(host)
        dispatcher = self.pipeline.parts[part]
        dispatcher.add_lane(host.lane(dispatcher, self.clock))
        return host

    def offer(self, first: int, last: int, *, disordered: bool = False) -> None:
        """The ingress's action for a run."""
        batch = events(first, last)
        run = Run(first, last, batch, self.clock.now(), batch.nbytes, disordered=disordered)
        if first >= self.log.next_seq:
            self.log.append([RunRecord(first, last, Position(first), Position(last + 1), self.clock.wall())])
        self.memory.take(run.raw_bytes)
        self.pipeline.offer(run)

    def offer_unlogged(self, first: int, last: int) -> None:
        """The same, with a disk that accepts no write."""
        batch = events(first, last)
        run = Run(first, last, batch, self.clock.now(), batch.nbytes)
        self.memory.take(run.raw_bytes)
        self.pipeline.offer(run)

    async def pass_time(self, seconds: float) -> None:
        """Let the pipeline tick for this much time."""
        end_s = self.clock.now() + seconds
        await until(lambda: self.clock.now() >= end_s, self.clock, 0.1)

    async def all_committed(self) -> None:
        await until(lambda: self.pipeline.idle, self.clock, 0.1)

    def rows(self) -> list[dict[str, Any]]:
        folder = self.folder / "out"
        return [json.loads(text) for name in parts(folder) for text in (folder / name).read_text().splitlines()]

    def ids(self) -> list[int]:
        return [row["id"] for row in self.rows()]


@pytest.fixture
def query(tmp_path: Path) -> Query:
    return Query(tmp_path)


async def serve(host: FakeHost, *, consume: bool = True) -> None:
    """Answer every run as it comes."""
    served = 0
    while True:
        await until(lambda served=served: len(host.runs) > served)  # type: ignore[misc]
        run = host.runs[served]
        served += 1
        if consume:
            host.consume(run)
        host.answer(run.first_seq, run.last_seq)


@asynccontextmanager
async def serving(*hosts: FakeHost) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(serve(host)) for host in hosts]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
