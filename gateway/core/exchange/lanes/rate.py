"""A lane's service rate while it has work."""

from __future__ import annotations

# The weight of a slot in the service rate one slot later: a micro-batch may last longer than a slot.
RATE_MEMORY = 0.8


class ServiceRate:
    """Events per second that a lane serves while it has work, with its link."""

    def __init__(self) -> None:
        self._served_events = 0.0
        self._busy_s = 0.0
        self._busy_since_s: float | None = None

    def works(self, working: bool, now_s: float) -> None:
        """Note whether the lane has any work: time without work does not count."""
        if working and self._busy_since_s is None:
            self._busy_since_s = now_s
        elif not working and self._busy_since_s is not None:
            self._busy_s += now_s - self._busy_since_s
            self._busy_since_s = None

    def served(self, events: int) -> None:
        """Count events that were answered."""
        self._served_events += events

    def per_s(self, now_s: float) -> float:
        """Return events per second of work; 0 before the first."""
        busy_s = self._busy_s
        if self._busy_since_s is not None:
            busy_s += now_s - self._busy_since_s
        return self._served_events / busy_s if busy_s > 0 else 0.0

    def fade(self, now_s: float) -> None:
        """Reduce the weight of older measurements."""
        if self._busy_since_s is not None:
            self._busy_s += now_s - self._busy_since_s
            self._busy_since_s = now_s
        self._served_events *= RATE_MEMORY
        self._busy_s *= RATE_MEMORY
