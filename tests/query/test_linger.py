from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.query.flow.linger import Linger
from gateway.query.flow.run import BATCH_RUNS_MAX


@given(
    st.floats(0.001, 10),
    st.sampled_from([1, BATCH_RUNS_MAX]),
    st.lists(st.tuples(st.integers(0, 10**6), st.floats(0, 1e6), st.integers(1, 10**6))),
)
def test_a_run_lingers_never_shorter_than_told_nor_ten_times_as_long(
    linger_s: float, batch_runs: int, course: list[tuple[int, float, int]]
) -> None:
    linger = Linger(linger_s, batch_runs)
    for waiting_runs, served_per_s, events in course:
        assert linger_s <= linger.next_s(waiting_runs, served_per_s) <= 10 * linger_s * 1.0001
        linger.cut(events)


@given(st.integers(1, BATCH_RUNS_MAX), st.data(), st.floats(0, 1e6), st.integers(1, 10**6))
def test_a_query_that_is_not_behind_lets_runs_linger_as_told(
    batch_runs: int, data: st.DataObject, served_per_s: float, events: int
) -> None:
    linger = Linger(0.1, batch_runs)
    linger.cut(events)
    assert linger.next_s(data.draw(st.integers(0, batch_runs)), served_per_s) == 0.1


def test_runs_grow_as_soon_as_more_wait_than_the_engine_takes_at_a_time() -> None:
    assert Linger(0.1, 1).next_s(3, 0.0) == pytest.approx(0.3)
    assert Linger(0.1, BATCH_RUNS_MAX).next_s(3, 0.0) == 0.1


def settled_events(input_per_s: float, engine_s: float, event_s: float) -> float:
    """Events in a run once a query that is far behind has settled; a micro-batch takes ``engine_s`` + n ``event_s``."""
    linger, events = Linger(0.1, BATCH_RUNS_MAX), max(1, round(input_per_s * 0.1))
    for _ in range(200):
        linger.cut(events)
        batch = BATCH_RUNS_MAX * events
        served_per_s = batch / (engine_s + batch * event_s)
        events = max(1, round(input_per_s * linger.next_s(80, served_per_s)))
    return events


def test_where_a_micro_batch_costs_the_same_whatever_is_in_it_runs_grow_to_the_most() -> None:
    assert settled_events(200, engine_s=1.2, event_s=1e-5) == 200


def test_where_events_cost_runs_do_not_grow_beyond_a_quarter_of_a_second_of_work() -> None:
    assert settled_events(900, engine_s=0.05, event_s=1 / 220) == 90
    assert settled_events(500, engine_s=0.05, event_s=1 / 400) == pytest.approx(100, abs=5)
