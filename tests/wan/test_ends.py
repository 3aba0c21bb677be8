"""Nothing of a WAN is left behind, however it ends."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

from infra.clouds.processes import start_mark
from infra.wan import Backend, Wan, WanError, WanSettings, WanUnavailableError
from infra.wan.commands import found, run
from infra.wan.namespaces import NamespaceNames, add, existing, remove, sweep
from tests.wan.wan_site import DEADLINE_S, IMAGE, said

pytestmark = pytest.mark.asyncio(loop_scope="module")
OWNER = str(Path(__file__).parent / "wan_owner.py")


async def all_end(pids: list[int]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while any(start_mark(pid) is not None for pid in pids):
            await asyncio.sleep(0.02)


async def test_a_stopped_wan_leaves_nothing(wan: Wan) -> None:
    wan = Wan(backend=wan.backend, image=IMAGE)
    await wan.start()
    root_before = await run("ip", "-o", "link")
    cloud = await wan.add("cloud-1")
    # A process with a child of its own.
    parent = await cloud.run("sh", "-c", "sleep 1000 & echo $!; wait", stdout=PIPE)
    child = int(await said(parent))
    prefix = cloud.namespace.removesuffix("cloud-1")
    assert len([name for name in await existing() if name.startswith(prefix)]) == 3
    await wan.stop()
    assert [name for name in await existing() if name.startswith(prefix)] == []
    await all_end([parent.pid, child])
    assert await run("ip", "-o", "link") == root_before
    with pytest.raises(WanError, match="not started"):
        await wan.set(WanSettings())
    await wan.stop()


async def test_what_a_killed_owner_leaves_is_swept(wan: Wan) -> None:
    owner = await asyncio.create_subprocess_exec(sys.executable, OWNER, stdout=PIPE)
    async with asyncio.timeout(4 * DEADLINE_S):
        assert owner.stdout is not None
        made = json.loads(await owner.stdout.readline())
    assert len(made["names"]) == 2
    assert made["pids"]
    await sweep()
    assert set(made["names"]) <= set(await existing()), "its owner lives"
    owner.kill()
    await owner.communicate()
    await all_end(made["pids"])  # they end with their owner; only names are left for the sweep
    assert set(made["names"]) <= set(await existing())
    await sweep()
    assert not set(made["names"]) & set(await existing())
    assert wan.home.namespace in await existing(), "another owner's, who lives"


async def test_a_number_that_another_process_has_now_does_not_hide_leftovers(wan: Wan) -> None:
    mine = NamespaceNames.new().prefix.split("-")
    name = "-".join([*mine[:3], "1", *mine[4:], "home"])
    await add(name)
    strangers = f"not-{name}"
    await add(strangers)
    await sweep()
    assert name not in await existing()
    assert strangers in await existing()
    await remove(strangers)


async def test_a_start_that_is_cancelled_leaves_nothing(wan: Wan) -> None:
    other = Wan(backend=wan.backend, image=IMAGE)
    prefix = other.prefix
    starting = asyncio.create_task(other.__aenter__())
    async with asyncio.timeout(DEADLINE_S):
        while not any(name.startswith(prefix) for name in await existing()):
            await asyncio.sleep(0.01)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert not any(name.startswith(prefix) for name in await existing())


async def test_a_wan_that_cannot_be_made_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    wan = Wan(image=tmp_path)
    with pytest.raises(WanUnavailableError, match="only root"):
        await wan.start()
    await wan.stop()
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(WanUnavailableError, match="Linux"):
        await wan.start()


async def test_a_machine_without_its_image_says_what_makes_it(wan: Wan, tmp_path: Path) -> None:
    with pytest.raises(WanUnavailableError, match=r".*kernel is missing; \.ci/wan creates it"):
        async with Wan(backend=Backend.MACHINE, image=tmp_path):
            pass


async def test_a_program_that_is_missing_is_named() -> None:
    with pytest.raises(WanUnavailableError, match="there is no spillway-nothing in PATH"):
        found("spillway-nothing")
