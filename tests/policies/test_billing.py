import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.money.billing import BillingTerms, decision_due_s

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


def test_nonsense_is_refused() -> None:
    with pytest.raises(ValueError, match="longer than 0"):
        BillingTerms(0, 0, 0, 0)
    with pytest.raises(ValueError, match="negative"):
        BillingTerms(1, 0, -1, 0)


@given(
    slot_s=st.floats(0.1, 10.0),
    drain_s=st.floats(0.0, 600.0),
    blocks_s=st.floats(1.0, 3600.0),
    slots_to_boot=st.floats(2.0, 100.0),
)
def test_a_vm_is_given_up_in_the_last_boot_and_drain_seconds_of_what_was_paid(
    slot_s: float, drain_s: float, blocks_s: float, slots_to_boot: float
) -> None:
    boot_s = slots_to_boot * slot_s
    due_s = decision_due_s(10_000.0, slot_s=slot_s, drain_s=drain_s, block_s=blocks_s)
    assert due_s >= 10_000.0 - (boot_s + drain_s) - 1e-6
    assert due_s <= 10_000.0 - 2 * slot_s + 1e-6, "there is time to give it back"
