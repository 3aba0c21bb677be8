"""The counts in the report."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.query.flow.statistics import Tally


def test_events_that_are_read_again_are_counted_once() -> None:
    tally = Tally()
    tally.arrived(0, 99)
    tally.arrived(100, 199)
    tally.arrived(50, 249)
    tally.arrived(0, 99)
    assert tally.events == 250


@given(st.permutations(range(12)))
def test_events_that_complete_after_later_ones_are_out_of_order(order: list[int]) -> None:
    tally = Tally()
    for number in order:
        tally.received(10 * number, 10 * number + 9)
    behind = [number for place, number in enumerate(order) if any(other > number for other in order[:place])]
    assert tally.disordered_events == 10 * len(behind)
