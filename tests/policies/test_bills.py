"""What each VM cost, used and left unused, and what the status shows about money."""

from __future__ import annotations

import json

import pytest

from gateway.views.moneyview import log_bill, money
from policies.money.ledger import Budget
from policies.signals import QuerySlot, SlotEnded, VmDrained, VmGone, VmReady
from policies.vms.machine import VmBill
from tests.policies.policy_data import TERMS, Checked, ledger_of, scheduler_settings

PERIOD_USD = TERMS.time_usd(20.0)
WALL_S = 1_700_000_000.0


def slot(checked: Checked, latency_s: float, sent_bytes: int = 0) -> list[tuple[object, ...]]:
    checked.now_s += 1.0
    queries = (QuerySlot(query="q", latency_s=latency_s, sent_bytes={"vm-1": sent_bytes} if sent_bytes else {}),)
    return checked.tell(SlotEnded, queries=queries, wall_s=WALL_S + checked.now_s)


def rented(budget: Budget) -> Checked:
    """A scheduler whose vm-1 is ordered at 102 s and ready at 107 s, and gets 1 MB."""
    checked = Checked(scheduler_settings(max_vms=1, budget=budget))
    slot(checked, 3.0)
    assert slot(checked, 3.0) == [("start", "vm-1")]
    for _ in range(5):
        slot(checked, 3.0)
    checked.tell(VmReady, vm="vm-1", billing_since_s=102.0)
    slot(checked, 2.5)
    slot(checked, 2.5, sent_bytes=1_000_000)
    return checked


def test_the_bill_of_a_vm_from_its_order_to_its_end(caplog: pytest.LogCaptureFixture) -> None:
    checked = rented(Budget())
    while ("drain", "vm-1") not in slot(checked, 0.5):
        pass
    checked.now_s += 0.5
    checked.tell(VmDrained, vm="vm-1")
    checked.now_s += 0.5
    checked.tell(VmGone, vm="vm-1")
    caplog.set_level("INFO")
    log_bill(checked.scheduler, VmGone(event_id="e", at_s=checked.now_s, vm="vm-1"))
    log_bill(checked.scheduler, VmGone(event_id="e", at_s=checked.now_s, vm="vm-9"))
    egress_usd = TERMS.egress_usd(1_000_000)
    totals = checked.scheduler.totals(checked.now_s)
    (bill,) = totals.bills
    assert bill == VmBill("vm-1", 20.0, 13.5, 6.5, 1_000_000, bill.usd)
    assert bill.usd == pytest.approx(PERIOD_USD + egress_usd)
    assert (totals.billed_s, totals.used_s, totals.sent_bytes) == (20.0, 13.5, 1_000_000)
    (told,) = caplog.messages
    assert told.startswith("vm-1 was billed for 20 s (14 s used, 6 s unused); 1.0 MB were sent to it: 0.00")
    assert told.endswith(
        f"{bill.usd:.4f} USD. All VMs so far: 20 s billed, 14 s used, 1.0 MB sent, {totals.usd:.4f} USD"
    )


def test_the_status_says_what_is_spent_reserved_and_left_and_when_it_will_be_gone() -> None:
    checked = rented(Budget(usd_per_day=PERIOD_USD * 3))
    said = money(checked.scheduler, checked.now_s, WALL_S + checked.now_s)
    assert json.loads(json.dumps(said)) == said
    assert said["spent_today_usd"] == 0.0
    reserved_usd, left_usd = said["reserved_usd"], said["left_usd"]
    assert isinstance(reserved_usd, float)
    assert isinstance(left_usd, float)
    assert reserved_usd >= PERIOD_USD + TERMS.egress_usd(1_000_000)
    assert reserved_usd + left_usd == pytest.approx(PERIOD_USD * 3)
    rate_usd = TERMS.time_usd(1.0) + TERMS.egress_usd(1_000_000)
    in_s = (left_usd + TERMS.time_usd(122.0 - checked.now_s)) / rate_usd
    assert said["limit_reached"] == {"limit": "usd_per_day", "in_s": pytest.approx(in_s)}


def test_a_query_s_own_limit_is_foretold_too() -> None:
    checked = rented(Budget(usd_per_day=100.0, usd_per_query_day=PERIOD_USD * 3))
    forecast = checked.scheduler.money(checked.now_s).limit_reached
    assert forecast is not None
    left_usd = ledger_of(checked).query_left_usd("q", WALL_S + checked.now_s)
    rate_usd = TERMS.time_usd(1.0) + TERMS.egress_usd(1_000_000)
    assert forecast.limit == "usd_per_query_day of q"
    assert forecast.in_s == pytest.approx((left_usd + TERMS.time_usd(122.0 - checked.now_s)) / rate_usd)


def test_without_a_limit_nothing_is_foretold() -> None:
    checked = rented(Budget())
    said = money(checked.scheduler, checked.now_s, WALL_S + checked.now_s)
    assert (said["left_usd"], said["limit_reached"]) == (None, None)


@pytest.mark.parametrize("egress_bytes", [0, 500_000])
@pytest.mark.parametrize("periods", [2.5, 4.0, 7.3])
def test_the_forecast_comes_true_but_for_the_last_period(egress_bytes: int, periods: float) -> None:
    """A period that does not fit into the budget as a whole is not begun, so a VM may end up to one period early."""
    checked = rented(Budget(usd_per_day=PERIOD_USD * periods + 100 * TERMS.egress_usd(egress_bytes)))
    for _ in range(5):
        slot(checked, 2.5, sent_bytes=egress_bytes)
    forecast = checked.scheduler.money(checked.now_s).limit_reached
    assert forecast is not None
    assert forecast.limit == "usd_per_day"
    reached_s = checked.now_s + forecast.in_s
    while ("drain", "vm-1") not in slot(checked, 2.5, sent_bytes=egress_bytes):
        assert checked.now_s < reached_s + 1.0, "nothing is kept when the money is gone"
    assert 0.0 < reached_s - checked.now_s < TERMS.period_s + 1.0
