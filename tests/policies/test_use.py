"""A VM that is of no use is not kept, and no other is launched for a while."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from policies.money.billing import BillingTerms
from policies.signals import QuerySlot, VmDrained, VmGone
from policies.vms.machine import VmAccount
from policies.vms.use import BlockUse, Rest
from policies.vms.vm import VmInput, VmState
from tests.policies.policy_data import ALL_HOME, sending

TIMES = st.floats(0.1, 500.0)


def used(sent: int, answered: int, *, home_s: float, took_s: float) -> BlockUse:
    use = BlockUse()
    use.observe("vm-1", QuerySlot(query="q", latency_s=home_s, dispatched_events={"vm-1": sent, "vm-2": 9}))
    done = {"vm-1": answered, "home": 5}
    use.observe("vm-1", QuerySlot(query="q", latency_s=0.0, cloud_latency_s=took_s, completed_events=done))
    return use


def test_an_idle_vm_says_nothing_of_vms() -> None:
    assert used(0, 0, home_s=9.0, took_s=9.0).why_none == ""


def test_a_vm_that_never_answered_first_was_of_no_use() -> None:
    assert "got 1,330 events and answered none" in used(1330, 0, home_s=9.0, took_s=9.0).why_none


@given(sent=st.integers(1, 10**6), home_s=TIMES, took_s=TIMES)
def test_the_marginal_use_is_what_the_others_are_spared_less_what_its_events_lose(
    sent: int, home_s: float, took_s: float
) -> None:
    spared_s, lost_s = home_s, took_s - home_s
    assert (used(sent, sent, home_s=home_s, took_s=took_s).why_none == "") is (lost_s < spared_s)


def test_the_reason_names_the_numbers() -> None:
    why = used(2000, 1500, home_s=2.0, took_s=25.0).why_none
    assert all(each in why for each in ("1,500 events took 25.0 s", "against 2.0 s", "cost 23.0 s"))


def test_no_vm_is_launched_for_longer_after_each_that_was_of_no_use() -> None:
    rest = Rest(60.0)
    rest.useless("vm-1", "it is slow", 100.0)
    assert rest.why_none(110.0) == "no VM is launched for another 50 s, since vm-1 was of no use: it is slow"
    assert rest.why_none(160.0) == ""
    rest.useless("vm-2", "it is slow", 200.0)
    assert rest.why_none(319.0)
    assert rest.why_none(320.0) == ""
    for _ in range(40):
        rest.useless("vm-3", "it is slow", 1000.0)
    assert rest.why_none(4599.0)
    assert rest.why_none(4600.0) == ""
    rest.useful()
    assert rest.why_none(1001.0) == ""


def test_the_first_idle_vm_has_no_effect_and_the_second_in_a_row_has() -> None:
    rest = Rest(60.0)
    rest.idle("vm-1", 0.0)
    assert rest.why_none(1.0) == ""
    rest.idle("vm-2", 100.0)
    assert "vm-2 was of no use: it got no event, like 1 before it" in rest.why_none(101.0)
    rest.useful()
    rest.idle("vm-3", 200.0)
    assert rest.why_none(201.0) == ""


def test_a_vm_of_no_use_is_not_kept_and_the_next_one_waits_and_the_reason_is_told() -> None:
    checked = sending(max_vms=1)
    for _ in range(11):
        assert checked.slot(3.5) == []
    checked.slot(3.5, dispatched_events={"vm-1": 500})
    for _ in range(200):
        if commands := checked.slot(3.5):
            break
    assert commands == [ALL_HOME, ("drain", "vm-1")]
    reason = "it got 500 events and answered none of them before home did"
    assert reason in checked.scheduler.story("vm-1")[-1].why
    checked.tell(VmDrained, vm="vm-1")
    checked.tell(VmGone, vm="vm-1")
    assert checked.slot(3.5) == []
    (told,) = checked.scheduler.last_decisions
    assert f"no VM is launched for another 19 s, since vm-1 was of no use: {reason}" in told.verdict
    while not (commands := checked.slot(3.5)):
        assert checked.now_s < 200.0
    assert commands == [("start", "vm-2")]
    assert checked.now_s >= 140.0


def test_a_vm_is_not_judged_by_its_first_micro_batches() -> None:
    lease = BillingTerms(10.0, 10.0, 0.36, 0.0)
    machine = VmAccount("vm-1", lease, VmState.IDLE, 0.0, 0.0, 0.0, 10.0)
    assert not machine.is_warm(30.0), "it is not ready"
    machine.note(VmInput.READY, 40.0)
    assert [machine.is_warm(at_s) for at_s in (40.0, 50.0, 50.5)] == [False, False, True]


def test_a_vm_that_keeps_events_from_being_late_is_of_use() -> None:
    use = BlockUse()
    slot = QuerySlot(
        query="q",
        latency_s=0.2,
        cloud_latency_s=0.6,
        dispatched_events={"vm-1": 500},
        completed_events={"vm-1": 500},
    )
    use.observe("vm-1", slot)
    assert "each cost 0.4 s" in use.why_none
    use = BlockUse()
    use.observe("vm-1", slot, home_alone_s=5.0)
    assert use.why_none == ""
