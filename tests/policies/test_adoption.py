"""A VM of an earlier gateway is adopted: its states, its period and who pays."""

from __future__ import annotations

from typing import Any

import pytest

from policies.money.ledger import Budget
from policies.signals import DrainAll, QuerySlot, SlotEnded, StopAll, VmAdopted, VmDrained, VmGone, VmLost
from policies.vms.machine import VmBill
from policies.vms.vm import VmState
from tests.policies.policy_data import TERMS, Checked, ledger_of, scheduler_settings, until

PERIOD_USD = TERMS.time_usd(20.0)
OLD = {"vm": "vm-3-0a", "billing_since_s": 70.0, "booked_s": 85.0}
"""Ordered at 70 s; its second period, from 90 s to 110 s, is not booked when the gateway looks at it at 100 s."""


def adopted(**changes: Any) -> Checked:
    checked = Checked(scheduler_settings(**changes))
    assert checked.tell(VmAdopted, **OLD) == []
    return checked


def test_it_is_used_at_once_and_given_back_when_its_period_ends() -> None:
    checked = adopted()
    assert checked.scheduler.vms == {"vm-3-0a": VmState.IDLE}
    assert checked.slot(2.5) == [("route", "q", {"home": 0.5, "vm-3-0a": 0.5})]
    assert checked.slot(0.5) == [("route", "q", {"home": 1.0})]
    until(checked, 107.0, 0.5)
    assert checked.slot(0.5) == [("drain", "vm-3-0a")]
    assert checked.tell(VmDrained, vm="vm-3-0a") == [("terminate", "vm-3-0a")]
    assert checked.tell(VmGone, vm="vm-3-0a") == []
    totals = checked.scheduler.totals(checked.now_s)
    assert (totals.started, totals.stopped) == (1, 1)
    (bill,) = totals.bills
    assert bill == VmBill("vm-3-0a", 40.0, 8.0, 32.0, 0, bill.usd)
    assert bill.usd == pytest.approx(2 * PERIOD_USD)


def test_only_what_was_not_booked_before_is_reserved_and_then_spent() -> None:
    checked = adopted()
    assert ledger_of(checked).reserved_for("vm-3-0a", "q") == pytest.approx(PERIOD_USD)
    checked.tell(VmLost, vm="vm-3-0a", reason="kill -9")
    checked.tell(VmGone, vm="vm-3-0a")
    ledger = ledger_of(checked)
    assert [ledger.spent_usd(checked.now_s), ledger.reserved_usd] == pytest.approx([PERIOD_USD, 0.0])


def test_in_a_period_that_is_booked_it_costs_nothing_more_until_it_is_renewed() -> None:
    checked = Checked(scheduler_settings(budget=Budget(usd_per_day=PERIOD_USD)))
    assert checked.tell(VmAdopted, vm="vm-3-0a", billing_since_s=95.0, booked_s=98.0) == []
    assert ledger_of(checked).reserved_usd == 0.0
    checked.slot(2.5)
    until(checked, 112.0, 2.5)
    assert ledger_of(checked).reserved_usd == 0.0
    until(checked, 114.0, 2.5)
    assert ledger_of(checked).reserved_for("vm-3-0a", "q") == pytest.approx(PERIOD_USD)
    assert checked.scheduler.vms == {"vm-3-0a": VmState.SENDING}


def test_the_next_vm_has_another_name() -> None:
    checked = adopted()
    checked.slot(3.0)
    assert ("start", "vm-1") in checked.slot(3.0)
    assert set(checked.scheduler.vms) == {"vm-3-0a", "vm-1"}


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"max_vms": 0}, "max_vms = 0 is reached"),
        ({"budget": Budget(usd_per_day=0.5 * PERIOD_USD)}, "the budget has no room for it"),
    ],
)
def test_one_that_may_not_be_had_is_given_back_and_forgotten(changes: dict[str, Any], why: str) -> None:
    checked = Checked(scheduler_settings(**changes))
    assert checked.tell(VmAdopted, **OLD) == [("terminate", "vm-3-0a")]
    assert checked.tell(VmGone, vm="vm-3-0a") == []
    assert checked.scheduler.vms == {}
    assert checked.scheduler.story("vm-3-0a")[-1].why == why
    assert ledger_of(checked).reserved_usd == 0.0


@pytest.mark.parametrize(("end", "why"), [(DrainAll, "the gateway drains"), (StopAll, "the gateway stops")])
def test_a_gateway_that_ends_adopts_none(end: type[DrainAll | StopAll], why: str) -> None:
    checked = Checked(scheduler_settings())
    checked.tell(end)
    assert checked.tell(VmAdopted, **OLD) == [("terminate", "vm-3-0a")]
    assert checked.scheduler.story("vm-3-0a")[-1].why == why


def test_the_price_of_its_size_counts() -> None:
    checked = Checked(scheduler_settings())
    checked.tell(VmAdopted, **OLD, usd_per_hour=TERMS.usd_per_hour / 4)
    checked.now_s += 1.0
    checked.tell(SlotEnded, queries=(QuerySlot(query="q", latency_s=0.5),))
    checked.tell(VmLost, vm="vm-3-0a", reason="gone")
    checked.tell(VmGone, vm="vm-3-0a")
    assert ledger_of(checked).spent_usd(checked.now_s) == pytest.approx(PERIOD_USD / 4)
