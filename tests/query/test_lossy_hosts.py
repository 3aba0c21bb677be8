"""A query over real links to host processes that lose, double and reorder a fifth of their answers, stop or die."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gateway.config import load
from gateway.core.decide.profiler import Profiler
from gateway.hosts.connection import Connection
from gateway.hosts.enrol import dial
from gateway.query.flow import pipeline as pipeline_module
from gateway.query.flow.moves import Loss
from gateway.query.running import RunningQuery
from infra.clock import SystemClock
from infra.link.keys.trust import Authority, UserData, new_token
from policies.failures.overdue import Patience
from policies.signals import HOME
from tests.connectors.test_file_sink import parts
from tests.query.test_running_query import CONFIG
from tests.support.gateway_doubles import until

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
        """Start a host that misbehaves in ``part`` of its answers, enrol it and link up."""
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
async def running(folder: Path, home: Connection) -> AsyncIterator[RunningQuery]:
    lines = [json.dumps({"id": i, "text": f"event {i}"}) for i in range(EVENTS)]
    (folder / "in.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "config.yaml").write_text(CONFIG)
    query = RunningQuery(
        "q",
        load(folder / "config.yaml").queries["q"],
        folder=folder / "state" / "queries" / "q",
        code_path="",
        held_bytes=1 << 24,
        profiler=Profiler(1.0, {"q": "mean"}),
        clock=CLOCK,
        upstream=lambda _: pytest.fail("no query is read"),
        on_failed=lambda *_: None,
        on_overdue=lambda *_: None,
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
    """Let slots pass until everything is in the sink."""

    def drained() -> bool:
        query.pipeline.end_slot(None, 0)
        assert query.failure() is None
        return query.drained

    deadline_s = time.monotonic() + 120
    while not drained():
        assert time.monotonic() < deadline_s, "not everything was delivered"
        await asyncio.sleep(0.02)


async def test_a_fifth_of_the_answers_lost_doubled_and_reordered_changes_nothing(
    tmp_path: Path, hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    print(f"seed {SEED}")
    monkeypatch.setattr(pipeline_module, "PATIENCE", Patience(least_s=0.3, times=1.5, unknown_s=1.0, silences=1000.0))
    home, cloud = await hosts.start(HOME, 0.2), await hosts.start("vm-1", 0.2)
    async with running(tmp_path, home) as query:
        await query.attach(cloud)
        query.pipeline.set_shares({HOME: 0.5, "vm-1": 0.5})
        await deliver(query)
        assert set(query.tally.events_by_lane) == {HOME, "vm-1"}
    assert results(tmp_path) == ORACLE


async def test_a_killed_worker_is_noticed_at_once_and_its_runs_go_elsewhere(
    tmp_path: Path, hosts: Hosts, caplog: pytest.LogCaptureFixture
) -> None:
    home, cloud = await hosts.start(HOME, 0.0), await hosts.start("vm-1", 0.0)
    async with running(tmp_path, home) as query:
        await query.attach(cloud)
        hosts.processes["vm-1"].send_signal(signal.SIGSTOP)
        query.pipeline.set_shares({HOME: 0.5, "vm-1": 0.5})
        await until(lambda: not query.pipeline.lane_idle("vm-1"))
        killed_s = CLOCK.now()
        hosts.processes["vm-1"].kill()
        why = await asyncio.wait_for(cloud.lost(), 30)
        lost_s = CLOCK.now()
        query.pipeline.set_shares({HOME: 1.0})
        await query.detach("vm-1", Loss(why, lost_s))
        await deliver(query)
        (said,) = [text for text in caplog.messages if "go elsewhere" in text]
        print(f"noticed after {1000 * (lost_s - killed_s):.0f} ms; {said}")
        assert query.tally.events_by_lane == {HOME: EVENTS}
    assert results(tmp_path) == ORACLE


async def test_the_runs_of_a_worker_that_answers_heartbeats_only_go_elsewhere(
    tmp_path: Path, hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline_module, "PATIENCE", Patience(least_s=0.2, times=4.0, unknown_s=0.4, silences=3.0))
    home, cloud = await hosts.start(HOME, 0.0), await hosts.start("vm-1", 1.0)
    async with running(tmp_path, home) as query:
        await query.attach(cloud)
        query.pipeline.set_shares({HOME: 0.5, "vm-1": 0.5})
        await deliver(query)
        assert query.tally.events_by_lane == {HOME: EVENTS}
    assert results(tmp_path) == ORACLE
