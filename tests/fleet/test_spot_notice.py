"""A spot VM is reclaimed: from its metadata service over a real link to the scheduler, and its runs go home."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

from gateway.core.decide.scheduler import Scheduler, SchedulerSettings
from gateway.hosts.enrol import dial
from infra.clock import Clock, SystemClock
from infra.clouds.base import Node
from infra.clouds.notices import reclaimed_in_s
from infra.link.keys.identity import HostIdentity
from infra.link.keys.trust import Authority, UserData
from infra.link.server import HostServer
from policies.money.billing import BillingTerms
from policies.money.ledger import Budget
from policies.signals import QuerySlot, SlotEnded, VmReclaimed
from policies.switching.query import QuerySettings
from policies.switching.switching import SwitchingSettings
from tests.clouds.metadata_server import MetadataServer
from tests.support.fleet_doubles import RUNTIME, Fleet, MemoryCloud
from tests.support.waiting import until

SWITCHING = SwitchingSettings(
    start_vm_above_s=3.0, send_above_s=2.0, keep_vm_above_s=1.0, keep_vm_bytes=1000, tolerance_s=0.0
)


class LinkedCloud(MemoryCloud):
    """The host's end of a real link stands for each VM, in this process; each polls the metadata service."""

    def __init__(self, metadata: str, clock: Clock) -> None:
        super().__init__()
        self.servers: list[HostServer] = []
        self._metadata = metadata
        self._clock = clock
        self._listening: list[asyncio.Task[None]] = []

    async def create(self, name: str, tags: Mapping[str, str], user_data: str) -> Node:
        told = UserData.from_json(user_data)
        server = HostServer(HostIdentity.open(told), told, RUNTIME, clock=self._clock)
        address, port = await server.start()
        await server.mark_ready(1.0)
        self.servers.append(server)
        self._listening.append(asyncio.create_task(self._listen(server)))
        node = Node(
            id=told.host,
            name=name,
            host=told.host,
            state="running",
            address=address,
            port=port,
            created_at_s=self._clock.wall(),
            tags=dict(tags),
        )
        self.nodes[node.id] = node
        return node

    async def _listen(self, server: HostServer) -> None:
        await server.mark_reclaimed(await reclaimed_in_s("ec2", self._clock, self._metadata))

    async def close(self) -> None:
        for task in self._listening:
            task.cancel()
        await asyncio.gather(*self._listening, return_exceptions=True)
        for server in self.servers:
            await server.close("the test is over")


async def test_a_vm_that_is_taken_back_is_drained_first_and_its_events_come_home(tmp_path: Path) -> None:
    clock = SystemClock()
    async with MetadataServer() as metadata:
        cloud = LinkedCloud(metadata.url, clock)
        fleet = Fleet(tmp_path, clock, dial=dial, cloud=cloud)
        scheduler = Scheduler(
            SchedulerSettings(
                queries=(QuerySettings(name="a", switching=SWITCHING, latency_qos_s=2.0, share=0.5),),
                max_vms=1,
                billing=BillingTerms(3600.0, 3600.0, 0.1, 0.0),
                budget=Budget(),
                boot_s=5.0,
                slot_s=1.0,
            )
        )
        fleet.listener = lambda event: fleet.actuator.execute(scheduler.handle(event))

        def slot() -> None:
            latency = (QuerySlot(query="a", latency_s=3.0),)
            fleet.emit(lambda event_id, at_s: SlotEnded(event_id=event_id, at_s=at_s, queries=latency))

        slot()
        await until(lambda: fleet.kinds("vm-1") == ["VmReady"])
        slot()
        assert fleet.queries["a"].shares == {"home": 0.5, "vm-1": 0.5}
        fleet.queries["a"].busy.add("vm-1")
        before_s = clock.now()
        metadata.take_back(120.0)
        await until(lambda: "VmReclaimed" in fleet.kinds("vm-1"))
        reclaimed = next(event for event in fleet.events if isinstance(event, VmReclaimed))
        assert 0.0 < reclaimed.ends_s - before_s <= 121.0
        assert fleet.queries["a"].shares == {"home": 1.0}
        assert "draining" in str(scheduler.vms["vm-1"])
        again = await dial("vm-1", next(iter(cloud.nodes)), _address(cloud), _authority(tmp_path), None, clock)
        assert 0.0 < await asyncio.wait_for(again.reclaimed(), 20.0) <= 120.0
        await again.close("seen")
        await until(lambda: fleet.kinds("vm-1")[-1] == "VmGone")
        assert cloud.nodes == {}
        assert fleet.queries["a"].lanes == set()
        await fleet.actuator.terminate_all()
        await cloud.close()
        assert fleet.actuator.failure is None


def _address(cloud: LinkedCloud) -> tuple[str, int]:
    (node,) = cloud.nodes.values()
    return node.address, node.port


def _authority(folder: Path) -> Authority:
    return Authority.open(folder / "trust")
