"""A daemon whose parts are doubles."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gateway import daemon as daemon_module
from gateway.config import Config, load
from gateway.core.decide.profiler import Profiler
from gateway.daemon import Daemon
from gateway.fleet.actuator import Actuator
from gateway.fleet.clouds import make_cloud
from gateway.fleet.ownership import Ownership
from gateway.hosts.connection import Connection
from gateway.hosts.enrol import Dial, InService, dial
from gateway.query.flow.referring.paths import DataPath
from gateway.query.flow.statistics import Tally
from gateway.query.supervision import home as home_module
from gateway.query.supervision import making as making_module
from gateway.steering.acting import Acting
from gateway.steering.seeing import Seeing
from infra.clock import Clock, SystemClock
from infra.clouds.base import Cloud
from infra.link.client import HostLink
from infra.messages import QueryPlan
from tests.support.fleet_doubles import RUNTIME, FakeQuery
from tests.support.gateway_doubles import FakeLink

CONFIG = """\
gateway:
  state_dir: {state}
  slot: 100ms
  api: {{listen: "127.0.0.1:{port}"{api}}}
  drain_timeout: {drain}
cloud:
  provider: process
  max_vms: 1
  boot: 10s
  billing: {{period: 60s, minimum: 60s, usd_per_hour: 0.1, usd_per_gb_sent: 0.09}}
  budget: {{usd_per_day: 5}}
queries:
  words:
    source: {{type: file, path: in.jsonl}}
    schema: id STRING, body STRING
    sql: SELECT id FROM events
    sink: {{type: file, path: out}}
    qos: {{latency: 2s}}
"""


def configured(
    folder: Path, *, state: str = "state", port: int = 0, more: str = "", drain: str = "300s", api: str = ""
) -> Config:
    (folder / "in.jsonl").touch()
    path = folder / "config.yaml"
    path.write_text(CONFIG.format(state=state, port=port, drain=drain, api=api) + more)
    return load(path)


class Query(FakeQuery):
    """A query as the daemon and its supervisor see it."""

    name = "words"
    started = False

    def __init__(self, said: list[str]) -> None:
        super().__init__()
        self.said = said
        self.plan = QueryPlan(switch_class="stateless", switchable=True, narrow=True)
        self.drained = self._idle = False
        self.trouble = self.stays_home = ""
        self.data_path = DataPath("gateway", "private.data_path says so")
        self.shed_events = 0
        self.shed_share = self.cloud_share = 0.0
        self.dead_letters = SimpleNamespace(count=0)
        self.start_fails: Exception | None = None
        self.warm_fails: Exception | None = None
        self.fails: Exception | None = None
        self.tally = Tally()
        self.lanes: Any = {}
        self.committed_before = self.read_before = 0
        self.isolating_s = 0.0
        self.move_due = self.renewal_due = self.stateful = self.divided = False
        self.movers = ()
        self.on_run: Any = None
        self.end_slot = lambda: None

    @property
    def idle(self) -> bool:
        return not self.started or self._idle

    @idle.setter
    def idle(self, idle: bool) -> None:
        self._idle = idle

    async def attach(self, connection: Connection) -> bool:
        return True

    async def detach(self, name: str, loss: object = None) -> None:
        pass

    def failure(self) -> BaseException | None:
        return self.fails if self.started else None

    async def restart_home(self, home: Connection) -> None:
        if self.start_fails is not None:
            raise self.start_fails
        self.said.append("restart home" if self.started else "start")
        self.started, self.fails = True, None

    async def warm(self, connection: Connection) -> None:
        self.said.append("warm")
        if self.warm_fails is not None:
            raise self.warm_fails

    async def stop_reading(self) -> None:
        self.said.append("stop reading")

    async def close_on_hosts(self) -> None:
        pass

    async def stop(self) -> None:
        self.said.append("stop")
        self.started = False

    async def replay_dead_letters(self) -> int:
        return 0

    async def drop_dead_letters(self, before_seq: int) -> int:
        self.said.append(f"drop before {before_seq}")
        return 3

    def read_on(self) -> None:
        pass

    async def lose_home(self, loss: object = None) -> None:
        self.said.append("lose home")


class Home:
    """Hosts at home: each ``connect`` returns a new one; the next ones raise ``refusals``."""

    def __init__(self, said: list[str]) -> None:
        self.said = said
        self.links: list[FakeLink] = []
        self.refusals: list[Exception] = []
        self.goes = asyncio.Event()
        self.goes.set()

    async def connect(self, tags: Mapping[str, str]) -> Connection:
        assert tags == {"version": version("spillway"), "master": "local[1]", "cpus": ""}
        self.said.append("connect")
        await self.goes.wait()
        if self.refusals:
            raise self.refusals.pop()
        link = FakeLink()
        link.hello.runtime = RUNTIME
        self.links.append(link)
        return Connection("home", cast("HostLink", link))

    async def wait_ready(self, connection: Connection) -> None:
        await connection.wait_ready(20.0)

    def in_service(self, _: Connection | None) -> InService:
        return InService("home", "home-1", ("127.0.0.1", 9))

    async def end_others(self) -> None:
        pass

    async def end(self, connection: Connection | None) -> None:
        self.said.append("end host")
        if connection is not None:
            await connection.close("the gateway stops")


class Site:
    """A daemon, and its actions in order; ``cloud`` replaces the configured one."""

    def __init__(
        self,
        folder: Path,
        *,
        keep_hosts: bool = False,
        clock: Clock | None = None,
        more: str = "",
        dial: Dial = dial,
        cloud: Cloud | None = None,
        ownership: Ownership | None = None,
        port: int = 0,
        api: str = "",
        drain: str = "300s",
    ) -> None:
        self.said: list[str] = []
        self.home = Home(self.said)
        self.query = Query(self.said)
        config = configured(folder, more=more, port=port, drain=drain, api=api)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(home_module, "HomeHost", lambda *_: self.home)
            patch.setattr(making_module, "RunningQuery", lambda *_, **__: self.query)
            patch.setattr(daemon_module, "Profiler", self._make_profiler)
            patch.setattr(daemon_module, "make_cloud", lambda *made_of: cloud or self._make_cloud(*made_of))
            patch.setattr(daemon_module, "Actuator", self._make_actuator)
            self.daemon = Daemon(config, clock or SystemClock(), keep_hosts=keep_hosts, dial=dial, ownership=ownership)

    @property
    def seeing(self) -> Seeing:
        """What the API shows."""
        return Seeing(self.daemon.parts)

    @property
    def acting(self) -> Acting:
        """What the API can order."""
        return Acting(self.daemon.parts)

    def _make_profiler(self, *made_of: Any) -> Any:
        profiler: Any = Profiler(*made_of)
        profiler.end_slot = lambda *_, **__: ()
        self.profiler = profiler
        return self.profiler

    def _make_cloud(self, *made_of: Any) -> Any:
        cloud: Any = make_cloud(*made_of)
        cloud.close = self._close_cloud
        return cloud

    def _make_actuator(self, *made_of: Any, **named: Any) -> Actuator:
        self.actuator = Actuator(*made_of, **named)
        return self.actuator

    async def _close_cloud(self) -> None:
        self.said.append("close cloud")


@pytest.fixture(autouse=True)
def no_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = SimpleNamespace(slot=lambda *_: None, note=lambda *_: None)
    monkeypatch.setattr(daemon_module, "Recorder", lambda *_: recorder)
    monkeypatch.setattr(daemon_module, "tallies_texts", lambda _: [])


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)
