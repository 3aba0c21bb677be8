"""What the report counts."""

from __future__ import annotations

from gateway.statistics import Tally


def test_events_that_are_read_again_are_counted_once() -> None:
    tally = Tally()
    tally.arrived(0, 99)
    tally.arrived(100, 199)
    tally.arrived(50, 249)
    tally.arrived(0, 99)
    assert tally.events == 250
