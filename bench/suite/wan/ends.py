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


@asynccontextmanager
async def linked(serve: Serve, schema: pa.Schema) -> AsyncIterator[HostLink]:
    """Start the other end and connect to it.

    Args:
        serve: a function of a module, as it is run by another process.
        schema: of its decoder.
    """
    with tempfile.TemporaryDirectory(prefix="spillway-bench-") as name:
        folder = Path(name)
        authority = Authority.open(folder / "gateway")
        user_data = UserData(host=HOST, ca_pem=authority.ca_pem, token=new_token())
        identity = HostIdentity.open(user_data, folder / "host")
        identity.install(authority.sign(identity.csr(), HOST))
        address: multiprocessing.Queue[tuple[str, int]] = multiprocessing.Queue()
        told = (str(folder / "host"), user_data.to_json(), address, serve, schema)
        host = multiprocessing.Process(target=_host, args=told)
        host.start()
        try:
            link = await HostLink.connect(address.get(timeout=30), authority, HOST, "bench", clock=SystemClock())
            yield link
            await link.close("measured")
        finally:
            host.kill()
            host.join()


def _host(
    folder: str, user_data: str, address: multiprocessing.Queue[tuple[str, int]], serve: Serve, schema: pa.Schema
) -> None:
    elsewhere()
    asyncio.run(_serve(Path(folder), UserData.from_json(user_data), address, serve, Decoder(schema)))


async def _serve(
    folder: Path,
    user_data: UserData,
    address: multiprocessing.Queue[tuple[str, int]],
    serve: Serve,
    decoder: Decoder,
) -> None:
    server = HostServer(HostIdentity.open(user_data, folder), user_data, RUNTIME, clock=SystemClock())
    address.put(await server.start())
    await serve(server, decoder)
