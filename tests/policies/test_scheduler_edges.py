"""Every edge of Figure 4, as events in and the exact list of commands out."""

from typing import Any

import pytest

from gateway.core.decide.scheduler import Scheduler
from policies.signals import (
    HOME,
    Cause,
    DrainAll,
    Event,
    QueryKeptOff,
    QueryOpened,
    QuerySlot,
    SlotEnded,
    StartVm,
    StopAll,
    VmDrained,
    VmFailed,
    VmGone,
    VmLost,
    VmReady,
    VmReclaimed,
)
from policies.vms.vm import ImpossibleTransitionError, VmState
from tests.policies.policy_data import (
    ALL_HOME,
    HALF,
    TERMS,
    Checked,
    draining,
    ending,
    idle,
    query_settings,
    scheduler_settings,
    sending,
    starting,
    states,
    until,
)

# ----------------------------------------------------------------------------------------------- absent, waiting, start


def test_nothing_is_started_below_l_s() -> None:
    checked = Checked()
    until(checked, 130.0, 2.99)
    assert states(checked) == []


def test_tau_must_elapse_without_a_break() -> None:
    checked = Checked()
    assert checked.slot(3.0) == []
    assert checked.slot(2.9) == []
    assert checked.slot(3.0) == []
    assert checked.slot(3.0) == [("start", "vm-1")]
    story = [line.happened.name for line in checked.scheduler.story("vm-1")]
    assert story == ["HIGH", "CALM", "HIGH", "TOLERATED"]


def test_a_start_names_its_cause() -> None:
    scheduler = Scheduler(scheduler_settings())
    for at in (1, 2):
        slot = QuerySlot(query="q", latency_s=3.25)
        commands = scheduler.handle(SlotEnded(event_id=f"e{at}", at_s=at, queries=(slot,)))
    why = "q: L 3.25 s >= start_vm_above for tolerance"
    assert commands == [StartVm(vm="vm-1", cause=Cause("e2", why))]
    assert scheduler.story("vm-1")[-1].why == why


def test_no_event_goes_to_a_vm_that_is_starting() -> None:
    checked = starting()
    until(checked, 110.0, 9.0)
    assert states(checked) == [VmState.STARTING]


def test_a_launch_that_fails_is_cleaned_up_and_tried_again_later_and_later() -> None:
    checked = starting()
    for vm, wait_s in (("vm-1", 1), ("vm-2", 2), ("vm-3", 4), ("vm-4", 8)):
        assert checked.tell(VmFailed, vm=vm, reason="no capacity") == [("terminate", vm)]
        assert checked.tell(VmGone, vm=vm) == []
        failed_s = checked.now_s
        commands: list[tuple[object, ...]] = []
        while not commands:
            commands = checked.slot(4.0)
        assert checked.now_s - failed_s == max(2, wait_s)
        assert commands[0][0] == "start"
    assert checked.scheduler.totals(checked.now_s).usd == pytest.approx(TERMS.time_usd(20.0))


def test_the_wait_after_failures_is_bounded_and_a_success_ends_it() -> None:
    checked = starting()
    for number in range(1, 14):
        checked.tell(VmFailed, vm=f"vm-{number}", reason="no capacity")
        checked.tell(VmGone, vm=f"vm-{number}")
        failed_s = checked.now_s
        while not checked.slot(4.0):
            pass
    assert checked.now_s - failed_s == 300
    checked.tell(VmReady, vm="vm-14", billing_since_s=checked.now_s)
    checked.tell(VmLost, vm="vm-14", reason="gone dark")
    checked.tell(VmGone, vm="vm-14")
    assert checked.slot(4.0) == []
    assert checked.slot(4.0) == [("start", "vm-15")]


def test_a_boot_without_end_is_given_up() -> None:
    checked = starting(boot_s=30.0)
    until(checked, 102.0 + 180.0, 4.0)
    assert checked.slot(4.0) == [("terminate", "vm-1")]
    assert states(checked) == [VmState.FAILED]
    assert checked.tell(VmReady, vm="vm-1", billing_since_s=102.0) == []
    assert states(checked) == [VmState.FAILED]


# ----------------------------------------------------------------------------------------------------- idle and sending


def test_a_ready_vm_gets_events_at_l_d_and_none_below() -> None:
    checked = idle()
    assert checked.slot(1.99) == []
    assert states(checked) == [VmState.IDLE]
    assert checked.slot(2.0) == [HALF]
    assert states(checked) == [VmState.SENDING]
    assert checked.slot(2.0) == []
    assert checked.slot(1.99) == [ALL_HOME]
    assert states(checked) == [VmState.IDLE]


def test_the_next_vm_comes_only_once_the_last_is_sending_and_tau_has_passed_again() -> None:
    checked = starting()
    until(checked, 106.0, 5.0)
    checked.tell(VmReady, vm="vm-1", billing_since_s=106.0)
    assert checked.slot(5.0) == [HALF]
    assert checked.slot(5.0) == [("start", "vm-2")]
    checked.tell(VmReady, vm="vm-2", billing_since_s=checked.now_s)
    assert checked.slot(5.0) == [("route", "q", {HOME: 0.5, "vm-1": 0.25, "vm-2": 0.25})]
    until(checked, 115.0, 5.0)
    assert "max_vms = 2 is reached" in checked.scheduler.last_decisions[0].verdict


def test_what_was_decided_is_told_as_it_was_when_the_slot_ended() -> None:
    checked = starting()
    checked.slot(3.0)
    checked.tell(VmReady, vm="vm-1", billing_since_s=106.0)
    (told,) = checked.scheduler.last_decisions
    assert told.verdict.startswith("stays home: no VM is ready")
    assert told.vms == {"vm-1": "starting"}


# -------------------------------------------------------------------------------------------------------- keep and stop


@pytest.mark.parametrize(
    ("latency_s", "raw_bytes", "stopped"),
    [(0.99, 0, True), (0.99, 999, True), (0.99, 1000, False), (1.0, 0, False), (1.0, 5000, False)],
)
def test_a_vm_is_given_back_only_if_both_l_and_d_are_small(latency_s: float, raw_bytes: int, stopped: bool) -> None:
    checked = sending()
    checked.slot(1.5, raw_bytes={"vm-1": raw_bytes})
    until(checked, 119.0, 1.5)
    assert checked.slot(latency_s) == ([("drain", "vm-1")] if stopped else [])


def test_stopping_a_vm_in_use_takes_it_out_of_the_routes_first() -> None:
    settings = query_settings(switching=query_settings().switching.__class__(3.0, 0.5, 1.0, 1000, 1.0))
    checked = sending(queries=(settings,))
    until(checked, 119.0, 0.9)
    assert checked.slot(0.9) == [ALL_HOME, ("drain", "vm-1")]


def test_d_counts_from_one_decision_to_the_next() -> None:
    checked = sending()
    checked.slot(1.5, raw_bytes={"vm-1": 1000})
    until(checked, 120.0, 0.5)
    assert checked.scheduler.story("vm-1")[-1].happened.name == "KEEP"
    until(checked, 139.0, 0.5)
    assert checked.slot(0.5) == [("drain", "vm-1")]


def test_the_decision_leaves_time_to_drain() -> None:
    checked = idle()
    until(checked, 114.0, 0.5)
    assert checked.slot(0.5, open_events={"vm-1": 500}, rates={"vm-1": 100.0}) == [("drain", "vm-1")]


def test_a_drained_vm_is_given_back_and_the_next_has_a_new_name() -> None:
    checked = ending()
    assert checked.tell(VmGone, vm="vm-1") == []
    assert states(checked) == []
    checked.slot(3.0)
    assert checked.slot(3.0) == [("start", "vm-2")]


def test_a_vm_that_drains_too_slowly_is_ended_before_the_next_period() -> None:
    checked = draining()
    assert checked.now_s == 120.0
    assert checked.slot(0.5) == [("terminate", "vm-1")]
    assert checked.now_s == 121.0
    assert checked.tell(VmDrained, vm="vm-1") == []


def test_a_draining_vm_gets_no_events_back_and_another_may_be_started() -> None:
    checked = draining()
    assert checked.tell(VmDrained, vm="vm-1") == [("terminate", "vm-1")]
    assert checked.slot(3.5) == []
    assert checked.slot(3.5) == [("start", "vm-2")]
    assert states(checked) == [VmState.ENDING, VmState.STARTING]


def test_a_vm_that_is_ready_too_late_to_be_drained_in_its_period_is_ended_at_once() -> None:
    checked = starting()
    until(checked, 120.0, 0.5)
    checked.tell(VmReady, vm="vm-1", billing_since_s=102.0)
    assert checked.slot(0.5) == [("drain", "vm-1"), ("terminate", "vm-1")]
    assert checked.now_s == 121.0


# -------------------------------------------------------------------------------------------------------- lost and gone


@pytest.mark.parametrize(
    ("make", "commands"),
    [
        (starting, [("terminate", "vm-1")]),
        (idle, [("terminate", "vm-1")]),
        (sending, [ALL_HOME, ("terminate", "vm-1")]),
        (draining, [("terminate", "vm-1")]),
        (ending, []),
    ],
)
def test_a_lost_vm_leaves_the_routes_first_and_is_ended(make: Any, commands: list[tuple[object, ...]]) -> None:
    checked = make()
    assert checked.tell(VmLost, vm="vm-1", reason="heartbeat") == commands
    assert checked.tell(VmLost, vm="vm-1", reason="link closed") == []
    assert checked.tell(VmGone, vm="vm-1") == []
    assert states(checked) == []


@pytest.mark.parametrize(
    ("make", "commands"), [(starting, []), (idle, []), (sending, [ALL_HOME]), (draining, []), (ending, [])]
)
def test_a_vm_the_cloud_takes_by_itself_is_gone_at_once(make: Any, commands: list[tuple[object, ...]]) -> None:
    checked = make()
    assert checked.tell(VmGone, vm="vm-1") == commands
    assert states(checked) == []
    assert checked.tell(VmLost, vm="vm-1", reason="link closed later") == []


def test_the_others_take_over_what_a_lost_vm_had() -> None:
    checked = sending()
    checked.slot(5.0)
    assert checked.slot(5.0) == [("start", "vm-2")]
    checked.tell(VmReady, vm="vm-2", billing_since_s=checked.now_s)
    checked.slot(5.0)
    lost = checked.tell(VmLost, vm="vm-1", reason="heartbeat")
    assert lost == [("route", "q", {HOME: 0.5, "vm-2": 0.5}), ("terminate", "vm-1")]


# ------------------------------------------------------------------------------------------------------------ reclaimed


@pytest.mark.parametrize(
    ("make", "commands"),
    [
        (starting, [("terminate", "vm-1")]),
        (idle, [("drain", "vm-1")]),
        (sending, [ALL_HOME, ("drain", "vm-1")]),
        (draining, []),
        (ending, []),
    ],
)
def test_a_vm_that_will_be_taken_gets_no_more_and_is_drained(make: Any, commands: list[tuple[object, ...]]) -> None:
    checked = make()
    assert checked.tell(VmReclaimed, vm="vm-1", ends_s=checked.now_s + 120.0) == commands
    assert checked.tell(VmReclaimed, vm="vm-1", ends_s=checked.now_s + 120.0) == []
    assert checked.scheduler.vms["vm-1"] not in {VmState.IDLE, VmState.SENDING}
    checked.tell(VmGone, vm="vm-1")
    assert states(checked) == []


def test_what_is_not_drained_when_the_vm_is_taken_goes_elsewhere_just_before() -> None:
    checked = sending()
    checked.tell(VmReclaimed, vm="vm-1", ends_s=checked.now_s + 5.0)
    ends_s = checked.now_s + 5.0
    commands: list[tuple[object, ...]] = []
    while not commands:
        commands = checked.slot(0.5)
    assert commands == [("terminate", "vm-1")]
    assert ends_s - 2.0 <= checked.now_s < ends_s


def test_a_vm_that_is_drained_before_it_is_taken_is_given_back_at_once() -> None:
    checked = sending()
    checked.tell(VmReclaimed, vm="vm-1", ends_s=checked.now_s + 120.0)
    assert checked.tell(VmDrained, vm="vm-1") == [("terminate", "vm-1")]


def test_in_place_of_a_vm_that_is_taken_another_is_started_if_it_is_still_wanted() -> None:
    checked = sending()
    checked.tell(VmReclaimed, vm="vm-1", ends_s=checked.now_s + 120.0)
    assert checked.slot(3.5) == []
    assert checked.slot(3.5) == [("start", "vm-2")]


# ------------------------------------------------------------------------------------------------------------- stop all


@pytest.mark.parametrize(
    ("make", "commands"),
    [
        (Checked, []),
        (starting, [("terminate", "vm-1")]),
        (idle, [("drain", "vm-1")]),
        (sending, [ALL_HOME, ("drain", "vm-1")]),
        (draining, []),
        (ending, []),
    ],
)
def test_stop_all_gives_every_vm_back_and_starts_none(make: Any, commands: list[tuple[object, ...]]) -> None:
    checked = make()
    assert checked.tell(StopAll) == commands
    assert checked.tell(StopAll) == []
    for _ in range(5):
        assert ("start", "vm-2") not in checked.slot(9.0)
    assert "the gateway stops" in checked.scheduler.last_decisions[0].verdict


@pytest.mark.parametrize("after_slots", [0, 1, 3])
def test_while_the_gateway_drains_no_vm_is_started(after_slots: int) -> None:
    checked = Checked()
    checked.slot(3.0)
    assert checked.tell(DrainAll) == []
    for _ in range(after_slots):
        assert ("start", "vm-1") not in checked.slot(9.0)
        assert "the gateway drains" in checked.scheduler.last_decisions[0].verdict
    assert checked.tell(StopAll) == []


def test_a_vm_goes_on_helping_while_the_gateway_drains_but_gets_no_other_beside_it() -> None:
    checked = idle(max_vms=3)
    checked.tell(DrainAll)
    assert checked.slot(9.0) == [HALF]
    for _ in range(5):
        assert ("start", "vm-2") not in checked.slot(9.0)
    assert checked.scheduler.vms == {"vm-1": VmState.SENDING}


# -------------------------------------------------------------------------------------------------------- what is wrong


@pytest.mark.parametrize(
    ("make", "kind", "fields"),
    [
        (idle, VmReady, {"billing_since_s": 1.0}),
        (idle, VmDrained, {}),
        (starting, VmDrained, {}),
        (draining, VmReady, {"billing_since_s": 1.0}),
    ],
)
def test_what_cannot_happen_raises(make: Any, kind: type[Event], fields: dict[str, Any]) -> None:
    checked = make()
    with pytest.raises(ImpossibleTransitionError):
        checked.tell(kind, vm="vm-1", **fields)


def test_unknown_names_raise() -> None:
    checked = Checked()
    with pytest.raises(ValueError, match="vm-9"):
        checked.tell(VmGone, vm="vm-9")
    with pytest.raises(ValueError, match="'x' does not exist"):
        checked.tell(QueryOpened, query="x", switchable=True)
    with pytest.raises(ValueError, match="does not know"):
        checked.scheduler.handle(Event(event_id="e", at_s=0.0))


# ---------------------------------------------------------------------------------------------------------------- modes


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [({"mode": "off"}, "switching is off"), ({"switchable": False}, "it may not be switched")],
)
def test_a_query_that_stays_home_asks_for_no_vm(changes: dict[str, Any], verdict: str) -> None:
    checked = Checked(scheduler_settings(query_settings(**changes)))
    until(checked, 110.0, 9.0)
    assert checked.scheduler.last_decisions[0].verdict == f"stays home: {verdict}"


def test_the_plan_decides_whether_a_query_may_be_switched() -> None:
    checked = Checked()
    checked.tell(QueryOpened, query="q", switchable=False, reason="it holds state (an aggregate)")
    until(checked, 110.0, 9.0)
    assert checked.scheduler.last_decisions[0].verdict == "stays home: it holds state (an aggregate)"
    checked.tell(QueryOpened, query="q", switchable=True)
    checked.slot(9.0)
    assert checked.slot(9.0) == [("start", "vm-1")]


def test_a_query_is_not_sent_to_a_vm_that_cannot_run_it_and_asks_for_no_other() -> None:
    checked = sending()
    kept_off = {"query": "q", "vm": "vm-1", "reason": "there is no module udf"}
    assert checked.tell(QueryKeptOff, **kept_off) == [ALL_HOME]
    assert checked.slot(9.0) == []
    verdict = "stays home: vm-1 cannot run it: there is no module udf"
    assert checked.scheduler.last_decisions[0].verdict == verdict
    assert [checked.tell(VmLost, vm="vm-1", reason="gone"), checked.tell(VmGone, vm="vm-1")] == [
        [("terminate", "vm-1")],
        [],
    ]
    until(checked, 200.0, 9.0)
    checked.tell(QueryOpened, query="q", switchable=True)
    checked.slot(9.0)
    assert checked.slot(9.0) == [("start", "vm-2")], "it was opened anew, so it may be tried again"


def test_a_query_goes_to_the_vms_that_can_run_it() -> None:
    checked = Checked(scheduler_settings(query_settings(), max_vms=2))
    checked.slot(3.0)
    assert checked.slot(3.0) == [("start", "vm-1")]
    checked.tell(QueryKeptOff, query="q", vm="vm-1", reason="no answers")
    checked.tell(VmReady, vm="vm-1", billing_since_s=checked.now_s)
    checked.slot(3.0)
    assert dict(checked.scheduler.routes["q"]) == {HOME: 1.0}


def test_a_query_is_moved_whole_and_stays_while_home_could_not_carry_it() -> None:
    checked = Checked(scheduler_settings(query_settings(mode="query")))
    checked.slot(3.0)
    checked.slot(3.0)
    checked.tell(VmReady, vm="vm-1", billing_since_s=checked.now_s)
    assert checked.slot(3.0) == [("route", "q", {HOME: 0.0, "vm-1": 1.0})]
    home = {HOME: 1000.0}
    assert checked.slot(0.3, input_rate=1500.0, rates=home) == []
    assert checked.slot(0.3, input_rate=900.0, rates=home) == []
    assert checked.slot(0.3, input_rate=899.0, rates=home) == [ALL_HOME]


def test_a_query_with_state_is_moved_whole_whatever_its_share_is() -> None:
    checked = Checked()
    checked.tell(QueryOpened, query="q", switchable=True, whole=True)
    checked.slot(3.0, pause_s=1.0)
    checked.slot(3.0, pause_s=1.0)
    checked.tell(VmReady, vm="vm-1", billing_since_s=checked.now_s)
    assert checked.slot(3.0, pause_s=1.0) == [("route", "q", {HOME: 0.0, "vm-1": 1.0})]
    home = {HOME: 1000.0}
    assert checked.slot(0.3, input_rate=900.0, rates=home) == []
    assert checked.slot(0.3, input_rate=899.0, rates=home) == [ALL_HOME]


def test_no_vm_is_rented_for_a_query_whose_move_costs_more_than_it_saves() -> None:
    checked = Checked(scheduler_settings(query_settings(stay_s=20.0, pause_most_s=30.0)))
    checked.tell(QueryOpened, query="q", switchable=True, whole=True)
    for _ in range(20):  # 7 s * 7 s / 2 > (3 s - 2 s) * 20 s
        assert checked.slot(3.0, pause_s=7.0) == []
    assert "costs more than it saves" in checked.scheduler.last_decisions[0].verdict
    checked.slot(4.0, pause_s=7.0)
    assert checked.slot(4.0, pause_s=7.0) == [("start", "vm-1")]


def test_no_vm_is_rented_for_a_divided_query_if_one_part_has_nearly_all_events() -> None:
    checked = Checked()
    checked.tell(QueryOpened, query="q", switchable=True, divided=True)
    for _ in range(5):
        assert checked.slot(3.0, heaviest_part=0.95) == []
    verdict = checked.scheduler.last_decisions[0].verdict
    assert "one part of its keys has 95% of the events: a VM for the others would relieve home by too little" in verdict
    checked.slot(3.0, heaviest_part=0.8)
    assert checked.slot(3.0, heaviest_part=0.8) == [("start", "vm-1")]


def test_a_divided_query_gets_shares_and_stays_while_home_could_not_carry_it() -> None:
    checked = Checked(scheduler_settings(query_settings(share=0.25)))
    checked.tell(QueryOpened, query="q", switchable=True, divided=True)
    checked.slot(3.0)
    checked.slot(3.0)
    checked.tell(VmReady, vm="vm-1", billing_since_s=checked.now_s)
    assert checked.slot(3.0) == [("route", "q", {HOME: 0.75, "vm-1": 0.25})]
    home = {HOME: 1000.0}
    assert checked.slot(0.3, input_rate=900.0, rates=home) == []
    assert checked.slot(0.3, input_rate=899.0, rates=home) == [ALL_HOME]


def test_two_queries_are_switched_one_after_another_and_share_the_vm() -> None:
    checked = Checked(scheduler_settings(query_settings("a"), query_settings("b"), max_vms=1))

    def slots(a_s: float, b_s: float) -> list[tuple[object, ...]]:
        return checked.slots(QuerySlot(query="a", latency_s=a_s), QuerySlot(query="b", latency_s=b_s))

    slots(4.0, 5.0)
    assert slots(4.0, 5.0) == [("start", "vm-1")]
    checked.tell(VmReady, vm="vm-1", billing_since_s=checked.now_s)
    assert slots(4.0, 5.0) == [("route", "b", {HOME: 0.5, "vm-1": 0.5})]
    assert slots(4.0, 4.5) == []
    assert "waits to see what switching b did" in checked.scheduler.last_decisions[0].verdict
    assert slots(4.0, 4.5) == [("route", "a", {HOME: 0.5, "vm-1": 0.5})]


def test_a_second_query_keeps_the_vm_that_the_first_no_longer_needs() -> None:
    checked = Checked(scheduler_settings(query_settings("a"), query_settings("b", mode="off"), query_settings("c")))
    for _ in range(2):
        commands = checked.slots(QuerySlot(query="a", latency_s=4.0), QuerySlot(query="b", latency_s=9.0))
    assert commands == [("start", "vm-1")]
    checked.tell(VmReady, vm="vm-1", billing_since_s=102.0)
    while checked.now_s < 139.0:
        c_s = 1.0 if checked.now_s < 130.0 else 0.1
        assert checked.slots(*(QuerySlot(query=q, latency_s=s) for q, s in (("a", 0.1), ("b", 9.0), ("c", c_s)))) == []
    assert checked.slots(QuerySlot(query="a", latency_s=0.1)) == [("drain", "vm-1")]
