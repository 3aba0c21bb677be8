"""A cloud in memory and VMs without processes, for the tests of the code that launches and terminates them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from gateway.fleet.actuator import Actuator
from gateway.hosts.connection import Connection
from gateway.hosts.enrol import Dial
from infra.clock import Clock
from infra.clouds.base import BootError, Cloud, CloudError, Node
from infra.link.channel import LinkLost
from infra.link.client import Address, HostLink
from infra.link.keys.trust import Authority, UserData
from infra.messages import PROTOCOL
from infra.runtime import Runtime
from policies.signals import Event
from tests.leaping_clock import LeapingClock
from tests.support.gateway_doubles import FakeLink

RUNTIME = Runtime(protocol=PROTOCOL, spark="4.3.0", java="21", python="3.11", timezone="UTC", ansi=True)
TAGS = {"gateway": "g1"}


class MemoryCloud(Cloud):
    """VMs that consist only of their nodes.

    The next orders raise ``refusals``. ``stubborn`` counts the terminations that fail. While ``boots`` is cleared,
    orders wait. ``given_up`` are the names of unusable VMs.
    """

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.refusals: list[Exception] = []
        self.stubborn = 0
        self.size = ""
        self.failures: tuple[str, ...] = ()
        self.given_up: list[str] = []
        self.created = 0
        self.boots = asyncio.Event()
        self.boots.set()
        self._ids = count(1)

    async def create(self, name: str, tags: Mapping[str, str], user_data: str) -> Node:
        if self.refusals:
            raise self.refusals.pop()
        identity = f"i-{next(self._ids)}"
        host = UserData.from_json(user_data).host
        node = Node(
            id=identity,
            name=name,
            host=host,
            state="running",
            address="127.0.0.1",
            port=4711,
            created_at_s=0.0,
            tags=dict(tags),
            size=self.size,
            failures=self.failures,
        )
        self.nodes[identity] = node
        self.created += 1
        try:
            await self.boots.wait()
        except asyncio.CancelledError:
            del self.nodes[identity]
            raise
        return node

    def unfit(self, node: Node) -> None:
        self.given_up.append(node.name)

    async def destroy(self, node_id: str) -> None:
        await asyncio.sleep(0)
        if self.stubborn:
            self.stubborn -= 1
            raise CloudError("come back later")
        self.nodes.pop(node_id, None)

    async def list(self, tags: Mapping[str, str]) -> list[Node]:
        return [node for node in self.nodes.values() if tags.items() <= node.tags.items()]

    async def close(self) -> None:
        pass


class FakeQuery:
    """A query as the actuator sees it: remembers its lanes."""

    switchable = started = True

    def __init__(self) -> None:
        self.lanes: set[str] = set()
        self.busy: set[str] = set()
        self.refusal: Exception | None = None
        self.opens = asyncio.Event()
        self.opens.set()
        self.shares: dict[str, float] = {}
        self.drained_lanes: list[str] = []
        self.attached = 0
        self.attaching = 0  # how many attach it now

    def set_shares(self, shares: dict[str, float]) -> None:
        self.shares = shares

    def drain_lane(self, name: str) -> None:
        self.drained_lanes.append(name)

    def lane_idle(self, name: str) -> bool:
        return name not in self.busy

    async def attach(self, connection: Connection) -> bool:
        self.attaching += 1
        try:
            await self.opens.wait()
        finally:
            self.attaching -= 1
        if self.refusal is not None:
            raise self.refusal
        if not self.started:
            return False
        self.attached += 1
        self.lanes.add(connection.name)
        return True

    async def detach(self, name: str, loss: object = None) -> None:
        await asyncio.sleep(0)
        self.lanes.discard(name)
        self.busy.discard(name)


class Dialler:
    """Stands in for ``dial``: links to VMs are fake, and may be refused, slow to be ready, or of another runtime."""

    def __init__(self) -> None:
        self.links: dict[str, FakeLink] = {}
        self.refusal: Exception | None = None
        self.ready = True
        self.runtime = RUNTIME

    async def __call__(
        self,
        name: str,
        host: str,
        address: Address,
        authority: Authority,
        token: bytes | None,
        clock: Clock,
        within_s: float = 10.0,
    ) -> Connection:
        await asyncio.sleep(0)
        if self.refusal is not None:
            raise self.refusal
        link = FakeLink(ready=self.ready)
        link.hello.runtime = self.runtime
        self.links[name] = link
        return Connection(name, cast("HostLink", link))


class KeptLinks(Dialler):
    """Keeps every link, oldest first."""

    def __init__(self) -> None:
        super().__init__()
        self.all: list[FakeLink] = []

    async def __call__(self, *arguments: Any, **named: Any) -> Connection:
        connection = await super().__call__(*arguments, **named)
        self.all.append(self.links["home"])
        return connection


class Fleet:
    """An actuator over a cloud in memory; ``events`` are what it emitted."""

    def __init__(
        self,
        folder: Path,
        clock: Clock | None = None,
        inherited: Collection[str] = (),
        dial: Dial | None = None,
        cloud: MemoryCloud | None = None,
        size_prices: Mapping[str, float] | None = None,
    ) -> None:
        self.cloud = cloud or MemoryCloud()
        self.queries = {"a": FakeQuery(), "b": FakeQuery()}
        self.dialler = Dialler()
        self.events: list[Event] = []
        self.closed_lanes: list[str] = []
        self.unpaid: OSError | None = None
        self.listener: Callable[[Event], None] = lambda _: None
        self.clock = clock or LeapingClock()
        self.actuator = Actuator(
            self.cloud,
            Authority.open(folder / "trust"),
            tags=TAGS,
            queries=cast("Any", self.queries),
            home_runtime=lambda: RUNTIME,
            orphan_after_s=60.0,
            shape=None,
            profiler=cast("Any", SimpleNamespace(lane_closed=self.closed_lanes.append)),
            clock=self.clock,
            emit=self.emit,
            paid=self._pay,
            inherited=lambda: inherited,
            dial=dial or self.dialler,
            size_prices=size_prices,
        )

    async def _pay(self) -> None:
        await asyncio.sleep(0)
        if self.unpaid is not None:
            raise self.unpaid

    def emit(self, make: Callable[[str, float], Event]) -> None:
        event = make(f"e{len(self.events)}", self.clock.now())
        self.events.append(event)
        self.listener(event)

    def kinds(self, vm: str) -> list[str]:
        """The events about a VM, in order."""
        return [type(event).__name__ for event in self.events if getattr(event, "vm", "") == vm]


def nobody_there() -> LinkLost:
    """The error of a dial to a VM on which no engine host listens any more."""
    refusal = LinkLost("cannot reach it: Connection refused")
    refusal.__cause__ = ConnectionRefusedError(111, "Connection refused")
    return refusal


def boot_error(name: str) -> BootError:
    return BootError(f"{name}: it did not come up")
