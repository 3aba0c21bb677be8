"""The real link between two sites: over the paper's 70 ms, and through cuts."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from infra.link.keys.identity import HostIdentity
from infra.link.keys.trust import Authority, UserData, new_token
from infra.wan import Direction, Wan, WanSettings
from tests.wan.wan_site import DEADLINE_S, ended, said

pytestmark = pytest.mark.asyncio(loop_scope="module")
HOST = "cloud-1"
HOST_PROCESS = str(Path(__file__).parents[1] / "link" / "host_process.py")
GATEWAY_PROCESS = str(Path(__file__).parent / "gateway_process.py")
CUT_S = 1.0
# Of a link that is cut: more than a busy machine lets it wait before the cut.
PATIENCE_S = 4.0


@asynccontextmanager
async def linked(wan: Wan, folder: Path, *, timeout_s: float) -> AsyncIterator[Process]:
    """Start an enrolled host in the cloud and a gateway at home, over 70 ms; yield the gateway."""
    await wan.set(WanSettings(delay_s=0.035))
    cloud = await wan.add(HOST)
    authority = Authority.open(folder / "gateway")
    user_data = UserData(host=HOST, ca_pem=authority.ca_pem, token=new_token(), listen_host=cloud.address)
    identity = HostIdentity.open(user_data, folder / "host")
    identity.install(authority.sign(identity.csr(), HOST))
    (folder / "user-data.json").write_text(user_data.to_json())
    host = await cloud.run(
        sys.executable, HOST_PROCESS, str(folder / "user-data.json"), str(folder / "host"), stdout=PIPE
    )
    command = (sys.executable, GATEWAY_PROCESS, str(folder / "gateway"))
    gateway = await wan.home.run(*command, cloud.address, await said(host), HOST, str(timeout_s), stdout=PIPE)
    yield gateway
    await ended(gateway, host)


async def until(gateway: Process, event: str) -> dict[str, Any]:
    while True:
        happened: dict[str, Any] = json.loads(await said(gateway))
        if happened["event"] == event:
            return happened


async def answered_since(gateway: Process, since_s: float, seq: int) -> int:
    """Read until an answer after ``since_s``; check that none is missing or doubled, and return the last seq."""
    while True:
        answer = await until(gateway, "answered")
        assert answer["seq"] == seq + 1
        seq = answer["seq"]
        if answer["at_s"] >= since_s:
            return seq


async def test_the_link_measures_seventy_milliseconds(wan: Wan, tmp_path: Path) -> None:
    async with linked(wan, tmp_path, timeout_s=20) as gateway, asyncio.timeout(DEADLINE_S):
        while ((await until(gateway, "answered"))["rtt_s"] or 0) < 0.0695:
            pass


async def test_a_link_outlives_a_cut_that_is_shorter_than_its_patience(wan: Wan, tmp_path: Path) -> None:
    async with linked(wan, tmp_path, timeout_s=30) as gateway:
        seq = (await until(gateway, "answered"))["seq"]
        assert seq == 0
        await wan.cut()
        await asyncio.sleep(CUT_S)  # how long the cut is, not a wait for anything
        await wan.heal()
        while seq < 20:
            happened = json.loads(await said(gateway))
            assert happened["event"] == "answered", "the link was lost"
            assert happened["seq"] == seq + 1
            seq += 1


@pytest.mark.parametrize("directions", [(), (Direction.UP,), (Direction.DOWN,)], ids=["both ways", "up", "down"])
async def test_a_cut_is_noticed_and_healed(wan: Wan, tmp_path: Path, directions: tuple[Direction, ...]) -> None:
    async with linked(wan, tmp_path, timeout_s=PATIENCE_S) as gateway:
        await until(gateway, "linked")
        seq = await answered_since(gateway, time.monotonic(), -1)
        cut_s = time.monotonic()
        await wan.cut(*directions)
        while (happened := json.loads(await said(gateway)))["event"] != "lost":
            assert happened["seq"] == seq + 1
            seq += 1
        assert "no heartbeat" in happened["reason"]
        await wan.heal()
        healed_s = time.monotonic()
        relinked = await until(gateway, "linked")
        await answered_since(gateway, healed_s, seq)
        noticed_s, linked_s = happened["at_s"] - cut_s, relinked["at_s"] - healed_s
        print(f"noticed {noticed_s:.1f} s after the cut, linked {linked_s:.1f} s after the heal")
