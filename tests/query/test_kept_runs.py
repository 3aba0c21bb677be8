"""Which runs stay in the run log although the sink has their results."""

from __future__ import annotations

from gateway.query.flow.runlog import KeptRuns


def test_a_query_without_state_needs_nothing_that_is_committed() -> None:
    kept = KeptRuns(stateful=False)
    kept.answered(10)
    assert kept.needed_from(30) == 30


def test_the_last_micro_batch_of_a_query_with_state_may_run_again() -> None:
    kept = KeptRuns(stateful=True)
    assert kept.needed_from(30) == 0
    kept.answered(20)
    kept.answered(10)
    assert kept.needed_from(30) == 20
    assert kept.needed_from(15) == 15


def test_a_query_that_is_away_may_continue_at_home() -> None:
    kept = KeptRuns(stateful=True)
    kept.keep_from(5)
    kept.answered(20)
    assert kept.needed_from(30) == 5
