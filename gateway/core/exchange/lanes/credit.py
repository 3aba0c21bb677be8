"""How many payload bytes may be in flight to a host before it reports that it consumed them."""

from __future__ import annotations


class CreditWindow:
    """A window of bytes in flight, for one lane.

    A payload larger than the whole window may be sent alone, when nothing else is in flight; otherwise it would never
    go.

    Args:
        initial_bytes: what the host granted when the query was opened.

    Raises:
        ValueError: it is negative.
    """

    def __init__(self, initial_bytes: int) -> None:
        if initial_bytes < 0:
            raise ValueError(f"a credit of {initial_bytes} bytes")
        self.initial_bytes = initial_bytes
        self.in_flight_bytes = 0
        self._largest_bytes = 0

    @property
    def available_bytes(self) -> int:
        """How much may still be taken; 0 while an oversized payload is in flight."""
        return max(0, self.initial_bytes - self.in_flight_bytes)

    def take(self, payload_bytes: int) -> bool:
        """Count a payload as in flight and return True, or return False if it must wait.

        Raises:
            ValueError: the payload is negative.
        """
        if payload_bytes < 0:
            raise ValueError(f"a payload of {payload_bytes} bytes")
        if self.in_flight_bytes and payload_bytes > self.available_bytes:
            return False
        self.in_flight_bytes += payload_bytes
        self._largest_bytes = max(self._largest_bytes, payload_bytes)
        return True

    def give(self, consumed_bytes: int) -> None:
        """Count bytes as consumed.

        Raises:
            ValueError: there are fewer in flight, or the number is negative.
        """
        if not 0 <= consumed_bytes <= self.in_flight_bytes:
            raise ValueError(f"{consumed_bytes} bytes were consumed, but only {self.in_flight_bytes} were in flight")
        self.in_flight_bytes -= consumed_bytes

    def validate(self) -> None:
        """Assert that no more is in flight than the window, or one oversized payload."""
        most = max(self.initial_bytes, self._largest_bytes)
        assert 0 <= self.in_flight_bytes <= most, f"{self.in_flight_bytes} of {most} bytes are in flight"
