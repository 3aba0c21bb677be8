"""The line of each minute says what was new in it."""

from __future__ import annotations

from gateway.query.flow.statistics import Tally
from gateway.views.live.minutes import EVERY_S, Minutes


def test_each_minute_tells_what_was_new_and_idle_queries_are_silent() -> None:
    minutes, busy, idle = Minutes(), Tally(), Tally()
    tallies = {"busy": busy, "idle": idle}
    assert minutes.lines(100.0, tallies) == []
    busy.arrived(0, 1999)
    busy.completed("home", 0.5, 1500)
    busy.completed("vm-1", 1.5, 500)
    busy.sent(9_000_000, 2_500_000)
    busy.released(1.0, 2000, 1800, late=False)
    assert minutes.lines(100.0 + EVERY_S - 0.1, tallies) == []
    assert minutes.lines(100.0 + EVERY_S, tallies) == [
        (
            "query busy: 2,000 events, 1,800 results in the last minute, mean latency 0.75 s, "
            "25% of them on VMs with 2.5 MB sent"
        )
    ]
    assert minutes.lines(100.0 + 2 * EVERY_S, tallies) == []
    busy.dead_letters += 3
    busy.arrived(2000, 2002, shed=7)
    busy.state(0, 2002, 2, None)
    assert minutes.lines(100.0 + 3 * EVERY_S, {"busy": busy}) == [
        "query busy: 3 events, 0 results in the last minute, 3 dead letters, 2 came too late, 7 shed"
    ]
