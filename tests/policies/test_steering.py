"""What an operator may order, as events in and the exact list of commands out."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest

from gateway.core.decide.scheduler import Scheduler
from gateway.views.why.eventlog import LoggedEvent, replay
from gateway.views.why.plainjson import dumps, loads
from policies.money.ledger import Budget
from policies.signals import HOME, DrainAll, QueryOpened, QuerySlot, SlotEnded, VmReady
from policies.steering import DecisionsPaused, DecisionsResumed, QueryPinned, VmStopOrdered
from policies.vms.vm import VmState
from tests.policies.policy_data import (
    ALL_HOME,
    HALF,
    TERMS,
    Checked,
    draining,
    idle,
    query_settings,
    scheduler_settings,
    sending,
    starting,
    states,
    until,
)

ALL_AWAY = ("route", "q", {HOME: 0.0, "vm-1": 1.0})


def verdict(checked: Checked) -> str:
    return checked.scheduler.last_decisions[0].verdict


def pinned(checked: Checked, share: float | None, for_s: float = inf) -> list[tuple[object, ...]]:
    return checked.tell(QueryPinned, query="q", share=share, until_s=checked.now_s + for_s)


# ----------------------------------------------------------------------------------------------------------------- pins


def test_a_query_that_is_pinned_home_comes_back_at_once_and_asks_for_no_vm() -> None:
    checked = sending()
    assert pinned(checked, 0.0, 10.0) == [ALL_HOME]
    until(checked, checked.now_s + 9, 9.0)
    assert states(checked) == [VmState.IDLE]
    assert verdict(checked) == "stays home: it is pinned home"
    assert checked.slot(9.0) == [HALF], "the pin ended by itself"


def test_a_pin_to_the_cloud_launches_one_vm_whatever_the_latency_and_no_second_one() -> None:
    checked = Checked()
    assert pinned(checked, 1.0) == []
    assert checked.slot(0.0) == [("start", "vm-1")]
    assert verdict(checked) == "stays home although it is pinned to the cloud: no VM is ready; vm-1 is starting"
    checked.tell(VmReady, vm="vm-1", billing_since_s=checked.now_s)
    assert checked.slot(0.0) == [ALL_AWAY]
    until(checked, 118.0, 0.0)
    assert states(checked) == [VmState.SENDING]
    until(checked, 150.0, 0.0)
    assert states(checked) == [VmState.SENDING], "it is kept although L < L_p"
    assert "KEEP" in [line.happened.name for line in checked.scheduler.story("vm-1")]
    assert pinned(checked, None) == [ALL_HOME]


@pytest.mark.parametrize(("mode", "share"), [("data", 0.25), ("query", 1.0)])
def test_a_pinned_share_is_the_share_unless_the_query_moves_whole(mode: str, share: float) -> None:
    checked = idle(queries=(query_settings(mode=mode),))
    assert pinned(checked, 0.25) == [("route", "q", {HOME: 1 - share, "vm-1": share})]
    assert checked.slot(0.0) == []
    assert "to vm-1: 25.0% of its events are pinned to the cloud" in verdict(checked)


@pytest.mark.parametrize("reason", ["mode", "plan", "budget"])
def test_a_pin_does_not_overrule_what_keeps_a_query_home(reason: str) -> None:
    settings: dict[str, Any] = {"queries": (query_settings(mode="off" if reason == "mode" else "auto"),)}
    if reason == "budget":
        settings["budget"] = Budget(usd_per_day=0.0)
    checked = Checked(scheduler_settings(**settings))
    if reason == "plan":
        checked.tell(QueryOpened, query="q", switchable=False, reason="it keeps state")
    pinned(checked, 1.0)
    until(checked, 110.0, 9.0)
    assert states(checked) == []


def test_a_pin_waits_while_launches_fail_and_while_the_gateway_drains() -> None:
    checked = Checked()
    checked.tell(DrainAll)
    pinned(checked, 1.0)
    assert checked.slot(9.0) == []


def test_an_unknown_query_cannot_be_pinned() -> None:
    with pytest.raises(ValueError, match="query 'x' does not exist; the queries are q"):
        Checked().tell(QueryPinned, query="x", share=0.0)


# ---------------------------------------------------------------------------------------------------------------- pause


def test_while_decisions_are_paused_nothing_is_launched_and_no_route_changes() -> None:
    checked = Checked()
    checked.tell(DecisionsPaused, until_s=120.0)
    until(checked, 119.0, 9.0)
    assert states(checked) == []
    assert verdict(checked).endswith("an operator paused all decisions")
    assert checked.scheduler.paused_until_s == 120.0
    assert checked.slot(9.0) == []
    assert checked.slot(9.0) == [("start", "vm-1")], "tau began when the pause ended"


def test_a_vm_is_kept_during_a_pause_and_stopped_once_the_budget_is_spent() -> None:
    checked = sending(budget=Budget(usd_per_day=2.5 * TERMS.time_usd(20.0)))
    checked.tell(DecisionsPaused)
    until(checked, 139.0, 0.0)
    assert states(checked) == [VmState.SENDING], "neither L < L_d nor L < L_p counts"
    assert checked.slot(0.0) == [ALL_HOME, ("drain", "vm-1")]
    assert checked.scheduler.routes["q"] == ((HOME, 1.0),)


def test_resumed_decisions_take_the_latency_into_account_again() -> None:
    checked = sending()
    checked.tell(DecisionsPaused)
    assert checked.slot(0.0) == []
    checked.tell(DecisionsResumed)
    assert checked.scheduler.paused_until_s is None
    assert checked.slot(0.0) == [ALL_HOME]


# ------------------------------------------------------------------------------------------------------------ stop a VM


def test_a_vm_is_drained_or_terminated_on_an_order() -> None:
    assert sending().tell(VmStopOrdered, vm="vm-1") == [ALL_HOME, ("drain", "vm-1")]
    assert sending().tell(VmStopOrdered, vm="vm-1", at_once=True) == [ALL_HOME, ("terminate", "vm-1")]
    assert starting().tell(VmStopOrdered, vm="vm-1") == [("terminate", "vm-1")]
    assert draining().tell(VmStopOrdered, vm="vm-1") == []
    assert draining().tell(VmStopOrdered, vm="vm-1", at_once=True) == [("terminate", "vm-1")]


def test_a_vm_that_never_was_cannot_be_stopped() -> None:
    with pytest.raises(ValueError, match="'vm-7', which was never started"):
        Checked().tell(VmStopOrdered, vm="vm-7")


def test_a_log_with_orders_of_an_operator_replays_to_the_same_commands() -> None:
    settings = scheduler_settings()
    scheduler, steps = Scheduler(settings), []
    events = [
        QueryPinned(event_id="e1", at_s=100.0, query="q", share=0.25, until_s=130.0),
        SlotEnded(event_id="e2", at_s=101.0, queries=(QuerySlot(query="q", latency_s=0.0),)),
        VmReady(event_id="e3", at_s=102.0, vm="vm-1", billing_since_s=101.0),
        DecisionsPaused(event_id="e4", at_s=102.5),
        SlotEnded(event_id="e5", at_s=103.0, queries=(QuerySlot(query="q", latency_s=0.0),)),
        DecisionsResumed(event_id="e6", at_s=103.5),
        VmStopOrdered(event_id="e7", at_s=104.0, vm="vm-1", at_once=True),
    ]
    for event in events:
        commands = tuple(dumps(command) for command in scheduler.handle(event))
        assert loads(dumps(event)) == event
        steps.append(LoggedEvent(loads(dumps(event)), commands))
    found = replay(settings, steps)
    assert (found.difference, found.events) == ("", 7)
    assert found.commands == 4, "a start, a route to the VM also while paused, a route home, an end"
