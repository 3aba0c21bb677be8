import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.billing import DAY_S, BillingTerms, Budget, Ledger, decision_due_s

HOURLY = BillingTerms(period_s=3600, minimum_s=3600, usd_per_hour=0.10, usd_per_gb_sent=0.09)
PER_SECOND = BillingTerms(period_s=1, minimum_s=60, usd_per_hour=3.6, usd_per_gb_sent=0.0)


@pytest.mark.parametrize(
    ("terms", "used_s", "billed_s"),
    [
        (HOURLY, 0, 3600),
        (HOURLY, 600, 3600),
        (HOURLY, 3600, 3600),
        (HOURLY, 3600.5, 7200),
        (HOURLY, 7201, 10800),
        (PER_SECOND, 0, 60),
        (PER_SECOND, 59.2, 60),
        (PER_SECOND, 60.2, 61),
        (PER_SECOND, 75, 75),
        (BillingTerms(60, 90, 1, 0), 70, 90),
        (BillingTerms(60, 90, 1, 0), 100, 150),
    ],
)
def test_billed_time_by_hand(terms: BillingTerms, used_s: float, billed_s: float) -> None:
    assert terms.billed_s(1000.0, 1000.0 + used_s) == pytest.approx(billed_s)


def test_costs_by_hand() -> None:
    assert HOURLY.time_usd(7200) == pytest.approx(0.20)
    assert HOURLY.egress_usd(2.5e9) == pytest.approx(0.225)
    assert PER_SECOND.time_usd(61) == pytest.approx(0.061)


@given(st.floats(0.5, 4000), st.floats(0, 8000), st.floats(0, 1e6), st.floats(0, 1e5), st.floats(0, 1e4))
def test_a_longer_use_is_never_billed_less_and_never_less_than_it_lasted(
    period_s: float, minimum_s: float, since_s: float, used_s: float, more_s: float
) -> None:
    terms = BillingTerms(period_s, minimum_s, 1.0, 0.0)
    billed_s = terms.billed_s(since_s, since_s + used_s)
    assert billed_s >= used_s - 1e-5
    assert billed_s < max(used_s, terms.first_block_s) + period_s + 1e-5
    assert terms.billed_s(since_s, since_s + used_s + more_s) >= billed_s - 1e-5


@pytest.mark.parametrize(
    ("drain_s", "block_s", "due_s"),
    [(0, 60, 58), (5, 60, 53), (500, 60, 30), (5, 3, 58)],
)
def test_the_decision_leaves_two_slots_and_the_drain(drain_s: float, block_s: float, due_s: float) -> None:
    assert decision_due_s(60.0, slot_s=1.0, drain_s=drain_s, block_s=block_s) == due_s


def test_a_ledger_reserves_settles_and_releases() -> None:
    ledger = Ledger(Budget(1.0))
    assert ledger.reserve("vm-1", 0.6, 0.0)
    assert not ledger.reserve("vm-2", 0.5, 0.0)
    assert ledger.reserve("vm-1", 0.9, 0.0)
    assert not ledger.reserve("vm-1", 1.1, 0.0)
    assert ledger.reserved_for("vm-1") == 0.9
    ledger.settle("vm-1", 0.25, 1.0)
    assert (ledger.spent_usd, ledger.reserved_usd) == (0.25, 0.0)
    assert ledger.left_usd(1.0) == 0.75


def test_a_new_day_has_a_new_budget_but_keeps_what_is_reserved() -> None:
    ledger = Ledger(Budget(1.0))
    ledger.settle("vm-1", 0.7, DAY_S - 2)
    assert ledger.reserve("vm-2", 0.3, DAY_S - 1)
    assert ledger.left_usd(DAY_S - 1) == pytest.approx(0.0)
    assert ledger.left_usd(DAY_S + 1) == pytest.approx(0.7)


def test_without_a_budget_everything_fits() -> None:
    ledger = Ledger(Budget(None))
    assert ledger.reserve("vm-1", 1e9, 0.0)
    assert ledger.left_usd(0.0) == math.inf


Entry = tuple[str, float, float]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 0.7), st.floats(0, 1))), st.floats(0, 2))
def test_the_budget_is_never_passed_when_what_is_spent_was_reserved(entries: list[Entry], limit_usd: float) -> None:
    ledger = Ledger(Budget(limit_usd))
    for name, usd, used_part in entries:
        if ledger.reserve(name, usd, 5.0) and used_part < 0.9:
            ledger.settle(name, usd * used_part, 5.0)
        assert ledger.spent_usd + ledger.reserved_usd <= limit_usd + 1e-9


def test_nonsense_is_refused() -> None:
    with pytest.raises(ValueError, match="longer than 0"):
        BillingTerms(0, 0, 0, 0)
    with pytest.raises(ValueError, match="negative"):
        BillingTerms(1, 0, -1, 0)
    with pytest.raises(ValueError, match="negative"):
        Budget(-1.0)
    with pytest.raises(ValueError, match="cannot have cost"):
        Ledger(Budget(1.0)).settle("vm-1", -0.1, 0.0)
