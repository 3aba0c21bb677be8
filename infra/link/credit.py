"""Credit: how many payload bytes may be on their way to a host that has not said it consumed them."""

from __future__ import annotations

CREDIT_BYTES = 16 << 20
"""What an engine host grants each query."""


class CreditError(Exception):
    """The remote gave back more than it was sent: its count cannot be trusted any more."""


class CreditWindow:
    """A window of bytes in flight, for one query at one host.

    A payload larger than the whole window may go alone, when nothing else is in flight; else it could never go.

    Args:
        initial_bytes: what the host granted when the query was opened.
    """

    def __init__(self, initial_bytes: int) -> None:
        if initial_bytes < 0:
            raise ValueError(f"a credit of {initial_bytes} bytes")
        self.initial_bytes = initial_bytes
        self.in_flight_bytes = 0

    def __repr__(self) -> str:
        return f"CreditWindow({self.in_flight_bytes} of {self.initial_bytes} bytes in flight)"

    @property
    def available_bytes(self) -> int:
        """How much may still be taken; 0 while an oversized payload is in flight."""
        return max(0, self.initial_bytes - self.in_flight_bytes)

    def take(self, payload_bytes: int) -> bool:
        """Return True and count the payload as in flight, or return False when it has to wait."""
        if payload_bytes < 0:
            raise ValueError(f"a payload of {payload_bytes} bytes")
        if self.in_flight_bytes and payload_bytes > self.available_bytes:
            return False
        self.in_flight_bytes += payload_bytes
        return True

    def give(self, consumed_bytes: int) -> None:
        """Count bytes as consumed.

        Raises:
            CreditError: more than is in flight, or less than nothing.
        """
        if not 0 <= consumed_bytes <= self.in_flight_bytes:
            raise CreditError(f"{consumed_bytes} bytes given back, {self.in_flight_bytes} were in flight")
        self.in_flight_bytes -= consumed_bytes
