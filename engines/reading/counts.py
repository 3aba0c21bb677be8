"""What was read of a run by reference."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ReadCounts:
    """How many events were read, how much memory they take, and how many records are none."""

    events: int = 0
    raw_bytes: int = 0
    dead: int = 0

    def __add__(self, other: ReadCounts) -> ReadCounts:
        """Return the sum."""
        return ReadCounts(self.events + other.events, self.raw_bytes + other.raw_bytes, self.dead + other.dead)
