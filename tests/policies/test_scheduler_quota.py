"""What a quota that is shared with other gateways changes: VMs and their next blocks are claimed before."""

from __future__ import annotations

import pytest

from policies.money.ledger import Budget, day_of
from policies.quota.requests import Allowance
from policies.signals import BudgetFrozen, DrainAll, QuerySlot, QuotaGranted, SlotEnded, VmReady
from tests.policies.policy_data import ALL_HOME, HALF, TERMS, Checked, scheduler_settings, until

PERIOD_USD = TERMS.time_usd(20.0)
TODAY = day_of(100.0)


def grant(checked: Checked, vms: int, usd: float | None = 100.0, why: str = "", spent: bool = False) -> None:
    usd_by_day = None if usd is None else ((TODAY, usd),)
    assert checked.tell(QuotaGranted, allowance=Allowance(vms, usd_by_day, why, spent)) == []


def asking() -> Checked:
    """A scheduler that has wanted a VM for tau, and has no permit for one."""
    checked = Checked(scheduler_settings(quota=True))
    until(checked, 105.0, 3.0)
    return checked


def test_without_a_grant_no_vm_is_launched_and_one_is_claimed() -> None:
    checked = asking()
    needs = checked.scheduler.needs(checked.now_s)
    assert (needs.vms, needs.usd_by_day, needs.another) == (0, {TODAY: 0.0}, (TODAY, pytest.approx(PERIOD_USD)))
    assert "the quota: a VM is being claimed" in checked.scheduler.last_decisions[0].verdict
    grant(checked, 1)
    assert checked.slot(3.0) == [("start", "vm-1")]


def test_a_vm_is_claimed_while_tau_passes() -> None:
    checked = Checked(scheduler_settings(quota=True))
    assert checked.scheduler.needs(checked.now_s).permits == 0
    checked.slot(3.0)
    assert checked.scheduler.needs(checked.now_s).permits == 1
    grant(checked, 1)
    assert checked.slot(3.0) == [("start", "vm-1")]
    checked.slot(0.5)
    assert checked.scheduler.needs(checked.now_s).permits == 1, "that of the VM itself"


def test_the_reason_of_the_quota_is_told() -> None:
    checked = asking()
    grant(checked, 0, why="all 20 VMs are in use")
    checked.slot(3.0)
    assert "the quota: all 20 VMs are in use" in checked.scheduler.last_decisions[0].verdict
    grant(checked, 1, 0.0, why="the 5 USD of the day are spent", spent=True)
    checked.slot(3.0)
    assert "the quota: the 5 USD of the day are spent" in checked.scheduler.last_decisions[0].verdict


def test_the_own_budget_counts_besides_the_quota() -> None:
    checked = Checked(scheduler_settings(quota=True, budget=Budget(PERIOD_USD / 2)))
    grant(checked, 1)
    until(checked, 105.0, 3.0)
    assert "the budget has no room for a VM" in checked.scheduler.last_decisions[0].verdict


def rented() -> Checked:
    """A scheduler with a VM that sends; its period ends at 126 s."""
    checked = asking()
    grant(checked, 1)
    assert checked.slot(3.0) == [("start", "vm-1")]
    checked.tell(VmReady, vm="vm-1", billing_since_s=checked.now_s)
    assert checked.slot(2.5) == [HALF]
    return checked


def test_the_next_block_of_a_vm_is_claimed_ahead() -> None:
    checked = rented()
    needs = checked.scheduler.needs(checked.now_s)
    assert (needs.vms, needs.usd_by_day) == (1, {TODAY: pytest.approx(2 * PERIOD_USD)})


def test_a_vm_whose_next_block_is_not_granted_ends_with_its_period() -> None:
    checked = rented()
    grant(checked, 1, PERIOD_USD * 1.5)
    until(checked, 123.0, 2.5)
    assert checked.slot(2.5) == [ALL_HOME, ("drain", "vm-1")]


def test_a_vm_without_a_permit_ends_with_its_period() -> None:
    checked = rented()
    grant(checked, 0)
    until(checked, 123.0, 2.5)
    assert checked.slot(2.5) == [ALL_HOME, ("drain", "vm-1")]
    assert "no permit for it any more" in checked.scheduler.story("vm-1")[-1].why


def test_a_gateway_that_drains_claims_no_vm() -> None:
    checked = asking()
    checked.tell(DrainAll)
    checked.slot(3.0)
    assert checked.scheduler.needs(checked.now_s).permits == 0


@pytest.mark.parametrize(("spent", "sheds"), [(False, False), (True, True)])
def test_events_are_shed_only_when_the_money_of_the_quota_is_spent(spent: bool, sheds: bool) -> None:
    checked = Checked(scheduler_settings(quota=True, sheds=True))
    grant(checked, 1, 0.0, spent=spent)
    measured = {"input_rate": 100.0, "rates": {"home": 50.0}, "backlog_events": 500}
    found = [type(command).__name__ for command in _slot(checked, 3.0, measured)]
    assert ("SetShed" in found) == sheds


def _slot(checked: Checked, latency_s: float, measured: dict[str, object]) -> list[object]:
    checked.now_s += 1.0
    slots = (QuerySlot(query="q", latency_s=latency_s, **measured),)  # type: ignore[arg-type]
    return list(checked.scheduler.handle(SlotEnded(event_id="s", at_s=checked.now_s, queries=slots)))


def test_a_budget_that_is_frozen_is_the_first_reason() -> None:
    checked = asking()
    grant(checked, 1)
    checked.tell(BudgetFrozen, why="the disk is full")
    checked.slot(3.0)
    assert "the disk is full" in checked.scheduler.last_decisions[0].verdict
