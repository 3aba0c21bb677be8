"""Pauses between the restarts of a failing query or host."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from policies.failures.restarts import Restarts, RestartTerms


def test_pauses_double_up_to_the_longest() -> None:
    restarts = Restarts(RestartTerms(first_s=5.0, most_s=60.0))
    assert [restarts.failed(at_s) for at_s in range(6)] == [5.0, 10.0, 20.0, 40.0, 60.0, 60.0]
    assert restarts.failures == 6


def test_what_ran_for_longer_than_the_longest_pause_begins_anew() -> None:
    restarts = Restarts(RestartTerms(first_s=5.0, most_s=60.0))
    assert [restarts.failed(0.0), restarts.failed(1.0)] == [5.0, 10.0]
    restarts.began(10.0)
    assert restarts.failed(69.0) == 20.0, "a minute has not passed"
    restarts.began(80.0)
    assert restarts.failed(141.0) == 5.0
    assert restarts.failures == 1


def test_it_is_given_up_once_the_failures_have_gone_on_for_long_enough() -> None:
    restarts = Restarts(RestartTerms(first_s=5.0, most_s=60.0, give_up_after_s=30.0))
    assert [restarts.failed(at_s) for at_s in (100.0, 105.0, 129.9)] == [5.0, 10.0, 20.0]
    assert restarts.failed(130.0) is None
    restarts.began(200.0)
    assert restarts.failed(300.0) == 5.0, "it had run for longer than a minute"


def test_what_took_long_to_judge_pauses_nineteen_times_as_long_and_no_shorter_afterwards() -> None:
    restarts = Restarts(RestartTerms(first_s=5.0, most_s=60.0))
    assert [restarts.failed(0.0, 2.0), restarts.failed(1.0, 1.0)] == [38.0, 38.0]
    restarts = Restarts(RestartTerms(first_s=5.0, most_s=60.0))
    assert [restarts.failed(0.0, 1.0), restarts.failed(1.0, 5.0), restarts.failed(2.0, 100.0)] == [19.0, 60.0, 60.0]


def test_time_in_which_it_is_judged_is_no_time_that_it_ran() -> None:
    restarts, now_s = Restarts(RestartTerms(first_s=1.0, most_s=10.0)), 0.0
    for failure in range(1, 5):
        restarts.began(now_s)
        now_s += 60.0
        assert restarts.failed(now_s, judging_s=55.0) == 10.0
        assert restarts.failures == failure
    restarts.began(now_s)
    restarts.failed(now_s + 60.0, judging_s=45.0)
    assert restarts.failures == 1


@given(st.lists(st.tuples(st.floats(0, 1e6), st.booleans()), max_size=2000))
def test_pauses_stay_within_their_bounds(steps: list[tuple[float, bool]]) -> None:
    restarts, now_s = Restarts(RestartTerms(first_s=1.0, most_s=64.0)), 0.0
    for step_s, began in steps:
        now_s += step_s
        if began:
            restarts.began(now_s)
        else:
            pause_s = restarts.failed(now_s)
            assert pause_s is not None
            assert 1.0 <= pause_s <= 64.0
