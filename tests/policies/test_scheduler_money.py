"""How the budget and the billing periods affect the VMs."""

import pytest

from policies.money.billing import BillingTerms
from policies.money.ledger import DAY_S, Budget
from policies.signals import HOME, QuerySlot, SlotEnded, VmFailed, VmGone, VmLost, VmReady
from policies.vms.vm import VmState
from tests.policies.policy_data import (
    ALL_HOME,
    TERMS,
    Checked,
    ending,
    idle,
    query_settings,
    scheduler_settings,
    sending,
    starting,
    states,
    until,
)

PERIOD_USD = TERMS.time_usd(20.0)


def test_a_vm_that_does_not_fit_into_the_budget_is_not_started() -> None:
    checked = Checked(scheduler_settings(budget=Budget(PERIOD_USD * 0.99)))
    until(checked, 110.0, 9.0)
    assert "the budget has no room" in checked.scheduler.last_decisions[0].verdict


def test_expected_egress_is_reserved_with_the_period() -> None:
    egress_usd = TERMS.egress_usd(1_000_000 * 20.0)
    checked = Checked(scheduler_settings(budget=Budget(PERIOD_USD + egress_usd * 0.9)))
    for _ in range(5):
        assert checked.slot(9.0, input_bytes_per_s=1_000_000.0) == []
    assert checked.slot(9.0, input_bytes_per_s=850_000.0) == [("start", "vm-1")]


def test_a_vm_whose_next_period_does_not_fit_is_given_back() -> None:
    checked = sending(budget=Budget(PERIOD_USD * 1.9))
    until(checked, 119.0, 2.5)
    assert checked.slot(2.5) == [ALL_HOME, ("drain", "vm-1")]
    assert "does not fit into the budget" in checked.scheduler.story("vm-1")[-1].why


def test_a_vm_is_given_back_when_its_egress_outgrows_the_budget() -> None:
    checked = sending(budget=Budget(PERIOD_USD * 1.5))
    allowed_bytes = PERIOD_USD * 0.5 / TERMS.egress_usd(1.0)
    sent_bytes = round(allowed_bytes / 10)
    for _ in range(9):
        assert checked.slot(2.5, sent_bytes={"vm-1": sent_bytes}) == []
    assert checked.slot(2.5, sent_bytes={"vm-1": sent_bytes}) == [ALL_HOME, ("drain", "vm-1")]
    assert checked.scheduler.totals(checked.now_s).usd <= PERIOD_USD * 1.5


def test_totals_say_what_was_billed() -> None:
    checked = ending()
    checked.now_s += 0.5
    checked.tell(VmGone, vm="vm-1")
    totals = checked.scheduler.totals(checked.now_s)
    assert (totals.started, totals.stopped, totals.billed_s) == (1, 1, 20.0)
    assert totals.usd == pytest.approx(PERIOD_USD)


def test_per_second_billing_is_judged_as_often_as_slots_allow() -> None:
    checked = idle(billing=BillingTerms(1.0, 10.0, 0.36, 0.0))
    until(checked, 109.0, 1.5)
    assert checked.slot(1.5) == []
    stopped_s = 0.0
    while not stopped_s:
        stopped_s = checked.now_s if checked.slot(0.5) == [("drain", "vm-1")] else 0.0
    assert stopped_s <= 116.0


@pytest.mark.parametrize("offset_s", [0.0, 0.05, 0.3, 0.6, 0.9, 1.05])
@pytest.mark.parametrize("length_s", [0.9, 1.0, 1.1])
def test_slots_that_end_late_do_not_cost_a_period(length_s: float, offset_s: float) -> None:
    checked = idle()
    checked.now_s += offset_s
    while states(checked) != [VmState.ENDING]:
        checked.now_s += length_s - 1.0
        checked.slot(0.5)
    assert checked.now_s < 122.0
    assert "DRAINING" in {line.state.name for line in checked.scheduler.story("vm-1")}


def test_a_query_that_spent_its_own_budget_goes_home_and_the_others_go_on() -> None:
    queries = (query_settings("a"), query_settings("b"))
    checked = Checked(scheduler_settings(*queries, max_vms=1, budget=Budget(usd_per_query_day=PERIOD_USD)))

    def slots(b_bytes: int) -> list[tuple[object, ...]]:
        sent = {"vm-1": b_bytes} if b_bytes else {}
        return checked.slots(
            QuerySlot(query="a", latency_s=4.0, sent_bytes={"vm-1": 1000} if b_bytes else {}),
            QuerySlot(query="b", latency_s=latencies_s.pop(), sent_bytes=sent),
        )

    latencies_s = [4.5, 4.5, 4.5, 4.5, 4.5, 5.0, 5.0, 5.0]
    slots(0)
    assert slots(0) == [("start", "vm-1")]
    checked.tell(VmReady, vm="vm-1", billing_since_s=checked.now_s)
    for _ in range(3):
        slots(0)
    assert checked.scheduler.routes == {"a": ((HOME, 0.5), ("vm-1", 0.5)), "b": ((HOME, 0.5), ("vm-1", 0.5))}
    allowed_bytes = round(PERIOD_USD * 0.5 / TERMS.egress_usd(1.0))
    assert slots(allowed_bytes // 4) == []
    assert slots(allowed_bytes // 2) == [("route", "b", {HOME: 1.0})]
    assert slots(0) == []
    verdicts = {decision.query: decision.verdict for decision in checked.scheduler.last_decisions}
    assert verdicts["b"] == "stays home: usd_per_query_day is spent"
    assert verdicts["a"].startswith("50.0% to vm-1")


def test_a_vm_that_boots_into_a_period_its_query_cannot_pay_is_given_back() -> None:
    checked = starting(budget=Budget(usd_per_query_day=PERIOD_USD * 1.5))
    until(checked, 120.0, 3.0)
    assert checked.slot(3.0) == [("terminate", "vm-1")]
    assert checked.scheduler.totals(checked.now_s).usd == pytest.approx(PERIOD_USD)


def test_stop_decisions_fall_in_the_last_boot_and_drain_seconds_of_what_is_paid() -> None:
    for drain_s in (0.0, 1.5, 3.0, 4.5):
        checked = idle(boot_s=5.0)
        end_s, stopped_s = 122.0, 0.0
        while not stopped_s:
            commands = checked.slot(0.5, open_events={"vm-1": round(100 * drain_s)}, rates={"vm-1": 100.0})
            stopped_s = checked.now_s if ("drain", "vm-1") in commands else 0.0
        assert end_s - 5.0 - drain_s <= stopped_s <= end_s - drain_s


@pytest.mark.parametrize("hours", [0.0, 5.0, 48.0])
def test_days_are_counted_on_the_wall_clock_however_long_the_machine_is_up(hours: float) -> None:
    """A day ends at midnight in UTC, at whatever time of day the machine booted."""
    midnight_s = 20_000 * DAY_S
    checked = Checked(scheduler_settings(budget=Budget(PERIOD_USD * 1.5)))
    checked.now_s = hours * 3600.0
    ahead_s = midnight_s - 30.0 - checked.now_s

    def slot(latency_s: float) -> list[tuple[object, ...]]:
        checked.now_s += 1.0
        queries = (QuerySlot(query="q", latency_s=latency_s),)
        return checked.tell(SlotEnded, queries=queries, wall_s=checked.now_s + ahead_s)

    slot(3.0)
    assert slot(3.0) == [("start", "vm-1")]
    checked.tell(VmFailed, vm="vm-1", reason="lost to the test")
    checked.tell(VmGone, vm="vm-1")
    slot(0.0)
    slot(3.0)
    while slot(3.0) != [("start", "vm-2")]:
        pass
    checked.tell(VmLost, vm="vm-2", reason="gone dark")
    checked.tell(VmGone, vm="vm-2")
    while slot(3.0) != [("start", "vm-3")]:
        pass
    assert midnight_s <= checked.now_s + ahead_s < midnight_s + 3.0
