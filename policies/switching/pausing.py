"""Whether a move of a query with its state, while which its events are held, saves more than it costs."""

from __future__ import annotations

from math import inf


def why_not_pause(pause_s: float, *, excess_s: float, stay_s: float, pause_most_s: float = inf) -> str:
    """Return why a query should not move; empty if it should.

    Events that arrive while a query moves wait for half of the pause on average: at a rate of r events/s that is
    r * pause_s² / 2 seconds of waiting. Then each event is answered earlier by at most ``excess_s``: in ``stay_s``
    seconds that saves r * excess_s * stay_s. The rate cancels out.

    Args:
        pause_s: how long the query's events would be held.
        excess_s: L - L_d, what its latency may fall by.
        stay_s: how long it would stay away at least.
        pause_most_s: how long its events may be held.
    """
    if pause_s > pause_most_s:
        return f"a move would hold its events for {pause_s:.1f} s, max_pause is {pause_most_s:g} s"
    if pause_s * pause_s / 2 > excess_s * stay_s:
        return (
            f"a move would hold its events for {pause_s:.1f} s, which costs more than it saves: "
            f"{excess_s:.2f} s for each event of {stay_s:g} s"
        )
    return ""
