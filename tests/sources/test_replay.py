from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.sources.schedule import Schedule

STEPS = st.lists(st.tuples(st.floats(0.01, 100), st.floats(0.1, 10_000)), min_size=1, max_size=6)


@given(STEPS, st.integers(0, 200_000))
def test_due_count_and_due_s_are_inverse(steps: list[tuple[float, float]], record: int) -> None:
    schedule = Schedule(steps)
    at_s = schedule.due_s(record)
    assert schedule.due_count(at_s) >= record + 1
    assert schedule.due_s(schedule.due_count(at_s) - 1) <= at_s
    if at_s > 0:
        assert schedule.due_count(math.nextafter(at_s, 0.0) - 1e-9 * at_s) <= record + 1


@given(STEPS, st.floats(0, 1000))
def test_what_is_due_is_due_and_the_next_is_not(steps: list[tuple[float, float]], at_s: float) -> None:
    schedule = Schedule(steps)
    count = schedule.due_count(at_s)
    assert schedule.due_s(count - 1) <= at_s < schedule.due_s(count)


@given(STEPS, st.integers(0, 10_000))
def test_records_are_due_one_after_another(steps: list[tuple[float, float]], record: int) -> None:
    schedule = Schedule(steps)
    assert schedule.due_s(record) <= schedule.due_s(record + 1)


def test_rates_follow_their_steps_and_the_last_one_stays() -> None:
    schedule = Schedule([(10.0, 100.0), (5.0, 400.0), (10.0, 50.0)])
    assert schedule.due_s(0) == 0.0
    assert schedule.due_s(1000) == 10.0
    assert schedule.due_s(3000) == 15.0
    assert schedule.due_s(3500) == 25.0
    assert schedule.due_s(4000) == 35.0
    assert schedule.due_count(12.5) == 2001
    assert schedule.due_times_s(990, 3510) == pytest.approx([schedule.due_s(i) for i in range(990, 3511)])
    assert schedule.mean_due_s(0, 999) == pytest.approx(sum(schedule.due_s(i) for i in range(1000)) / 1000)


def test_nothing_is_due_before_the_start() -> None:
    assert Schedule([(1.0, 1000.0)]).due_count(-0.001) == 0


@pytest.mark.parametrize("steps", [[], [(0.0, 1.0)], [(1.0, 0.0)], [(1.0, 5.0), (-1.0, 5.0)]])
def test_steps_without_duration_or_rate_are_refused(steps: list[tuple[float, float]]) -> None:
    with pytest.raises(ValueError, match="above 0"):
        Schedule(steps)
