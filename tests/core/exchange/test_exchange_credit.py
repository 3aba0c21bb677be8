from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gateway.core.exchange.lanes.credit import CreditWindow


class CreditMachine(RuleBasedStateMachine):
    """A sender and a receiver that share a window of 1000 bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.window = CreditWindow(1000)
        self.in_flight: list[int] = []

    @rule(payload_bytes=st.integers(0, 1500))
    def send(self, payload_bytes: int) -> None:
        fits = payload_bytes == 0 or sum(self.in_flight) + payload_bytes <= 1000
        alone = sum(self.in_flight) == 0
        assert self.window.take(payload_bytes) == (fits or alone)
        if fits or alone:
            self.in_flight.append(payload_bytes)

    @precondition(lambda self: self.in_flight)
    @rule(data=st.data())
    def consume(self, data: st.DataObject) -> None:
        position = data.draw(st.integers(0, len(self.in_flight) - 1))
        self.window.give(self.in_flight.pop(position))

    @rule(more_bytes=st.integers(1, 10**9))
    def consume_too_much(self, more_bytes: int) -> None:
        with pytest.raises(ValueError, match="were in flight"):
            self.window.give(sum(self.in_flight) + more_bytes)

    @invariant()
    def counts_agree(self) -> None:
        assert self.window.in_flight_bytes == sum(self.in_flight)
        assert self.window.available_bytes == max(0, 1000 - sum(self.in_flight))


TestCreditMachine = CreditMachine.TestCase


@given(st.integers(0, 10**9), st.integers(1, 10**9))
def test_an_oversized_payload_goes_alone(window_bytes: int, more_bytes: int) -> None:
    window = CreditWindow(window_bytes)
    assert window.take(window_bytes + more_bytes)
    assert not window.take(1)
    window.give(window_bytes + more_bytes)
    assert window.available_bytes == window_bytes


def test_less_than_nothing_is_refused() -> None:
    window = CreditWindow(10)
    assert window.take(5)
    with pytest.raises(ValueError, match="bytes were consumed"):
        window.give(-1)
    with pytest.raises(ValueError, match="a payload of -1 bytes"):
        window.take(-1)
    with pytest.raises(ValueError, match="a credit of -1 bytes"):
        CreditWindow(-1)
