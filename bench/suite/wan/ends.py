"""Two ends of the gateway's link, with mutual TLS over loopback: this process, and another one on another CPU."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pyarrow as pa

from infra.clock import SystemClock
from infra.link.client import HostLink
from infra.link.keys.identity import HostIdentity
from infra.link.keys.trust import Authority, UserData, new_token
from infra.link.server import HostServer
from infra.messages import PROTOCOL
from infra.payload import Decoder
from infra.runtime import Runtime

HOST = "bench-1"
RUNTIME = Runtime(protocol=PROTOCOL, spark="", java="", python="", timezone="UTC", ansi=True)

Serve = Callable[[HostServer, Decoder], Awaitable[None]]
"""What the other end does until it is killed."""


def elsewhere() -> None:
    """Run this process on another CPU than its parent's."""
    if hasattr(os, "sched_setaffinity"):
        mine = os.sched_getaffinity(0)
        os.sched_setaffinity(0, set(range(os.cpu_count() or 1)) - mine or mine)
    pa.set_cpu_count(1)


def prepare(folder: Path, listen_host: str = "127.0.0.1") -> None:
    """Write the keys of both ends into a folder."""
    authority = Authority.open(folder / "gateway")
    user_data = UserData(host=HOST, ca_pem=authority.ca_pem, token=new_token(), listen_host=listen_host)
    identity = HostIdentity.open(user_data, folder / "host")
    identity.install(authority.sign(identity.csr(), HOST))
    (folder / "user-data.json").write_text(user_data.to_json())


def server_of(folder: Path) -> HostServer:
    """Return the host's end, which is not started yet; ``prepare`` made the folder."""
    user_data = UserData.from_json((folder / "user-data.json").read_bytes())
    return HostServer(HostIdentity.open(user_data, folder / "host"), user_data, RUNTIME, clock=SystemClock())


async def connect(folder: Path, address: tuple[str, int]) -> HostLink:
    """Return the gateway's end; ``prepare`` made the folder."""
    return await HostLink.connect(address, Authority.open(folder / "gateway"), HOST, "bench", clock=SystemClock())


@asynccontextmanager
async def linked(serve: Serve, schema: pa.Schema) -> AsyncIterator[HostLink]:
    """Start the other end and connect to it.

    Args:
        serve: a function of a module, as it is run by another process.
        schema: of its decoder.
    """
    with tempfile.TemporaryDirectory(prefix="spillway-bench-") as name:
        folder = Path(name)
        prepare(folder)
        address: multiprocessing.Queue[tuple[str, int]] = multiprocessing.Queue()
        host = multiprocessing.Process(target=_host, args=(folder, address, serve, schema))
        host.start()
        try:
            link = await connect(folder, address.get(timeout=30))
            yield link
            await link.close("measured")
        finally:
            host.kill()
            host.join()


def _host(folder: Path, address: multiprocessing.Queue[tuple[str, int]], serve: Serve, schema: pa.Schema) -> None:
    elsewhere()

    async def run() -> None:
        server = server_of(folder)
        address.put(await server.start())
        await serve(server, Decoder(schema))

    asyncio.run(run())
