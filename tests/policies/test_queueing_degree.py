from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.queueing.adaptation import Adaptation, Change
from policies.queueing.degree import BufferGoal, calculate_degree
from policies.queueing.stationary import mdc_within, mmc_within


@settings(max_examples=40)
@given(
    st.floats(0.1, 9),
    st.integers(0, 40),
    st.floats(0.5, 0.999),
    st.integers(1, 14),
    st.sampled_from([mmc_within, mdc_within]),
)
def test_the_search_finds_the_least_degree_from_anywhere(
    offered: float, limit: int, probability: float, current: int, formula: Callable[[float, float, int, int], float]
) -> None:
    def within(instances: int) -> float:
        return formula(offered, 1.0, instances, limit)

    degree, reached, kept = calculate_degree(within, BufferGoal(limit, probability), current=current, most=14)
    best = next((c for c in range(1, 15) if within(c) >= probability), None)
    assert kept == (best is not None)
    assert degree == (best or 14)
    assert reached == within(degree)


def test_nonsense_is_refused() -> None:
    with pytest.raises(ValueError, match="is no goal"):
        BufferGoal(15, 1.0)


# --------------------------------------------------------------------------------------------------- adaptation (V-D)


def test_cancellations_wait_a_horizon_and_are_taken_back_before_anything_is_started() -> None:
    fleet = Adaptation(8, horizon_s=60.0)
    assert fleet.decide(5, at_s=0.0) == Change(reuse=0, start=0, cancel=0)
    assert fleet.registered == 8
    assert fleet.decide(5, at_s=60.0) == Change(reuse=0, start=0, cancel=3)
    assert (fleet.registered, fleet.shutting_down) == (5, 3)
    fleet.shut_down(1)
    assert fleet.decide(9, at_s=70.0) == Change(reuse=2, start=2, cancel=0)
    assert fleet.shutting_down == 0


def test_a_cancellation_to_come_is_simply_forgotten() -> None:
    fleet = Adaptation(8, horizon_s=60.0)
    fleet.decide(5, at_s=0.0)
    assert fleet.decide(7, at_s=10.0) == Change(reuse=0, start=0, cancel=0)
    assert fleet.decide(7, at_s=60.0) == Change(reuse=0, start=0, cancel=1)


def test_one_that_is_due_and_wanted_again_in_the_same_moment_stays() -> None:
    fleet = Adaptation(4, horizon_s=60.0)
    fleet.decide(2, at_s=0.0)
    assert fleet.decide(3, at_s=60.0) == Change(reuse=0, start=0, cancel=1)


@given(st.lists(st.tuples(st.integers(1, 12), st.integers(0, 40), st.integers(0, 3)), max_size=40))
def test_instances_are_neither_lost_nor_doubled(steps: list[tuple[int, int, int]]) -> None:
    fleet, now_s, live, ending, started = Adaptation(4, horizon_s=60.0), 0.0, 4, 0, 0
    for degree, wait_s, gone in steps:
        now_s += wait_s
        change = fleet.decide(degree, now_s)
        assert min(change.reuse, change.start, change.cancel) >= 0
        assert not change.start or fleet.shutting_down == 0, "something was started while one could be taken back"
        live += change.reuse + change.start - change.cancel
        ending += change.cancel - change.reuse
        started += change.start
        assert live == fleet.registered >= fleet.wanted == degree
        assert ending == fleet.shutting_down
        fleet.shut_down(min(gone, ending))
        ending -= min(gone, ending)
    final = fleet.decide(fleet.wanted, now_s + 60.0)
    assert live - final.cancel == fleet.wanted == fleet.registered


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="only 0 were shutting down"):
        Adaptation(2, 60.0).shut_down()
    with pytest.raises(ValueError, match="needs an instance"):
        Adaptation(2, 60.0).decide(0, 0.0)
    with pytest.raises(ValueError, match="0 instances with a start time"):
        Adaptation(0, 60.0)
