"""The lookahead policy: its arithmetic beside a step-by-step calculation, and what it does with the real scheduler."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.lookahead.arriving import ArrivalRate
from policies.lookahead.fluid import Fluid, needed, ordered
from policies.lookahead.policy import LookaheadOptions
from tests.policies.policy_play import BOOT_S, HOME_PER_S, Play, Played, bursts, noisy

TARGET_S = 2.0
STEP_S = 1 / 64
LOOKAHEAD = LookaheadOptions()

fluids = st.builds(Fluid, st.integers(0, 5000), st.integers(0, 20_000), st.integers(100, 2000), st.integers(100, 2000))
readies = st.lists(st.integers(0, 30).map(float), max_size=4).map(tuple)


def stepwise(fluid: Fluid, in_s: float, ready_in_s: tuple[float, ...]) -> float:
    """Return how many events wait then, in small steps; times are whole seconds, so that no step is divided."""
    waiting = fluid.waiting
    for step in range(round(in_s / STEP_S)):
        serving = sum(each <= step * STEP_S for each in ready_in_s)
        waiting = max(0.0, waiting + (fluid.rate - fluid.capacity(serving)) * STEP_S)
    return waiting


@given(fluids, st.lists(st.integers(0, 40), min_size=1, max_size=4).map(sorted), readies)
@settings(max_examples=200, deadline=None)
def test_the_backlog_is_that_of_small_steps(fluid: Fluid, times_s: list[int], ready_in_s: tuple[float, ...]) -> None:
    in_order = list(fluid.latencies_s(times_s, ready_in_s))
    assert in_order == pytest.approx([fluid.latency_s(each, ready_in_s) for each in times_s])
    for in_s, latency_s in zip(times_s, in_order, strict=True):
        capacity = fluid.capacity(sum(each <= in_s for each in ready_in_s))
        assert latency_s * capacity == pytest.approx(stepwise(fluid, in_s, ready_in_s), abs=1e-3)


@given(fluids, readies, st.integers(1, 60), st.floats(0.1, 10), st.integers(0, 5))
@settings(max_examples=300, deadline=None)
def test_as_many_are_ordered_as_keep_the_target_and_none_more(
    fluid: Fluid, ready_in_s: tuple[float, ...], boot_s: int, target_s: float, most: int
) -> None:
    count = ordered(fluid, ready_in_s, boot_s, target_s, most)
    assert 0 <= count <= most

    def keeps(vms: int) -> bool:
        standing = (*ready_in_s, *(float(boot_s),) * vms)
        return fluid.latency_s(2 * boot_s, standing) <= target_s

    if fluid.latency_s(boot_s, ready_in_s) <= target_s:
        assert count == 0
    else:
        assert keeps(count) or count == most
        assert not any(keeps(fewer) for fewer in range(count))


@given(fluids, st.integers(0, 5), st.floats(1, 600), st.floats(0.1, 10))
@settings(max_examples=300, deadline=None)
def test_with_fewer_than_are_kept_the_target_would_be_missed(
    fluid: Fluid, there: int, within_s: float, target_s: float
) -> None:
    count = needed(fluid, there, within_s, target_s)
    assert 0 <= count <= there
    for fewer in range(count):
        assert max(fluid.latency_s(each, (0.0,) * fewer) for each in (0.0, within_s)) > target_s


def test_a_burst_is_seen_in_one_slot_and_noise_is_not() -> None:
    chance, arrivals = random.Random(5), ArrivalRate(0.5)
    for _ in range(200):
        seen = arrivals.observe(2 * chance.gauss(500, 500**0.5))
        assert abs(seen.rate - 1000) < 200
    assert seen.error == pytest.approx(10, rel=0.5)
    assert arrivals.observe(2000.0).rate == 2000.0
    assert arrivals.observe(2000.0).rate == 2000.0
    assert arrivals.observe(0.0).rate == 0.0


def flaps(played: Played) -> int:
    """How many VMs were launched within two boots after one was terminated."""
    return sum(any(0 <= at_s - end_s <= 2 * BOOT_S for end_s in played.ended_s) for at_s, _ in played.started)


def test_a_burst_has_its_vms_at_once_and_they_are_given_back() -> None:
    burst = bursts(every_s=120.0, for_s=20.0, low=400.0, high=2600.0)
    begun_s = 100.0
    ahead, reactive = (Play(policy, burst, max_vms=3).until(240.0) for policy in (LOOKAHEAD, None))
    first = ahead.started[0][0]
    assert begun_s < first <= begun_s + 2.0
    assert ahead.started[0][1].startswith("q: lookahead: ")
    assert ahead.mean_latency_s() < 0.6 * reactive.mean_latency_s()
    assert ahead.usd <= reactive.usd
    assert len(ahead.ended_s) >= 2


def test_a_load_that_stays_gets_the_vm_that_it_needs_and_keeps_it() -> None:
    played = Play(LOOKAHEAD, lambda at_s: 700.0 if at_s < 30 else 1500.0, max_vms=3).until(200.0)
    assert len(played.started) == 1
    assert played.ended_s == []
    # Equation 2 alone would send events to it only while they are late, so half of them would be.
    assert max(latency_s for at_s, latency_s in played.latencies if at_s > 60) < 0.5 * TARGET_S


def test_events_go_to_a_vm_before_they_are_late_and_home_when_the_load_is_over() -> None:
    played = Play(LOOKAHEAD, lambda at_s: 1500.0 if 30 <= at_s < 90 else 400.0, max_vms=1).until(110.0)
    ready_s = played.started[0][0] + BOOT_S
    sends = {decision.at_s: decision.phi_data for decision in played.decisions}
    settled_s = ready_s + 20.0
    assert all(sent for at_s, sent in sends.items() if settled_s < at_s < 90.0)
    assert max(latency_s for at_s, latency_s in played.latencies if settled_s < at_s < 90.0) < 0.5 * TARGET_S
    assert not any(sent for at_s, sent in sends.items() if at_s > 93.0)
    told = next(decision for decision in played.decisions if decision.at_s > settled_s).equations[-1]
    assert "they are sent all the same, since with home alone they would wait" in told


def test_more_load_gets_another_vm_within_the_billing_period_of_the_first() -> None:
    played = Play(LOOKAHEAD, lambda at_s: 700.0 if at_s < 30 else 1500.0 if at_s < 45 else 2600.0, max_vms=3).until(
        90.0
    )
    first_s, *more_s = [at_s for at_s, _ in played.started]
    assert 30 < first_s <= 32
    assert more_s
    assert all(45 < at_s <= 48 for at_s in more_s)


def test_a_burst_just_after_a_termination_gets_its_vm_at_once() -> None:
    once = Play(LOOKAHEAD, lambda at_s: 2000.0 if 30 <= at_s < 50 else 400.0, max_vms=1).until(300.0)
    (ended_s,) = once.ended_s
    again_s = ended_s + 1.0
    twice = Play(LOOKAHEAD, lambda at_s: 2000.0 if 30 <= at_s < 50 or at_s >= again_s else 400.0, max_vms=1).until(
        again_s + 10.0
    )
    assert twice.ended_s == [ended_s]
    assert again_s < twice.started[1][0] <= again_s + 2.0


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_noise_around_the_capacity_of_home_makes_no_vm_come_and_go(seed: int) -> None:
    walk = noisy(HOME_PER_S, 0.05 * HOME_PER_S, seed=seed)
    played = Play(LOOKAHEAD, lambda at_s: walk(at_s // 60 * 60), max_vms=2).until(3600.0)
    assert flaps(played) <= 0.1 * max(1, len(played.started))


def test_why_tells_the_arithmetic() -> None:
    played = Play(LOOKAHEAD, lambda at_s: 400.0 if at_s < 30 else 2500.0).until(40.0)
    decision = next(each for each in played.decisions if each.advice.wanted)
    assert decision.policy == "lookahead"
    assert "2,500 events/s come" in decision.advice.why
    assert "home completes 1,000/s" in decision.advice.why
    assert "without it an event will wait" in decision.advice.why
    assert decision.advice.expected is not None
    assert {option.vms for option in decision.advice.options} >= {1, 2}


@pytest.mark.parametrize("each", [2, 5, 15])
def test_lumps_are_no_bursts(each: int) -> None:
    """All events of some slots come at once, as from a file that is appended to each second."""
    arrivals = ArrivalRate(0.5)
    seen = [arrivals.observe(1000.0 * each if slot % each == 0 else 0.0).rate for slot in range(200)]
    assert all(600 < rate < 1600 for rate in seen[60:])
    assert arrivals.observe(40_000.0 * each).rate > 2 * seen[-1]
