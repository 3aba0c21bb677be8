"""Two real engine hosts: one at home, and one as a VM whose link may be lost and made anew."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

from gateway.hosts.connection import Connection
from infra.clock import SystemClock
from infra.link.client import HostLink
from policies.signals import HOME
from tests.engines.host_site import HostProcess, host_process

READY_S: Final = 180.0


class Places:
    """The connections to both hosts.

    Args:
        home: to the host at home.
        host: the host that is the VM.

    Attributes:
        losses: how often the VM's link was lost.
    """

    def __init__(self, home: Connection, host: HostProcess) -> None:
        self.home = home
        self.losses = 0
        self._host = host
        self._linking = asyncio.Lock()
        self._vm: Connection | None = None

    async def vm(self) -> Connection:
        """Return a connection to the VM; after a loss it has another name, as another VM would."""
        async with self._linking:
            if self._vm is None or not self._vm.alive:
                self._vm = await connected(self._host, f"vm-{self.losses + 1}")
            return self._vm

    async def lose(self) -> None:
        """Lose the VM, with all queries that are there."""
        async with self._linking:
            if self._vm is not None and self._vm.alive:
                self.losses += 1
                await self._vm.close("the VM is lost")

    async def close(self) -> None:
        """End both links."""
        for connection in (self.home, self._vm):
            if connection is not None:
                await connection.close("done")


async def connected(host: HostProcess, name: str) -> Connection:
    """Return a new connection to a host, once that is ready."""
    address = (host.file.address, host.file.port)
    clock = SystemClock()
    link = await HostLink.connect(address, host.authority, host.file.host, f"{name}-{clock.wall():.6f}", clock=clock)
    connection = Connection(name, link)
    await connection.wait_ready(READY_S)
    return connection


@asynccontextmanager
async def two_places(folder: Path) -> AsyncIterator[Places]:
    """Start both hosts. State that begins at home has one partition; on a VM it would have one for each core."""
    conf = {"spark.sql.shuffle.partitions": "1"}
    async with AsyncExitStack() as stack:
        here = host_process(folder / HOME, master="local[1]", spark_conf=conf)
        there = host_process(folder / "vm", master="local[1]")
        hosts = await asyncio.gather(stack.enter_async_context(here), stack.enter_async_context(there))
        home, vm = await asyncio.gather(connected(hosts[0], HOME), connected(hosts[1], "vm-0"))
        await vm.close("the VM is ready")
        places = Places(home, hosts[1])
        try:
            yield places
        finally:
            await places.close()
