from __future__ import annotations

import pytest

from gateway.core.exchange.lanes.watch import LaneWatch
from tests.core.exchange.exchange_shell import PATIENCE


def watch(usual_s: float | None = None) -> LaneWatch:
    """A lane with work at time 0 that usually takes ``usual_s``."""
    new = LaneWatch(PATIENCE)
    if usual_s is not None:
        new.answered(0.0, -usual_s)
    new.works(True, 0.0)
    return new


@pytest.mark.parametrize(
    ("usual_s", "doublings", "overdue_s"),
    [(None, 0, 120.0), (0.1, 0, 10.0), (5.0, 0, 40.0), (0.1, 1, 20.0), (0.1, 2, 40.0), (0.1, 3, 80.0)],
)
def test_a_run_is_overdue_after_what_the_lane_usually_takes_and_twice_as_long_each_time(
    usual_s: float | None, doublings: int, overdue_s: float
) -> None:
    assert watch(usual_s).overdue_after_s(doublings) == overdue_s


def test_a_lane_that_slows_down_is_given_more_time() -> None:
    lane = watch(0.1)
    for sent_s in range(100, 3000, 100):
        lane.answered(sent_s + 9.0, float(sent_s))
    assert lane.usual_s == pytest.approx(9.0, abs=0.1)


def test_a_lane_is_silent_only_while_it_has_work() -> None:
    lane = watch(1.0)
    assert lane.silence_s(30.0, held_back=False) is None
    assert lane.silence_s(31.0, held_back=False) == 31.0
    lane.works(False, 20.0)
    assert lane.waiting_s(25.0) is None
    assert lane.silence_s(1000.0, held_back=False) is None
    lane.works(True, 1000.0)
    assert lane.waiting_s(1001.0) == 1.0
    assert lane.silence_s(1010.5, held_back=False) == 30.5, "the answers that others gave do not speak for it"
    lane.answered(1011.0, None)
    assert lane.silence_s(1041.0, held_back=False) is None


def test_what_the_link_holds_back_is_no_silence() -> None:
    lane = watch(1.0)
    assert lane.silence_s(300.0, held_back=True) is None
    assert lane.silence_s(361.0, held_back=True) == 361.0
    lane.sent(300.0, 290.0)
    assert lane.silence_s(319.0, held_back=False) is None
    assert lane.silence_s(321.0, held_back=False) == 31.0


def test_an_answer_whose_time_says_nothing_teaches_nothing() -> None:
    lane = watch(1.0)
    lane.answered(10_000.0, None)
    assert lane.usual_s == 1.0
