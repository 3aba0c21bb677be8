"""What each VM cost, used and left unused, and what the status shows about money."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.views.moneyview import log_bill, money
from policies.money.billing import Traffic
from policies.money.ledger import Budget
from policies.signals import QuerySlot, SlotEnded, VmDrained, VmGone, VmReady
from policies.vms.machine import VmAccount, VmBill
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
    assert bill == VmBill("vm-1", 20.0, 13.5, 6.5, 1_000_000, bill.usd, 0)
    assert bill.usd == pytest.approx(PERIOD_USD + egress_usd)
    assert (totals.billed_s, totals.used_s, totals.sent_bytes) == (20.0, 13.5, 1_000_000)
    (told,) = caplog.messages
    assert told.startswith("vm-1 was billed for 20 s (14 s used, 6 s unused); 1.0 MB were sent to it, and ")
    assert told.endswith(
        f"0.0 MB came back: {bill.usd:.4f} USD. All VMs so far: 20 s billed, 14 s used, 1.0 MB sent, 0.0 MB received, "
        f"{totals.usd:.4f} USD"
    )


def test_all_bytes_over_the_links_cost_in_both_directions_and_queries_share_them_by_their_payloads() -> None:
    terms = replace(TERMS, usd_per_gb_received=0.05)
    account = VmAccount("vm-1", terms, payers=("a", "b"))
    account.meter({}, Traffic(2_000, 1_000))  # heartbeats before the first payload
    first_usd = 2_000 * terms.usd_per_gb_sent / 1e9 + 1_000 * 0.05 / 1e9
    assert account.slot_traffic_usd == pytest.approx({"a": first_usd / 2, "b": first_usd / 2})
    account.meter({"a": 30_000, "b": 10_000}, Traffic(41_000, 9_000))
    later_usd = 41_000 * terms.usd_per_gb_sent / 1e9 + 9_000 * 0.05 / 1e9
    assert account.slot_traffic_usd == pytest.approx({"a": later_usd * 3 / 4, "b": later_usd / 4})
    account.meter({}, Traffic(0, 4_000))  # results of what was sent before
    bill = account.bill(0.0, billed=True)
    assert (bill.sent_bytes, bill.received_bytes) == (43_000, 14_000)
    traffic_usd = 43_000 * terms.usd_per_gb_sent / 1e9 + 14_000 * 0.05 / 1e9
    assert bill.usd == pytest.approx(terms.time_usd(bill.billed_s) + traffic_usd)
    assert account.settle(0.0)["a"] == pytest.approx(
        terms.time_usd(bill.billed_s) / 2 + first_usd / 2 + (later_usd + 4_000 * 0.05 / 1e9) * 3 / 4
    )
    assert account.block_traffic_usd == {}


@given(
    st.lists(
        st.tuples(
            st.dictionaries(st.sampled_from("abc"), st.integers(1, 10**6)), st.integers(0, 10**7), st.integers(0, 10**7)
        ),
        max_size=20,
    )
)
def test_no_traffic_is_paid_for_twice_or_by_nobody(slots: list[tuple[dict[str, int], int, int]]) -> None:
    terms = replace(TERMS, usd_per_gb_received=0.05)
    account = VmAccount("vm-1", terms, payers=("a",))
    for payload_bytes, sent_bytes, received_bytes in slots:
        account.meter(payload_bytes, Traffic(sent_bytes, received_bytes))
    sent, received = sum(sent for _, sent, _ in slots), sum(received for _, _, received in slots)
    expected_usd = sent * terms.usd_per_gb_sent / 1e9 + received * 0.05 / 1e9
    assert sum(account.block_traffic_usd.values()) == pytest.approx(expected_usd)


def test_what_a_vm_carries_after_its_last_slot_is_on_its_bill() -> None:
    checked = rented(Budget())
    while ("drain", "vm-1") not in slot(checked, 0.5):
        pass
    checked.now_s += 1.0
    checked.tell(VmDrained, vm="vm-1")
    checked.tell(VmGone, vm="vm-1", traffic=Traffic(500, 700))
    totals = checked.scheduler.totals(checked.now_s)
    assert (totals.sent_bytes, totals.received_bytes) == (1_000_500, 700)
    (bill,) = totals.bills
    assert bill.usd == pytest.approx(PERIOD_USD + TERMS.egress_usd(1_000_500))


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
