"""A gateway that waits for its fleet: its engine host is ready and has run each query, and it touches nothing else."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from gateway.fleet.ownership import Ownership
from gateway.hosts.connection import QueryRefusedError
from infra.clock import SystemClock
from infra.link.channel import LinkLost
from infra.objectstore.folder import FolderStore
from tests.gateway.daemon_site import Site, no_texts
from tests.support.waiting import until

__all__ = ["no_texts"]


def contender(folder: Path, name: str) -> Ownership:
    return Ownership(FolderStore(folder / "store"), "town", name, SystemClock(), 30.0)


async def test_it_warms_its_host_up_and_opens_its_queries_only_as_the_owner(tmp_path: Path) -> None:
    owner, waiting = contender(tmp_path, "owner"), contender(tmp_path, "waiting")
    await owner.begin()
    site = Site(tmp_path, ownership=waiting)
    running = asyncio.create_task(site.daemon.run(True, None))
    await until(lambda: site.daemon.phase == "standby")
    assert site.said == ["connect", "warm"]
    await owner.end()
    await until(lambda: site.daemon.phase == "running")
    assert site.said == ["connect", "warm", "start"]
    assert waiting.epoch == 2
    site.query.drained = site.query.idle = True
    assert await running == 0
    await waiting.end()


@pytest.mark.parametrize("error", [QueryRefusedError("it is nonsense"), LinkLost("gone")])
async def test_a_query_that_cannot_be_warmed_up_is_opened_all_the_same(tmp_path: Path, error: Exception) -> None:
    owner, waiting = contender(tmp_path, "owner"), contender(tmp_path, "waiting")
    await owner.begin()
    site = Site(tmp_path, ownership=waiting)
    site.query.warm_fails = error
    running = asyncio.create_task(site.daemon.run(True, None))
    await until(lambda: site.daemon.phase == "standby")
    await owner.end()
    await until(lambda: site.daemon.phase == "running")
    site.query.drained = site.query.idle = True
    assert await running == 0
    await waiting.end()


async def test_told_to_stop_it_ends_and_leaves_the_owner_alone(tmp_path: Path) -> None:
    owner, waiting = contender(tmp_path, "owner"), contender(tmp_path, "waiting")
    await owner.begin()
    site = Site(tmp_path, ownership=waiting)
    running = asyncio.create_task(site.daemon.run(False, None))
    await until(lambda: site.daemon.phase == "standby")
    os.kill(os.getpid(), signal.SIGTERM)
    assert await running == 0
    await waiting.end()
    assert site.said == ["connect", "warm", "stop", "end host", "close cloud"]
    assert owner.holds
    await owner.end()


async def test_its_vms_are_found_by_the_next_owner(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "other").mkdir()
    sites = [Site(tmp_path / name, ownership=contender(tmp_path, name)) for name in ("one", "other")]
    tags = [dict(site.actuator.reaper.tags) for site in sites]
    same = {key for key in tags[0] if tags[0][key] == tags[1][key]}
    assert same == {"spillway-gateway"}
