from __future__ import annotations

import asyncio
import random
from functools import partial
from pathlib import Path

import msgspec
import pytest

from gateway.hosts.connection import QueryRefusedError
from infra.clouds.base import CapacityError, CloudError
from infra.link.channel import LinkLost
from infra.link.keys.trust import TrustError, UserData, new_token
from policies.signals import (
    Cause,
    DrainVm,
    Event,
    QueryKeptOff,
    SetRoute,
    StartVm,
    TerminateVm,
    VmFailed,
    VmLost,
    VmReady,
)
from tests.support.fleet_doubles import RUNTIME, TAGS, Fleet, boot_error, nobody_there
from tests.support.gateway_doubles import ManualClock
from tests.support.waiting import until

WHY = Cause("e0", "the test says so")
START, DRAIN, END = StartVm(vm="vm-1", cause=WHY), DrainVm(vm="vm-1", cause=WHY), TerminateVm(vm="vm-1", cause=WHY)


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    fleet = Fleet(tmp_path)
    fleet.listener = lambda event: _as_the_scheduler(fleet, event)
    return fleet


def _as_the_scheduler(fleet: Fleet, event: Event) -> None:
    if isinstance(event, VmFailed | VmLost):
        fleet.actuator.execute([TerminateVm(vm=event.vm, cause=WHY)])


async def ready(fleet: Fleet) -> None:
    fleet.actuator.execute([START])
    await until(lambda: fleet.kinds("vm-1") == ["VmReady"])


async def over(fleet: Fleet) -> None:
    """Wait until it has settled, and check that nothing of any VM is left."""
    await until(lambda: fleet.actuator.settled)
    assert fleet.cloud.nodes == {}
    assert all(query.lanes == set() for query in fleet.queries.values())
    assert fleet.actuator.failure is None
    assert all(link.closed_with is not None for link in fleet.dialler.links.values())


async def test_a_vm_from_its_start_to_its_end(fleet: Fleet) -> None:
    before_s = fleet.clock.now()
    await ready(fleet)
    (event,) = fleet.events
    assert isinstance(event, VmReady)
    assert before_s <= event.billing_since_s <= event.at_s
    assert all(query.lanes == {"vm-1"} for query in fleet.queries.values())
    assert [TAGS.items() <= node.tags.items() for node in fleet.cloud.nodes.values()] == [True]
    fleet.actuator.execute([SetRoute(query="a", shares=(("home", 0.5), ("vm-1", 0.5)), cause=WHY)])
    assert fleet.queries["a"].shares == {"home": 0.5, "vm-1": 0.5}
    fleet.actuator.execute([DRAIN])
    await until(lambda: fleet.kinds("vm-1") == ["VmReady", "VmDrained"])
    fleet.actuator.execute([END])
    await over(fleet)
    assert fleet.kinds("vm-1") == ["VmReady", "VmDrained", "VmGone"]
    assert fleet.closed_lanes == ["vm-1"]


@pytest.mark.parametrize(
    "refusal",
    [CapacityError("none left"), boot_error("vm-1"), OSError(28, "No space left on device"), TrustError("not ours")],
)
async def test_a_cloud_that_refuses(fleet: Fleet, refusal: Exception) -> None:
    fleet.cloud.refusals.append(refusal)
    fleet.actuator.execute([START])
    await over(fleet)
    assert fleet.kinds("vm-1") == ["VmFailed", "VmGone"]
    assert getattr(fleet.events[0], "reason", "") == str(refusal)


@pytest.mark.parametrize("refusal", [LinkLost("no route"), TrustError("an impostor"), OSError(113, "No route to host")])
async def test_a_machine_that_cannot_be_dialled_is_given_back(fleet: Fleet, refusal: Exception) -> None:
    fleet.dialler.refusal = refusal
    fleet.actuator.execute([START])
    await over(fleet)
    assert (fleet.kinds("vm-1"), fleet.cloud.created) == (["VmFailed", "VmGone"], 1)


async def test_a_vm_whose_price_cannot_be_written_down_is_not_ordered(fleet: Fleet) -> None:
    fleet.unpaid = OSError(28, "No space left on device")
    fleet.actuator.execute([START])
    await over(fleet)
    assert (fleet.kinds("vm-1"), fleet.cloud.created) == (["VmFailed", "VmGone"], 0)


async def test_a_machine_that_runs_something_else_is_given_back(fleet: Fleet) -> None:
    fleet.dialler.runtime = msgspec.structs.replace(RUNTIME, spark="3.5.1")
    fleet.actuator.execute([START])
    await over(fleet)
    assert fleet.kinds("vm-1") == ["VmFailed", "VmGone"]
    assert "spark: '4.3.0' here, '3.5.1' there" in getattr(fleet.events[0], "reason", "")


@pytest.mark.parametrize("refusal", [QueryRefusedError("no such column"), TimeoutError("too long")])
async def test_a_query_that_cannot_be_opened_is_kept_off_the_vm_which_serves_the_other(
    fleet: Fleet, refusal: Exception
) -> None:
    fleet.queries["b"].refusal = refusal
    fleet.actuator.execute([START])
    await until(lambda: fleet.kinds("vm-1") == ["QueryKeptOff", "VmReady"])
    assert [query.lanes for query in fleet.queries.values()] == [{"vm-1"}, set()]
    kept_off = fleet.events[0]
    assert isinstance(kept_off, QueryKeptOff)
    assert (kept_off.query, kept_off.reason) == ("b", str(refusal))
    # Opened anew at home, it may be tried again.
    fleet.queries["b"].refusal = None
    fleet.actuator.admit("b")
    await until(lambda: fleet.queries["b"].lanes == {"vm-1"})
    fleet.actuator.execute([END])
    await over(fleet)


async def test_a_query_whose_home_was_replaced_keeps_the_lanes_that_it_has(fleet: Fleet) -> None:
    await ready(fleet)
    fleet.actuator.admit("a")
    await until(lambda: "open a on vm-1" not in {task.get_name() for task in asyncio.all_tasks()})
    assert [query.attached for query in fleet.queries.values()] == [1, 1]
    fleet.queries["a"].lanes.clear()  # it was opened anew, with no lane but home's
    fleet.actuator.admit("a")
    await until(lambda: fleet.queries["a"].lanes == {"vm-1"})
    assert [query.attached for query in fleet.queries.values()] == [2, 1]


async def test_a_query_that_is_stopped_while_a_vm_opens_it_gets_the_vm_once_it_runs_again(fleet: Fleet) -> None:
    fleet.queries["a"].opens.clear()
    fleet.actuator.execute([START])
    await until(lambda: fleet.queries["a"].attaching == 1)
    fleet.queries["a"].started = False
    fleet.queries["a"].opens.set()
    await until(lambda: fleet.kinds("vm-1") == ["VmReady"])
    assert (fleet.queries["a"].lanes, fleet.queries["b"].lanes) == (set(), {"vm-1"})
    fleet.queries["a"].started = True
    fleet.actuator.admit("a")
    await until(lambda: fleet.queries["a"].lanes == {"vm-1"})
    fleet.actuator.execute([END])
    await over(fleet)


async def test_a_query_that_is_opened_while_the_vm_comes_up_gets_it_too(fleet: Fleet) -> None:
    fleet.queries["b"].started = False
    fleet.queries["a"].opens.clear()
    fleet.actuator.execute([START])
    await until(lambda: "vm-1" in fleet.dialler.links)
    fleet.queries["b"].started = True
    fleet.queries["a"].opens.set()
    await until(lambda: all(query.lanes == {"vm-1"} for query in fleet.queries.values()))
    fleet.actuator.execute([END])
    await over(fleet)


async def test_a_query_that_dies_on_a_vm_is_kept_off_it_and_the_last_one_costs_the_vm(fleet: Fleet) -> None:
    await ready(fleet)
    fleet.actuator.keep_off("a", "vm-1", "its function raises")
    await until(lambda: fleet.queries["a"].lanes == set())
    assert fleet.kinds("vm-1") == ["VmReady", "QueryKeptOff"]
    assert fleet.queries["b"].lanes == {"vm-1"}
    fleet.actuator.keep_off("b", "vm-1", "it gets no answers")
    fleet.actuator.keep_off("b", "vm-9", "never was")
    await over(fleet)
    lost = next(event for event in fleet.events if isinstance(event, VmLost))
    assert lost.reason == "it gets no answers"
    assert fleet.kinds("vm-1") == ["VmReady", "QueryKeptOff", "VmLost", "VmGone"]


async def test_a_vm_that_takes_no_query_is_given_back(fleet: Fleet) -> None:
    for query in fleet.queries.values():
        query.refusal = QueryRefusedError("no such column")
    fleet.actuator.execute([START])
    await over(fleet)
    assert fleet.kinds("vm-1") == ["VmFailed", "VmGone"]


async def test_a_link_that_is_cut_while_queries_are_opened_costs_the_vm_and_leaves_no_lane(fleet: Fleet) -> None:
    fleet.queries["a"].opens.clear()
    fleet.queries["b"].refusal = LinkLost("cut")
    fleet.actuator.execute([START])
    await until(lambda: fleet.kinds("vm-1") == ["VmFailed", "VmGone"])
    fleet.queries["a"].opens.set()
    await until(lambda: not fleet.queries["a"].attaching)
    await over(fleet)


async def test_a_link_lost_before_the_host_is_ready(fleet: Fleet) -> None:
    fleet.dialler.ready = False
    fleet.actuator.execute([START])
    await until(lambda: "vm-1" in fleet.dialler.links)
    fleet.dialler.links["vm-1"].lose("the cable was cut")
    await over(fleet)
    assert fleet.kinds("vm-1") == ["VmFailed", "VmGone"]


@pytest.mark.parametrize("stage", ["ordered", "not ready", "opening"])
async def test_a_vm_that_is_ended_during_its_launch_is_given_back(fleet: Fleet, stage: str) -> None:
    if stage == "ordered":
        fleet.cloud.boots.clear()
    fleet.dialler.ready = stage != "not ready"
    if stage == "opening":
        fleet.queries["a"].opens.clear()
    fleet.actuator.execute([START])
    if stage == "ordered":
        await until(lambda: len(fleet.cloud.nodes) == 1)
    else:
        await until(lambda: "vm-1" in fleet.dialler.links)
    fleet.actuator.execute([END])
    fleet.cloud.boots.set()
    fleet.queries["a"].opens.set()
    await over(fleet)
    assert fleet.kinds("vm-1")[-1] == "VmGone"
    assert "VmReady" not in fleet.kinds("vm-1")


async def test_a_vm_ended_in_the_moment_of_its_order_is_given_back(fleet: Fleet) -> None:
    fleet.actuator.execute([START, END])
    await over(fleet)
    assert fleet.kinds("vm-1") == ["VmGone"]


async def test_a_lost_vm_gives_its_lanes_up_before_the_scheduler_hears_of_it(fleet: Fleet) -> None:
    await ready(fleet)
    lanes_then: list[set[str]] = []

    def listen(event: Event) -> None:
        if isinstance(event, VmLost):
            lanes_then.extend(set(query.lanes) for query in fleet.queries.values())
        _as_the_scheduler(fleet, event)

    fleet.listener = listen
    fleet.dialler.refusal = nobody_there()
    fleet.dialler.links["vm-1"].lose("kill -9")
    await over(fleet)
    assert lanes_then == [set(), set()]
    assert fleet.kinds("vm-1") == ["VmReady", "VmLost", "VmGone"]


@pytest.mark.parametrize("cause", [TimeoutError(), ConnectionResetError(104, "Connection reset by peer")], ids=repr)
async def test_a_vm_that_was_cut_off_is_linked_again(fleet: Fleet, cause: Exception) -> None:
    await ready(fleet)
    cut = fleet.dialler.links["vm-1"]
    fleet.dialler.refusal = LinkLost("vm-1 did not answer within 3 s")
    fleet.dialler.refusal.__cause__ = cause
    cut.lose("no heartbeat for 2.5 s")
    await until(lambda: all(query.lanes == set() for query in fleet.queries.values()))
    assert fleet.kinds("vm-1") == ["VmReady"], "it is waited for"
    fleet.dialler.refusal = None
    await until(lambda: all(query.lanes == {"vm-1"} for query in fleet.queries.values()))
    assert fleet.dialler.links["vm-1"] is not cut
    assert fleet.kinds("vm-1") == ["VmReady"], "it was never lost"
    fleet.actuator.execute([END])
    await over(fleet)
    assert (fleet.kinds("vm-1"), fleet.cloud.created) == (["VmReady", "VmGone"], 1)


async def test_a_vm_that_stays_away_is_lost_when_its_host_has_ended_itself(tmp_path: Path) -> None:
    clock = ManualClock()
    fleet = Fleet(tmp_path, clock)
    fleet.listener = lambda event: _as_the_scheduler(fleet, event)
    await ready(fleet)
    fleet.dialler.refusal = LinkLost("vm-1 did not answer within 3 s")
    cut_s = clock.now()
    fleet.dialler.links["vm-1"].lose("no heartbeat for 2.5 s")
    await until(lambda: "VmLost" in fleet.kinds("vm-1"), clock, 0.2)
    (lost,) = (event for event in fleet.events if isinstance(event, VmLost))
    assert lost.reason == "no heartbeat for 2.5 s"
    assert lost.at_s - cut_s == pytest.approx(60.0, abs=0.5)
    await over(fleet)


async def test_a_cut_of_ten_minutes_costs_the_vm_and_those_ordered_meanwhile(tmp_path: Path) -> None:
    clock = ManualClock()
    fleet = Fleet(tmp_path, clock)
    fleet.listener = lambda event: _as_the_scheduler(fleet, event)
    await ready(fleet)
    fleet.dialler.refusal = LinkLost("it did not answer within 3 s")
    healed_s = clock.now() + 600.0
    fleet.dialler.links["vm-1"].lose("no heartbeat for 2.5 s")
    await until(lambda: "VmGone" in fleet.kinds("vm-1"), clock, 0.2)
    number = 1
    while clock.now() < healed_s:
        vm = f"vm-{(number := number + 1)}"
        fleet.actuator.execute([StartVm(vm=vm, cause=WHY)])
        await until(partial(_ended, fleet, vm), clock, 0.2)
        clock.advance(60.0)
    assert fleet.cloud.nodes == {}
    fleet.dialler.refusal = None
    fleet.actuator.execute([StartVm(vm="vm-99", cause=WHY)])
    await until(lambda: fleet.kinds("vm-99") == ["VmReady"])
    assert all(query.lanes == {"vm-99"} for query in fleet.queries.values())
    fleet.actuator.execute([TerminateVm(vm="vm-99", cause=WHY)])
    await over(fleet)


@pytest.mark.parametrize("refusal", [TrustError("an impostor"), nobody_there()])
async def test_a_vm_that_says_no_is_not_waited_for(fleet: Fleet, refusal: Exception) -> None:
    await ready(fleet)
    fleet.dialler.refusal = refusal
    before_s = fleet.clock.now()
    fleet.dialler.links["vm-1"].lose("the other end closed the connection")
    await over(fleet)
    (lost,) = (event for event in fleet.events if isinstance(event, VmLost))
    assert lost.at_s - before_s < 20.0


async def test_a_vm_that_is_back_and_takes_no_query_is_lost(fleet: Fleet) -> None:
    await ready(fleet)
    for query in fleet.queries.values():
        query.refusal = QueryRefusedError("no such column")
    fleet.dialler.links["vm-1"].lose("no heartbeat for 2.5 s")
    await over(fleet)
    assert fleet.kinds("vm-1") == ["VmReady", "VmLost", "VmGone"]


async def test_a_vm_that_is_given_back_while_it_is_away(fleet: Fleet) -> None:
    await ready(fleet)
    fleet.dialler.refusal = LinkLost("vm-1 did not answer within 3 s")
    fleet.dialler.links["vm-1"].lose("no heartbeat for 2.5 s")
    await until(lambda: all(query.lanes == set() for query in fleet.queries.values()))
    fleet.actuator.execute([END])
    await over(fleet)
    assert fleet.kinds("vm-1") == ["VmReady", "VmGone"]


async def test_draining_waits_for_what_is_open(tmp_path: Path) -> None:
    clock = ManualClock()
    fleet = Fleet(tmp_path, clock)
    await ready(fleet)
    fleet.queries["b"].busy.add("vm-1")
    fleet.actuator.execute([DRAIN])
    for _ in range(20):
        await until(lambda: clock.sleeper_count > 0)
        clock.advance(1.0)
    assert fleet.kinds("vm-1") == ["VmReady"]
    fleet.queries["b"].busy.clear()
    await until(lambda: "VmDrained" in fleet.kinds("vm-1"), clock, 1.0)
    fleet.actuator.execute([END])
    await over(fleet)


async def test_a_drain_that_does_not_end_is_broken_off(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path)
    await ready(fleet)
    fleet.queries["b"].busy.add("vm-1")
    fleet.actuator.execute([DRAIN, END])
    await over(fleet)
    assert fleet.kinds("vm-1") == ["VmReady", "VmGone"]


async def test_a_machine_that_the_cloud_takes_back_at_the_third_try(fleet: Fleet) -> None:
    await ready(fleet)
    fleet.cloud.stubborn = 2
    fleet.actuator.execute([END])
    await over(fleet)
    assert fleet.actuator.reaper.not_terminated == {}


async def test_a_machine_that_is_never_taken_back_is_said_loudly(
    fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    await ready(fleet)
    fleet.cloud.stubborn = 1000
    fleet.actuator.execute([END])
    await until(lambda: fleet.actuator.settled)
    assert 1000 - fleet.cloud.stubborn == 5
    assert fleet.kinds("vm-1") == ["VmReady", "VmGone"]
    assert fleet.actuator.reaper.not_terminated == {"i-1": "vm-1 (i-1)"}
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == [
        "vm-1 (i-1) could not be terminated: it may still cost money; terminate it by hand"
    ]


async def test_the_vms_of_an_earlier_gateway_are_given_back_and_no_others(fleet: Fleet) -> None:
    text = UserData(host="vm-7", ca_pem="none", token=new_token()).to_json()
    for tags in (TAGS, TAGS, {"gateway": "g2"}):
        await fleet.cloud.create("vm-7", tags, text)
    fleet.actuator.handle_earlier_vms()
    assert not fleet.actuator.settled
    fleet.actuator.execute([StartVm(vm="vm-1", cause=WHY)])
    await until(lambda: len(fleet.cloud.nodes) == 2)
    await fleet.actuator.terminate_all()
    assert [dict(node.tags) for node in fleet.cloud.nodes.values()] == [{"gateway": "g2"}]


async def test_a_gateway_that_cannot_go_on_gives_everything_back(fleet: Fleet) -> None:
    await ready(fleet)
    fleet.cloud.boots.clear()
    fleet.actuator.execute([StartVm(vm="vm-2", cause=WHY)])
    await until(lambda: len(fleet.cloud.nodes) == 2)
    await fleet.actuator.terminate_all()
    await over(fleet)


async def test_a_mistake_in_a_task_is_noted_and_the_machine_is_not_forgotten(fleet: Fleet) -> None:
    def break_down(event: Event) -> None:
        raise ValueError("no such edge")

    fleet.listener = break_down
    fleet.actuator.execute([START])
    await until(lambda: fleet.actuator.failure is not None)
    await fleet.actuator.terminate_all()
    assert fleet.cloud.nodes == {}


@pytest.mark.parametrize("seed", range(30))
async def test_whatever_happens_every_machine_is_given_back(fleet: Fleet, seed: int) -> None:
    random_ = random.Random(seed)
    vms: list[str] = []
    ended: set[str] = set()

    def listen(event: Event) -> None:
        if isinstance(event, VmFailed | VmLost) and event.vm not in ended:
            ended.add(event.vm)
            fleet.actuator.execute([TerminateVm(vm=event.vm, cause=WHY)])

    def one_thing() -> None:
        match random_.randrange(7):
            case 0 | 1:
                vms.append(f"vm-{len(vms)}")
                fleet.dialler.ready = random_.random() < 0.7
                fleet.cloud.refusals = [CloudError("no")] if random_.random() < 0.2 else []
                fleet.queries["a"].refusal = QueryRefusedError("no") if random_.random() < 0.2 else None
                fleet.actuator.execute([StartVm(vm=vms[-1], cause=WHY)])
            case 2 if left := [vm for vm in vms if vm not in ended]:
                ended.add(vm := random_.choice(left))
                fleet.actuator.execute([TerminateVm(vm=vm, cause=WHY)])
            case 3 if fleet.dialler.links:
                random_.choice(list(fleet.dialler.links.values())).lose("lost")
            case 4 if fleet.dialler.links:
                vm = random_.choice(list(fleet.dialler.links))
                fleet.actuator.keep_off(random_.choice("ab"), vm, "it cannot go on")
            case 5:
                fleet.cloud.stubborn = random_.randrange(3)
            case _:
                for gate in (fleet.cloud.boots, fleet.queries["b"].opens):
                    gate.set() if random_.random() < 0.5 else gate.clear()

    fleet.listener = listen
    for _ in range(40):
        one_thing()
        for _ in range(random_.randrange(6)):
            await asyncio.sleep(0)
    fleet.actuator.execute([TerminateVm(vm=vm, cause=WHY) for vm in vms if vm not in ended])
    ended.update(vms)
    await over(fleet)
    for vm in vms:
        said = fleet.kinds(vm)
        assert said.count("VmGone") == 1
        assert said.count("VmReady") + said.count("VmFailed") <= 1


@pytest.mark.parametrize(("size", "usd_per_hour"), [("small", 0.05), ("unheard of", None), ("", None)])
async def test_the_price_of_the_size_that_was_had_is_told(
    tmp_path: Path, size: str, usd_per_hour: float | None
) -> None:
    fleet = Fleet(tmp_path, size_prices={"small": 0.05, "large": 0.1})
    fleet.cloud.size = size
    await ready(fleet)
    (event,) = fleet.events
    assert isinstance(event, VmReady)
    assert event.usd_per_hour == usd_per_hour
    fleet.actuator.execute([END])
    await over(fleet)


def _ended(fleet: Fleet, vm: str) -> bool:
    return fleet.kinds(vm) == ["VmFailed", "VmGone"]
