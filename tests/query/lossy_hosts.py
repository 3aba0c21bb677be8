"""Engine hosts behind links that lose frames, and a query that runs on them."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gateway.config import load
from gateway.core.decide.profiler import Profiler
from gateway.hosts.connection import Connection
from gateway.hosts.enrol import dial
from gateway.query.flow.memory import MemoryPool
from gateway.query.running import PATIENCE, RunningQuery
from infra.clock import SystemClock
from infra.link.keys.trust import Authority, UserData, new_token
from policies.failures.overdue import Patience
from tests.query.one_query import CONFIG
from tests.support.file_parts import parts
from tests.support.waiting import until

SEED = int(os.environ.get("SPILLWAY_FAULT_SEED", "20"))
EVENTS = 800
CLOCK = SystemClock()


class Hosts:
    """Host processes of one gateway, by lane."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = Authority.open(folder / "trust")
        self.processes: dict[str, subprocess.Popen[str]] = {}
        self.connections: list[Connection] = []

    async def start(self, lane: str, part: float) -> Connection:
        """Start a host that misbehaves in ``part`` of its answers, enrol it and connect."""
        folder = self.folder / lane
        folder.mkdir()
        token = new_token()
        user_data = UserData(host=f"{lane}-host", ca_pem=self.authority.ca_pem, token=token)
        (folder / "user-data").write_text(user_data.to_json())
        script = str(Path(__file__).parents[1] / "support" / "echo_host.py")
        command = [sys.executable, script, str(folder / "user-data"), str(folder), str(SEED), str(part)]
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        self.processes[lane] = process
        assert process.stdout is not None
        port = int(await asyncio.to_thread(process.stdout.readline))
        connection = await dial(lane, user_data.host, ("127.0.0.1", port), self.authority, token, CLOCK)
        self.connections.append(connection)
        return connection

    async def end(self) -> None:
        for connection in self.connections:
            await connection.close("test over")
        for process in self.processes.values():
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()


@pytest.fixture
async def hosts(tmp_path: Path) -> AsyncIterator[Hosts]:
    started = Hosts(tmp_path)
    yield started
    await started.end()


@asynccontextmanager
async def running(folder: Path, home: Connection, patience: Patience = PATIENCE) -> AsyncIterator[RunningQuery]:
    lines = [json.dumps({"id": i, "text": f"event {i}"}) for i in range(EVENTS)]
    (folder / "in.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "config.yaml").write_text(CONFIG)
    query = RunningQuery(
        "q",
        load(folder / "config.yaml").queries["q"],
        folder=folder / "state" / "queries" / "q",
        code_path="",
        memory=MemoryPool(1 << 25).share(),
        profiler=Profiler(1.0, {"q": "mean"}),
        clock=CLOCK,
        upstream=lambda _: pytest.fail("no query is read"),
        on_failed=lambda *_: None,
        on_overdue=lambda *_: None,
        patience=patience,
    )
    await query.start(home)
    try:
        yield query
    finally:
        await query.stop()


def results(folder: Path) -> list[dict[str, object]]:
    out = folder / "out"
    return [json.loads(line) for name in parts(out) for line in (out / name).read_text().splitlines()]


ORACLE = [{"id": i, "lane": f"event {i}"} for i in range(EVENTS)]


async def deliver(query: RunningQuery) -> None:
    """Pass slots until everything is in the sink."""

    def drained() -> bool:
        query.pipeline.end_slot(None, 0)
        assert query.failure() is None
        return query.drained

    await until(drained, what="everything is delivered", deadline_s=120.0)
