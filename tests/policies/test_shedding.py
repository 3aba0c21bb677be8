"""How much is shed once the budget is spent: exact counts, a target that is met, and nothing while money would help."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.money.ledger import Budget, LedgerEntry, LedgerState
from policies.signals import HOME, LedgerRestored, QueryOpened, QuerySlot, SetShed, SlotEnded, VmReady
from policies.switching.shedding import MOST, Sampler, share_to_shed
from tests.policies.policy_data import TERMS, Checked, query_settings, scheduler_settings

PERIOD_USD = TERMS.time_usd(20.0)


@given(st.floats(0.0, 1.0), st.lists(st.integers(1, 500), min_size=1, max_size=50))
def test_the_sampler_sheds_exactly_its_share(share: float, groups: list[int]) -> None:
    sampler = Sampler(share)
    counts = [sampler.shed(events) for events in groups]
    assert all(0 <= count <= events for count, events in zip(counts, groups, strict=True))
    assert abs(sum(counts) - share * sum(groups)) <= 1.0 + 1e-6


def test_a_sampler_that_is_told_to_stop_owes_nothing() -> None:
    sampler = Sampler(0.5)
    assert sampler.shed(1) == 0
    sampler.share = 0.0
    assert sampler.shed(100) == 0
    sampler.share = 0.5
    assert [sampler.shed(1) for _ in range(4)] == [0, 1, 0, 1]


@given(st.floats(0.0, 1e6), st.floats(0.1, 1e5), st.integers(0, 10**7), st.floats(0.1, 60.0))
def test_the_share_grows_with_what_comes_and_waits(
    input_rate: float, capacity_per_s: float, waiting: int, target_s: float
) -> None:
    def share(rate: float, events: int) -> float:
        slot = QuerySlot(query="q", latency_s=9.0, input_rate=rate, backlog_events=events)
        return share_to_shed(slot, capacity_per_s, wait_s=target_s / 2, horizon_s=target_s)

    found = share(input_rate, waiting)
    assert 0.0 <= found <= MOST
    if input_rate <= capacity_per_s and waiting <= capacity_per_s * target_s / 2:
        assert found == 0.0
    assert share(input_rate, waiting + 1000) >= found - 1e-9
    if input_rate > 0:
        assert share(2 * input_rate, waiting) >= found - 1e-9


def shed_of(checked: Checked, **measured: Any) -> list[SetShed]:
    checked.now_s += 1.0
    slot = QuerySlot(query="q", **measured)
    event = SlotEnded(event_id=f"slot {checked.now_s}", at_s=checked.now_s, queries=(slot,))
    commands = checked.scheduler.handle(event)
    checked.scheduler.validate()
    assert all(command.cause.event_id == event.event_id and command.cause.why for command in commands)
    return [command for command in commands if isinstance(command, SetShed)]


def without_money(**changes: Any) -> Checked:
    return Checked(scheduler_settings(**{"sheds": True, "budget": Budget(usd_per_day=0.5 * PERIOD_USD), **changes}))


OVERLOAD: dict[str, Any] = {"latency_s": 5.0, "input_rate": 400.0, "rates": {HOME: 100.0}, "backlog_events": 100}


def test_in_the_end_the_target_is_met_and_no_more_is_shed_than_is_too_much() -> None:
    """A home of 100 events/s gets 400/s: a queue in numbers, controlled by the decisions."""
    checked, waiting, share, taken, shed = without_money(), 0.0, 0.0, 0.0, 0.0
    for second in range(300):
        waiting += 400.0 * (1 - share)
        served = min(100.0, waiting)
        waiting -= served
        if second >= 200:
            taken, shed = taken + served, shed + 400.0 * share
        orders = shed_of(
            checked, latency_s=waiting / 100, input_rate=400.0, rates={HOME: 100.0}, backlog_events=int(waiting)
        )
        share = orders[-1].share if orders else share
        if second >= 30:
            assert waiting / 100.0 <= 2.0
    assert taken == pytest.approx(100 * 100.0, rel=0.02)
    assert shed == pytest.approx(100 * 300.0, rel=0.02)


def test_it_begins_at_send_above_and_ends_when_all_can_be_taken_in() -> None:
    checked = without_money()
    assert shed_of(checked, **{**OVERLOAD, "latency_s": 1.9}) == []
    (begun,) = shed_of(checked, **OVERLOAD)
    assert begun.share == pytest.approx(0.75, abs=0.05)
    assert "no room for a VM" in begun.cause.why
    assert shed_of(checked, **{**OVERLOAD, "latency_s": 1.6, "input_rate": 401.0}) == []
    assert shed_of(checked, **{**OVERLOAD, "latency_s": 0.5, "input_rate": 200.0})[0].share == pytest.approx(
        0.5, abs=0.1
    )
    assert shed_of(checked, **{**OVERLOAD, "latency_s": 0.5, "input_rate": 90.0})[0].share == 0.0


@pytest.mark.parametrize(
    "changes",
    [
        {"sheds": False},
        {"max_vms": 0},
        {"budget": Budget()},
        {"queries": (query_settings(mode="off"),)},
    ],
    ids=["not told to", "no VM allowed", "there is money", "switching is off"],
)
def test_nothing_is_shed_if_it_is_not_for_money(changes: dict[str, Any]) -> None:
    checked = without_money(**changes)
    for _ in range(5):
        assert shed_of(checked, **OVERLOAD) == []


def test_a_query_that_may_not_be_switched_is_not_cut_either() -> None:
    checked = without_money()
    checked.tell(QueryOpened, query="q", switchable=False, reason="it has state")
    assert shed_of(checked, **OVERLOAD) == []


def test_nothing_is_shed_while_a_vm_that_is_paid_for_is_on_its_way() -> None:
    checked = without_money(budget=Budget(usd_per_day=1.5 * PERIOD_USD))
    for _ in range(4):
        assert shed_of(checked, **OVERLOAD) == []
    assert len(checked.scheduler.vms) == 1
    checked.tell(VmReady, vm="vm-1", billing_since_s=checked.now_s)
    (order,) = shed_of(checked, **{**OVERLOAD, "rates": {HOME: 100.0, "vm-1": 100.0}, "backlog_events": 200})
    assert order.share == pytest.approx(0.5, abs=0.1)


def test_a_new_day_ends_it() -> None:
    checked = without_money(budget=Budget(usd_per_day=1.2 * PERIOD_USD, usd_per_query_day=0.0))
    assert shed_of(checked, **OVERLOAD)[0].cause.why == "q: usd_per_query_day is spent"
    checked = without_money(budget=Budget(usd_per_hour=1.2 * PERIOD_USD))
    checked.tell(LedgerRestored, state=LedgerState(spent=(LedgerEntry(int(checked.now_s // 3600), "q", PERIOD_USD),)))
    assert shed_of(checked, **OVERLOAD)[0].share == pytest.approx(0.75, abs=0.05)
    checked.now_s += 3600.0
    assert shed_of(checked, **OVERLOAD)[0].share == 0.0
