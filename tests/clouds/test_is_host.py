"""A listening process counts as an engine host only if it identifies itself as one."""

from __future__ import annotations

import asyncio
from pathlib import Path

from infra.clock import SystemClock
from infra.clouds.rented import is_host
from infra.link.keys.identity import HostIdentity
from infra.link.keys.trust import Authority, UserData, new_token
from infra.link.server import HostServer
from infra.runtime import Runtime
from tests.connectors.ports import free_port

RUNTIME = Runtime(protocol=1, spark="4", java="17", python="3.11", timezone="UTC", ansi=True)


async def test_an_engine_host_opens(tmp_path: Path) -> None:
    told = UserData(host="vm-1", ca_pem=Authority.open(tmp_path / "trust").ca_pem, token=new_token())
    server = HostServer(HostIdentity.open(told, tmp_path / "identity"), told, RUNTIME, clock=SystemClock())
    address, port = await server.start()
    assert await is_host(address, port, "vm-1")
    assert not await is_host(address, port, "vm-2")
    await server.close("the test is done")


async def test_a_proxy_that_accepts_for_others_does_not() -> None:
    async def proxy(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 502 Bad Gateway\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(proxy, "127.0.0.1", 0)
    async with server:
        assert not await is_host("127.0.0.1", server.sockets[0].getsockname()[1], "vm-1")


async def test_nobody_does_not() -> None:
    assert not await is_host("127.0.0.1", free_port(), "vm-1")
