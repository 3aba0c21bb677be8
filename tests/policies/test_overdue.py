from __future__ import annotations

import pytest

from policies.failures.overdue import LaneWatch, Patience

PATIENCE = Patience(least_s=10.0, times=8.0, unknown_s=120.0, silences=3.0)


def watch(usual_s: float | None = None) -> LaneWatch:
    """A lane with work at time 0, that usually takes ``usual_s``."""
    new = LaneWatch(PATIENCE)
    if usual_s is not None:
        new.sent(0, 1, -usual_s, 0.0)
        new.answered(0, 0.0)
    new.works(True, 0.0)
    return new


@pytest.mark.parametrize(
    ("usual_s", "attempt", "overdue_s"),
    [(None, 1, 120.0), (0.1, 1, 10.0), (5.0, 1, 40.0), (0.1, 2, 20.0), (0.1, 3, 40.0), (0.1, 9, 80.0)],
)
def test_a_run_is_overdue_after_what_the_lane_usually_takes_and_twice_as_long_each_time(
    usual_s: float | None, attempt: int, overdue_s: float
) -> None:
    lane = watch(usual_s)
    lane.sent(7, attempt, 0.0, 0.0)
    assert lane.overdue(overdue_s) == []
    assert lane.overdue(overdue_s + 0.1) == [7]
    assert lane.overdue(overdue_s + 1000) == [], "it is told once"


def test_a_lane_that_slows_down_is_given_more_time() -> None:
    lane = watch(0.1)
    for first_seq in range(1, 30):
        lane.sent(first_seq, 1, 100.0 * first_seq, 0.0)
        lane.answered(first_seq, 100.0 * first_seq + 9.0)
    assert lane.usual_s == pytest.approx(9.0, abs=0.1)


def test_an_answered_run_and_one_that_another_lane_answered_are_not_overdue() -> None:
    lane = watch(1.0)
    for first_seq in (1, 2, 3):
        lane.sent(first_seq, 1, 0.0, 0.0)
    lane.answered(1, 1.0)
    lane.forget(2)
    assert lane.overdue(1000.0) == [3]


def test_a_lane_is_silent_only_while_it_has_work() -> None:
    lane = watch(1.0)
    assert lane.silence_s(30.0, held_back=False) is None
    assert lane.silence_s(31.0, held_back=False) == 31.0
    lane.works(False, 20.0)
    assert lane.silence_s(1000.0, held_back=False) is None
    lane.works(True, 1000.0)
    assert lane.silence_s(1010.5, held_back=False) == 30.5, "the answers that others gave do not speak for it"
    lane.answered(99, 1011.0)
    assert lane.silence_s(1041.0, held_back=False) is None


def test_what_the_link_holds_back_is_no_silence() -> None:
    lane = watch(1.0)
    assert lane.silence_s(300.0, held_back=True) is None
    assert lane.silence_s(361.0, held_back=True) == 361.0
    lane.sent(1, 1, 300.0, 290.0)
    assert lane.silence_s(319.0, held_back=False) is None
    assert lane.silence_s(321.0, held_back=False) == 31.0


def test_a_run_that_is_set_aside_is_not_overdue_and_teaches_nothing() -> None:
    lane = watch(1.0)
    lane.sent(7, 1, 0.0, 0.0)
    lane.set_aside(7)
    assert lane.overdue(10_000.0) == []
    lane.answered(7, 10_000.0)
    assert lane.usual_s == 1.0
