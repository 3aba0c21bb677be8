from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from policies.switching.pausing import why_not_pause

SECONDS = st.floats(0.01, 1000)


def waited_s(pause_s: float, rate: int) -> float:
    """Add up how long each event waits that arrives while a query moves, at a rate of ``rate`` events/s."""
    events = int(pause_s * rate)
    return sum(pause_s - (number + 0.5) / rate for number in range(events))


@given(pause_s=st.floats(0.5, 30), excess_s=st.floats(0.01, 10), stay_s=st.floats(1, 600))
def test_a_move_that_costs_more_waiting_than_it_saves_is_not_made(
    pause_s: float, excess_s: float, stay_s: float
) -> None:
    rate = 100
    cost_s, saved_s = waited_s(pause_s, rate), excess_s * stay_s * rate
    if cost_s > 1.05 * saved_s:
        assert "costs more than it saves" in why_not_pause(pause_s, excess_s=excess_s, stay_s=stay_s)
    if cost_s < 0.95 * saved_s:
        assert why_not_pause(pause_s, excess_s=excess_s, stay_s=stay_s) == ""


@given(pause_s=SECONDS, pause_most_s=SECONDS)
def test_no_pause_is_longer_than_allowed(pause_s: float, pause_most_s: float) -> None:
    why = why_not_pause(pause_s, excess_s=1e9, stay_s=1e9, pause_most_s=pause_most_s)
    assert ("max_pause" in why) == (pause_s > pause_most_s)


def test_a_query_whose_latency_is_low_does_not_pause() -> None:
    assert why_not_pause(0.1, excess_s=0.0, stay_s=3600.0)
    assert why_not_pause(0.1, excess_s=-1.0, stay_s=3600.0)
