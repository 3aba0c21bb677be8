"""Figure 7 as a fluid: two spikes of twice the home capacity, with the real profiler and the real scheduler."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from gateway.core.decide.scheduler import Scheduler
from policies.signals import (
    HOME,
    Command,
    DrainVm,
    Event,
    SetRoute,
    SlotEnded,
    StartVm,
    TerminateVm,
    VmDrained,
    VmGone,
    VmReady,
)
from tests.policies.fluid import Fluid, Lane
from tests.policies.policy_data import SWITCHING, query_settings, scheduler_settings

HOME_PER_S = 2000.0
SPIKES_S = ((10.0, 25.0), (75.0, 90.0))
END_S = 180.0


def spikes(at_s: float) -> float:
    high = any(from_s <= at_s < until_s for from_s, until_s in SPIKES_S)
    return HOME_PER_S * (2.0 if high else 0.3)


@dataclass
class Outcome:
    mean_s: float
    started_s: list[float]
    gone_s: list[float]
    events: int
    billed_s: float


def play(
    *,
    max_vms: int,
    boot_s: float = 3.0,
    wan_s: float = 0.07,
    share: float | None = None,
    room_events: float = 1.5 * HOME_PER_S,
) -> Outcome:
    fluid = Fluid(spikes, {HOME: Lane(HOME_PER_S, room_events=room_events)})
    settings = query_settings(share=share, switching=SWITCHING)
    scheduler = Scheduler(scheduler_settings(settings, max_vms=max_vms, boot_s=boot_s))
    booting: dict[str, float] = {}
    draining: set[str] = set()
    started_s: list[float] = []
    gone_s: list[float] = []
    ids = iter(range(1_000_000))

    def tell(kind: type[Event], **fields: Any) -> None:
        commands = scheduler.handle(kind(event_id=f"e{next(ids)}", at_s=fluid.now_s, **fields))
        scheduler.validate()
        for command in commands:
            obey(command)

    def obey(command: Command) -> None:
        match command:
            case StartVm():
                booting[command.vm] = fluid.now_s + boot_s
                started_s.append(fluid.now_s)
            case SetRoute():
                fluid.set_shares(dict(command.shares))
            case DrainVm():
                draining.add(command.vm)
            case TerminateVm():
                draining.discard(command.vm)
                fluid.remove(command.vm)
                gone_s.append(fluid.now_s)
                tell(VmGone, vm=command.vm)

    while fluid.now_s < END_S:
        slot = fluid.run_slot()
        for vm in [vm for vm, at_s in booting.items() if at_s <= fluid.now_s]:
            fluid.lanes[vm] = Lane(HOME_PER_S, wan_s=wan_s, room_events=room_events)
            tell(VmReady, vm=vm, billing_since_s=booting.pop(vm) - boot_s)
        for vm in sorted(draining):
            if not fluid.lanes[vm].queue:
                tell(VmDrained, vm=vm)
        tell(SlotEnded, queries=(slot,))
    assert not scheduler.vms
    events = sum(count for _, count in fluid.latencies)
    mean_s = sum(latency_s * count for latency_s, count in fluid.latencies) / events
    return Outcome(mean_s, started_s, gone_s, events, scheduler.totals(fluid.now_s).billed_s)


@pytest.fixture(scope="module")
def private_only() -> Outcome:
    return play(max_vms=0)


@pytest.fixture(scope="module")
def elastic() -> Outcome:
    return play(max_vms=1)


def test_the_vm_is_started_once_a_spike_and_given_back_after_it(elastic: Outcome) -> None:
    assert len(elastic.started_s) == len(elastic.gone_s) == len(SPIKES_S)
    for (from_s, until_s), started_s, gone_s in zip(SPIKES_S, elastic.started_s, elastic.gone_s, strict=True):
        assert from_s < started_s < until_s < gone_s < until_s + 50


def test_vms_are_given_back_within_the_periods_that_were_paid(elastic: Outcome) -> None:
    lived_s = [gone_s - started_s for started_s, gone_s in zip(elastic.started_s, elastic.gone_s, strict=True)]
    assert elastic.billed_s == sum(20.0 * -(-int(s * 1000) // 20_000) for s in lived_s)
    assert all(20.0 - (s % 20.0) <= 3.0 for s in lived_s)


def test_elastic_is_well_below_private_only(private_only: Outcome, elastic: Outcome) -> None:
    assert elastic.events == private_only.events
    assert private_only.started_s == []
    assert elastic.mean_s <= 0.7 * private_only.mean_s


def test_two_vms_are_no_worse_than_one(elastic: Outcome) -> None:
    assert play(max_vms=2).mean_s <= elastic.mean_s * 1.02


def test_a_fixed_tenth_as_in_the_paper_helps_less_than_feedback(private_only: Outcome) -> None:
    feedback = play(max_vms=1, room_events=float("inf"))
    tenth = play(max_vms=1, share=0.1, room_events=float("inf"))
    assert feedback.mean_s < 0.9 * tenth.mean_s
    assert tenth.mean_s < private_only.mean_s
