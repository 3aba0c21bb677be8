from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from gateway.fleet.reaper import Reaper
from infra.clock import Clock, SystemClock
from infra.clouds.base import Node, ThrottledError
from infra.clouds.process import ProcessCloud
from infra.link.keys.trust import UserData, new_token
from tests.leaping_clock import LeapingClock
from tests.support.fleet_doubles import TAGS, MemoryCloud
from tests.support.gateway_doubles import ManualClock
from tests.support.waiting import until

USER_DATA = UserData(host="vm-1", ca_pem="none", token=new_token()).to_json()
FAKE_WORKER = Path(__file__).parents[1] / "clouds" / "fake_worker.py"


class ListingFails(MemoryCloud):
    """A cloud that refuses the first ``throttled`` list requests."""

    def __init__(self) -> None:
        super().__init__()
        self.throttled = 0
        self.after_s = 0.0

    async def list(self, tags: object) -> list[Node]:
        if self.throttled:
            self.throttled -= 1
            raise ThrottledError("later", self.after_s)
        return [node for node in self.nodes.values() if TAGS.items() <= node.tags.items()]


def reaper_of(cloud: MemoryCloud, clock: Clock, known: Callable[[], set[str]] = set) -> Reaper:
    return Reaper(cloud, TAGS, known, clock)


async def names(cloud: MemoryCloud) -> set[str]:
    return {node.name for node in cloud.nodes.values()}


async def test_what_an_earlier_gateway_left_is_ended_at_once_whatever_it_is_called() -> None:
    cloud, clock = MemoryCloud(), LeapingClock()
    earlier, now = reaper_of(cloud, clock), reaper_of(cloud, clock, lambda: {"vm-1"})
    await cloud.create("vm-1", earlier.tags, USER_DATA)
    await cloud.create("vm-2", TAGS, USER_DATA)
    await cloud.create("vm-3", {"gateway": "of somebody else"}, USER_DATA)
    mine = await cloud.create("vm-1", now.tags, USER_DATA)
    await now.sweep()
    assert {node.name for node in cloud.nodes.values()} == {"vm-1", "vm-3"}
    assert mine.id in cloud.nodes


async def test_a_machine_that_nobody_has_is_ended_when_it_is_seen_twice() -> None:
    cloud, known = MemoryCloud(), {"vm-1"}
    reaper = reaper_of(cloud, LeapingClock(), lambda: known)
    for name in ("vm-1", "vm-2"):
        await cloud.create(name, reaper.tags, USER_DATA)
    await reaper.sweep()
    assert await names(cloud) == {"vm-1", "vm-2"}
    await reaper.sweep()
    assert await names(cloud) == {"vm-1"}


async def test_a_launch_in_flight_is_left_alone() -> None:
    cloud, known = MemoryCloud(), set[str]()
    reaper = reaper_of(cloud, LeapingClock(), lambda: known)
    await cloud.create("vm-1", reaper.tags, USER_DATA)
    await reaper.sweep()
    known.add("vm-1")
    for _ in range(3):
        await reaper.sweep()
    known.clear()
    await reaper.sweep()
    assert await names(cloud) == {"vm-1"}
    await reaper.sweep()
    assert await names(cloud) == set()


async def test_it_sweeps_each_minute_and_sooner_while_the_cloud_does_not_answer() -> None:
    cloud, clock = ListingFails(), ManualClock()
    cloud.throttled = 2
    await cloud.create("vm-1", TAGS, USER_DATA)
    reaper = reaper_of(cloud, clock)
    task = reaper.watch()
    assert not reaper.settled
    await asyncio.wait_for(reaper.first_sweep(), 5.0)
    assert await names(cloud) == {"vm-1"}
    began_s = clock.now()
    await until(lambda: not cloud.nodes, clock, 1.0)
    assert 9.0 <= clock.now() - began_s <= 15.0
    await cloud.create("vm-2", TAGS, USER_DATA)
    began_s = clock.now()
    await until(lambda: not cloud.nodes, clock, 1.0)
    assert clock.now() - began_s <= 62.0
    await reaper.stop()
    assert task.cancelled()


async def test_a_provider_that_wants_to_be_left_alone_is_while_nothing_is_lost_by_it() -> None:
    cloud, clock = ListingFails(), LeapingClock()
    cloud.throttled, cloud.after_s = 1, 120.0
    await cloud.create("vm-1", TAGS, USER_DATA)
    reaper = reaper_of(cloud, clock)
    begun_s = clock.now()
    reaper.watch()
    await until(lambda: not cloud.nodes, deadline_s=20.0)
    assert clock.now() - begun_s >= 120.0
    await reaper.stop()


async def test_an_earlier_gateway_s_machine_that_appears_late_is_ended_within_a_minute() -> None:
    cloud, clock = MemoryCloud(), ManualClock()
    earlier, reaper = reaper_of(cloud, clock), reaper_of(cloud, clock)
    began_s = clock.now()
    reaper.watch()
    await reaper.first_sweep()
    await cloud.create("vm-1", earlier.tags, USER_DATA)
    await until(lambda: not cloud.nodes, clock, 1.0)
    assert clock.now() - began_s <= 20.0
    await reaper.stop()


async def test_what_could_not_be_given_back_is_tried_again_a_minute_later() -> None:
    cloud, clock = MemoryCloud(), LeapingClock()
    reaper = reaper_of(cloud, clock)
    node = await cloud.create("vm-1", reaper.tags, USER_DATA)
    cloud.stubborn = 5
    await reaper.destroy(node)
    assert reaper.not_terminated == {node.id: f"vm-1 ({node.id})"}
    await reaper.sweep()
    await reaper.sweep()
    assert (cloud.nodes, reaper.not_terminated) == ({}, {})


async def test_at_the_end_nothing_with_the_tag_is_left(caplog: pytest.LogCaptureFixture) -> None:
    cloud = ListingFails()
    reaper = reaper_of(cloud, ManualClock())
    reaper.watch()
    await reaper.first_sweep()
    await cloud.create("vm-1", reaper.tags, USER_DATA)
    await reaper.stop()
    assert cloud.nodes == {}
    reaper.watch()
    await reaper.first_sweep()
    cloud.throttled = 1
    await reaper.stop()
    assert "check with the provider" in caplog.text


PROGRAM = """
import asyncio, sys
from pathlib import Path
from gateway.fleet.reaper import Reaper
from infra.clock import SystemClock
from infra.clouds.process import ProcessCloud

async def main():
    folder, user_data, *command = sys.argv[1:]
    cloud = ProcessCloud(Path(folder), SystemClock(), max_vms=9, worker_command=command)
    reaper = Reaper(cloud, {"gateway": "g1"}, lambda: {"vm-1", "vm-2", "vm-3"}, SystemClock())
    for name in ("vm-1", "vm-2"):
        await cloud.create(name, reaper.tags, user_data)
    asyncio.ensure_future(cloud.create("vm-3", reaper.tags, user_data.replace('"extra":{}', '"extra":{"silent":"1"}')))
    while len([1 for record in cloud._registry.all() if record.pid]) < 3:
        await asyncio.sleep(0.01)
    print("three", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


async def test_after_a_gateway_was_killed_the_next_one_leaves_no_orphan(tmp_path: Path) -> None:
    """Two VMs run and a third one boots when the gateway dies by SIGKILL."""

    def workers() -> list[psutil.Process]:
        listed = psutil.process_iter(["cmdline", "status", "pid"])
        return [
            process
            for process in listed
            if str(FAKE_WORKER) in (process.info["cmdline"] or ())
            and any(str(tmp_path) in argument for argument in process.info["cmdline"][2:])
            and process.info["status"] != psutil.STATUS_ZOMBIE
            and process.info["pid"] != gateway.pid
        ]

    folder = tmp_path / "vms"
    arguments = [str(folder), USER_DATA, sys.executable, str(FAKE_WORKER)]
    gateway = subprocess.Popen([sys.executable, "-c", PROGRAM, *arguments], stdout=subprocess.PIPE, text=True)
    assert gateway.stdout is not None
    assert gateway.stdout.readline() == "three\n"
    gateway.send_signal(signal.SIGKILL)
    gateway.wait()
    gateway.stdout.close()
    assert len(workers()) == 3
    cloud = ProcessCloud(folder, SystemClock(), max_vms=9, worker_command=arguments[2:])
    reaper = Reaper(cloud, {"gateway": "g1"}, set, SystemClock())
    restarted_s = time.monotonic()
    reaper.watch()
    await reaper.first_sweep()
    assert workers() == []
    assert time.monotonic() - restarted_s < 60.0
    assert await cloud.list({"gateway": "g1"}) == []
    await reaper.stop()
