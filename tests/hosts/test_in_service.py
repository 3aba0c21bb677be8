"""Which engine hosts a gateway has, for code that must notify all of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from gateway.hosts import enrol
from gateway.hosts.enrol import HomeHost, NotSettledError
from gateway.hosts.rotation import Rotation, RotationRefusedError
from gateway.hosts.standby import Standby
from infra.clouds.base import Node
from infra.link.keys.trust import Authority
from policies.signals import Cause, StartVm, TerminateVm
from tests.leaping_clock import LeapingClock
from tests.support.fleet_doubles import Dialler, Fleet, MemoryCloud
from tests.support.waiting import until

WHY = Cause("e0", "the test says so")


async def test_a_vm_is_there_once_it_is_ready_and_until_it_is_ended(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    assert fleet.actuator.in_service() == []
    fleet.cloud.boots.clear()
    fleet.actuator.execute([StartVm(vm="vm-1", cause=WHY)])
    with pytest.raises(NotSettledError, match="vm-1 is being launched"):
        fleet.actuator.in_service()
    fleet.cloud.boots.set()
    await until(lambda: fleet.kinds("vm-1") == ["VmReady"])
    (node,) = fleet.cloud.nodes.values()
    (host,) = fleet.actuator.in_service()
    assert (host.name, host.host, host.address) == ("vm-1", node.host, (node.address, node.port))
    fleet.actuator.execute([TerminateVm(vm="vm-1", cause=WHY)])
    await until(lambda: fleet.actuator.settled)
    assert fleet.actuator.in_service() == []


@pytest.fixture
def home(tmp_path: Path) -> Callable[[MemoryCloud], HomeHost]:
    authority, taken = Authority.open(tmp_path / "trust"), set[str]()
    return lambda cloud: HomeHost(cloud, authority, 60.0, LeapingClock(), taken, dial=Dialler())


async def test_a_host_at_home_is_there_while_its_link_is(home: Callable[[MemoryCloud], HomeHost]) -> None:
    cloud = MemoryCloud()
    host = home(cloud)
    with pytest.raises(NotSettledError):
        host.in_service(None)
    connection = await host.connect({})
    assert host.in_service(connection).host == next(iter(cloud.nodes.values())).host
    connection.link.lose("kill -9")
    await until(lambda: not connection.alive)
    with pytest.raises(NotSettledError, match="not linked to"):
        host.in_service(connection)


def is_settled(standby: Standby) -> bool:
    try:
        standby.in_service()
    except NotSettledError:
        return False
    return True


async def test_a_standby_is_waited_for_and_then_there(home: Callable[[MemoryCloud], HomeHost]) -> None:
    cloud = MemoryCloud()
    cloud.boots.clear()

    async def warm(_: object) -> None:
        pass

    standby = Standby(lambda: home(cloud), {}, warm, LeapingClock())
    assert standby.in_service() == []
    standby.begin(None)
    await until(lambda: bool(cloud.nodes))
    with pytest.raises(NotSettledError, match="standby host is being started"):
        standby.in_service()
    cloud.boots.set()
    await until(lambda: is_settled(standby))
    (host,) = standby.in_service()
    assert host.host == next(iter(cloud.nodes.values())).host
    await standby.end(keep=False)


class Pool(MemoryCloud):
    """Keeps one warm host."""

    async def prepare(self, user_data: Callable[[str], str]) -> list[Node]:
        if not self.nodes:
            await self.create("warm", {}, user_data("warm-0"))
        return list(self.nodes.values())


async def test_warm_hosts_are_told_too_and_none_is_started_for_it(tmp_path: Path) -> None:
    pool, authority = Pool(), Authority.open(tmp_path)
    rotation = Rotation(authority, cast("Any", pool), [], LeapingClock())
    with pytest.raises(RotationRefusedError, match="warm-0 is not running"):
        await rotation.rotate()
    assert pool.nodes == {}
    await pool.prepare(lambda host: enrol.user_data(authority, host, b"t" * 32, 60.0))
    with pytest.raises(RotationRefusedError, match="warm did not take new certificates"):
        await rotation.rotate()
