"""A restarted gateway adopts the VMs of the one before it that are paid for and answer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from gateway.fleet.reaper import Reaper
from gateway.hosts.enrol import dial
from infra.clock import SystemClock
from infra.clouds.base import Node
from infra.link.channel import LinkLost
from infra.link.client import enrol
from infra.link.keys.identity import HostIdentity
from infra.link.keys.trust import Authority, TrustError, UserData, new_token
from infra.link.server import HostServer
from policies.signals import Cause, Event, StartVm, TerminateVm, VmAdopted, VmLost
from tests.support.fleet_doubles import RUNTIME, TAGS, Fleet, MemoryCloud, nobody_there
from tests.support.gateway_doubles import ManualClock
from tests.support.waiting import until

WHY = Cause("e0", "the test says so")
HOST = "vm-7-0a"


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    return Fleet(tmp_path, ManualClock(), inherited={"vm-7"})


async def leave(fleet: Fleet, name: str = "vm-7", host: str = HOST) -> Node:
    """Rent a VM as an earlier gateway."""
    earlier = Reaper(fleet.cloud, TAGS, set, fleet.clock)
    told = UserData(host=host, ca_pem="none", token=new_token()).to_json()
    return await fleet.cloud.create(name, earlier.tags, told)


async def test_it_gets_the_queries_once_they_are_open_and_stays(fleet: Fleet) -> None:
    node = await leave(fleet)
    fleet.actuator.handle_earlier_vms()
    await until(lambda: HOST in fleet.dialler.links)
    assert fleet.events == []
    fleet.actuator.queries_are_open()
    await until(lambda: fleet.kinds(HOST) == ["VmAdopted"])
    (event,) = fleet.events
    assert isinstance(event, VmAdopted)
    assert event.at_s - event.billing_since_s == fleet.clock.wall() - node.created_at_s
    assert event.booked_s == 1000.0
    assert all(query.lanes == {HOST} for query in fleet.queries.values())
    for _ in range(3):
        await fleet.actuator.reaper.sweep()
    assert node.id in fleet.cloud.nodes
    fleet.actuator.execute([TerminateVm(vm=HOST, cause=WHY)])
    await until(lambda: fleet.kinds(HOST) == ["VmAdopted", "VmGone"])
    assert fleet.cloud.nodes == {}
    await fleet.actuator.terminate_all()
    assert fleet.actuator.failure is None


async def test_one_that_is_lost_later_is_lost_like_any_other(fleet: Fleet) -> None:
    def as_the_scheduler(event: Event) -> None:
        if isinstance(event, VmLost):
            fleet.actuator.execute([TerminateVm(vm=event.vm, cause=WHY)])

    fleet.listener = as_the_scheduler
    await leave(fleet)
    fleet.actuator.handle_earlier_vms()
    fleet.actuator.queries_are_open()
    await until(lambda: fleet.kinds(HOST) == ["VmAdopted"])
    fleet.dialler.refusal = nobody_there()
    fleet.dialler.links[HOST].lose("kill -9")
    await until(lambda: fleet.kinds(HOST) == ["VmAdopted", "VmLost", "VmGone"])
    assert fleet.cloud.nodes == {}
    await fleet.actuator.terminate_all()


@pytest.mark.parametrize(
    "refusal", [LinkLost("no route"), TrustError("not enrolled"), OSError(113, "No route to host")]
)
async def test_one_that_does_not_answer_is_given_back(fleet: Fleet, refusal: Exception) -> None:
    await leave(fleet)
    fleet.dialler.refusal = refusal
    fleet.actuator.handle_earlier_vms()
    await fleet.actuator.reaper.first_sweep()
    assert (fleet.cloud.nodes, fleet.events) == ({}, [])
    await fleet.actuator.terminate_all()


async def test_one_that_nobody_had_reserved_money_for_is_given_back(fleet: Fleet) -> None:
    await leave(fleet, name="vm-8", host="vm-8-0b")
    fleet.actuator.handle_earlier_vms()
    await fleet.actuator.reaper.first_sweep()
    assert (fleet.cloud.nodes, fleet.dialler.links) == ({}, {})
    await fleet.actuator.terminate_all()


async def test_one_that_runs_something_else_is_given_back_and_never_mentioned(fleet: Fleet) -> None:
    await leave(fleet)
    fleet.dialler.runtime = msgspec.structs.replace(RUNTIME, spark="3.5.1")
    fleet.actuator.handle_earlier_vms()
    fleet.actuator.queries_are_open()
    await until(lambda: not fleet.cloud.nodes and fleet.actuator.settled)
    assert fleet.events == []
    assert fleet.actuator.failure is None
    await fleet.actuator.terminate_all()


async def test_a_gateway_that_stops_before_its_queries_are_open_gives_it_back(fleet: Fleet) -> None:
    await leave(fleet)
    fleet.actuator.handle_earlier_vms()
    await until(lambda: HOST in fleet.dialler.links)
    await fleet.actuator.terminate_all()
    assert (fleet.cloud.nodes, fleet.events) == ({}, [])
    assert fleet.dialler.links[HOST].closed_with is not None


async def test_a_launch_waits_until_the_earlier_ones_are_dealt_with(fleet: Fleet) -> None:
    await leave(fleet)
    fleet.actuator.handle_earlier_vms()
    fleet.actuator.queries_are_open()
    fleet.actuator.execute([StartVm(vm="vm-1", cause=WHY)])
    await until(lambda: fleet.kinds("vm-1") == ["VmReady"] and fleet.kinds(HOST) == ["VmAdopted"])
    assert len(fleet.cloud.nodes) == 2
    await fleet.actuator.terminate_all()
    assert fleet.cloud.nodes == {}


class OneMachine(MemoryCloud):
    """A cloud whose VM listens on a port that is known only later."""

    port = 0

    async def list(self, tags: object) -> list[Node]:
        return [
            Node(
                id=node.id,
                name=node.name,
                host=node.host,
                state=node.state,
                address=node.address,
                port=self.port,
                created_at_s=node.created_at_s,
                tags=node.tags,
            )
            for node in self.nodes.values()
        ]


@pytest.fixture
async def worker(tmp_path: Path) -> AsyncIterator[tuple[HostServer, int]]:
    """The engine host's end of a link, enrolled by an earlier gateway that has died since."""
    authority = Authority.open(tmp_path / "trust")
    token = new_token()
    told = UserData(host=HOST, ca_pem=authority.ca_pem, token=token)
    server = HostServer(HostIdentity.open(told), told, RUNTIME, clock=SystemClock())
    address = await server.start()
    await server.mark_ready(1.0)
    await enrol(address, authority, HOST, token, 20.0)
    died = await dial("vm-7", HOST, address, authority, None, SystemClock())
    died.link.lose("kill -9")
    await died.lost()
    yield server, address[1]
    await server.close("the test is over")


async def test_over_a_real_link_the_certificate_of_the_earlier_enrolment_is_enough(
    tmp_path: Path, worker: tuple[HostServer, int]
) -> None:
    server, port = worker
    cloud = OneMachine()
    cloud.port = port
    fleet = Fleet(tmp_path, SystemClock(), inherited={"vm-7"}, dial=dial, cloud=cloud)
    await leave(fleet)
    fleet.actuator.handle_earlier_vms()
    fleet.actuator.queries_are_open()
    await until(lambda: fleet.kinds(HOST) == ["VmAdopted"])
    before_s = server.last_gateway_s
    await until(lambda: server.last_gateway_s > before_s, what="a heartbeat of the gateway")
    await fleet.actuator.terminate_all()
    assert cloud.nodes == {}
