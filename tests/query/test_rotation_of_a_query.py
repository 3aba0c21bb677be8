"""Certificates are renewed while host processes answer a query over real links: its results are the same."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest

from gateway.hosts.connection import Connection
from gateway.hosts.enrol import InService, dial
from gateway.hosts.rotation import Rotation
from gateway.query.flow.dispatcher import Loss
from infra.clock import SystemClock
from infra.link.channel import LinkLost
from infra.link.keys.trust import Authority, TrustError
from policies.failures.overdue import Patience
from policies.signals import HOME
from tests.query.lossy_hosts import ORACLE, Hosts, deliver, results, running

CLOCK = SystemClock()


@pytest.fixture
async def hosts(tmp_path: Path) -> AsyncIterator[Hosts]:
    started = Hosts(tmp_path)
    yield started
    await started.end()


class Linked:
    """Stands for the keeper of the hosts: it lists the host and address of each connection."""

    def __init__(self, connections: list[Connection]) -> None:
        self._hosts = []
        for connection in connections:
            peer = connection.link.pair.control.transport.get_extra_info("peername")
            self._hosts.append(InService(connection.name, connection.link.hello.host, peer))

    def in_service(self) -> list[InService]:
        return self._hosts


async def test_nothing_is_lost_or_doubled_and_a_cut_link_comes_back_by_the_new_certificates(
    tmp_path: Path, hosts: Hosts
) -> None:
    # A fifth of the answers is lost, doubled or held back, so that it takes a while and there is something to lose.
    patience = Patience(least_s=0.3, times=1.5, unknown_s=1.0, silences=1000.0)
    home, cloud = await hosts.start(HOME, 0.2), await hosts.start("vm-1", 0.2)
    shutil.copytree(tmp_path / "trust", tmp_path / "stolen")
    stolen = Authority.open(tmp_path / "stolen")
    keeper = Linked([home, cloud])
    rotation = Rotation(hosts.authority, cast("Any", None), [keeper], CLOCK)
    async with running(tmp_path, home, patience) as query:
        await query.attach(cloud)
        query.pipeline.set_shares({HOME: 0.5, "vm-1": 0.5})
        delivering = asyncio.create_task(deliver(query))
        for _ in range(2):
            done = await rotation.rotate()
            assert (len(done["renewed"]), done["later"]) == (2, [])
        assert not query.drained, "there was load all the time"
        assert home.alive
        assert cloud.alive

        cloud.link.lose("a cut")
        await query.detach("vm-1", Loss(await cloud.lost(), CLOCK.now()))
        where = keeper.in_service()[1]
        again = await dial("vm-1", where.host, where.address, hosts.authority, None, CLOCK)
        hosts.connections.append(again)
        await query.attach(again)
        await delivering
        assert set(query.tally.events_by_lane) == {HOME, "vm-1"}
    assert results(tmp_path) == ORACLE
    for there in keeper.in_service():
        with pytest.raises((TrustError, LinkLost)):
            await dial(there.name, there.host, there.address, stolen, None, CLOCK)
