"""How long VMs boot, learned from boots: bounded, robust, and never less than what is plain to see."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.vms.boots import BootHistory
from policies.vms.vm import VmInput

TIMES_S = st.floats(0.0, 1000.0)


def after(configured_s: float, *boots_s: float) -> BootHistory:
    history = BootHistory(configured_s)
    for boot_s in boots_s:
        history.ended(VmInput.READY, boot_s)
    return history


@given(TIMES_S, st.lists(TIMES_S, max_size=60), st.lists(TIMES_S, max_size=5))
def test_the_estimate_is_one_of_the_latest_boots_which_few_exceed(
    configured_s: float, boots_s: list[float], booting_s: list[float]
) -> None:
    estimate = after(configured_s, *boots_s).estimate(booting_s)
    known_s = [configured_s, *boots_s][-20:]
    assert estimate.expected_s in [*known_s, *booting_s]
    assert estimate.configured_s == configured_s
    longer = sum(each_s > estimate.expected_s for each_s in (*known_s, *booting_s))
    assert longer <= 0.2 * (len(known_s) + len(booting_s))


@given(TIMES_S, st.lists(TIMES_S, max_size=60), TIMES_S, TIMES_S)
def test_a_longer_boot_never_lowers_the_estimate(
    configured_s: float, boots_s: list[float], one_s: float, other_s: float
) -> None:
    short, long = (after(configured_s, *boots_s, each_s) for each_s in sorted((one_s, other_s)))
    assert short.estimate().expected_s <= long.estimate().expected_s
    assert long.estimate().expected_s <= long.estimate([one_s]).expected_s


@given(TIMES_S, st.lists(TIMES_S, max_size=2), TIMES_S)
def test_while_few_boots_were_seen_an_order_takes_at_least_as_long_as_the_oldest(
    configured_s: float, boots_s: list[float], booting_s: float
) -> None:
    assert after(configured_s, *boots_s).estimate([booting_s]).expected_s >= booting_s


def test_one_boot_raises_the_estimate_and_four_lower_it() -> None:
    assert after(5.0).estimate() == (5.0, 5.0, 0)
    assert after(5.0, 60.0).estimate() == (5.0, 60.0, 1)
    assert after(60.0, 5.0, 5.0, 5.0).estimate().expected_s == 60.0
    assert after(60.0, 5.0, 5.0, 5.0, 5.0).estimate() == (60.0, 5.0, 4)


def test_an_order_that_hangs_is_one_among_many() -> None:
    usual = after(60.0, *[60.0] * 20)
    assert usual.estimate([300.0]) == (60.0, 60.0, 21)
    assert usual.estimate([300.0] * 6).expected_s == 300.0


@given(TIMES_S, st.lists(TIMES_S, max_size=60), st.lists(TIMES_S, max_size=30))
def test_a_gateway_that_is_started_again_goes_on_with_the_boots_that_were_seen(
    configured_s: float, before_s: list[float], later_s: list[float]
) -> None:
    again = BootHistory(configured_s)
    again.restore(after(configured_s, *before_s).seen_s)
    for each_s in later_s:
        again.ended(VmInput.READY, each_s)
    assert again.estimate() == after(configured_s, *before_s, *later_s).estimate()


@pytest.mark.parametrize("happened", [VmInput.OVERDUE, VmInput.STOP, VmInput.RECLAIMED])
def test_a_boot_that_was_given_up_counts_if_it_was_longer_than_expected(happened: VmInput) -> None:
    history = after(20.0)
    history.ended(happened, 10.0)
    assert history.estimate() == (20.0, 20.0, 0)
    history.ended(happened, 120.0)
    assert history.estimate() == (20.0, 120.0, 1)


@pytest.mark.parametrize("happened", [VmInput.FAILED, VmInput.LOST])
def test_a_launch_that_failed_tells_nothing(happened: VmInput) -> None:
    history = after(20.0)
    history.ended(happened, 120.0)
    assert history.estimate() == (20.0, 20.0, 0)
