"""The cores that streams in real-time mode occupy: each partition has one for itself all the time."""

from __future__ import annotations

import threading


class RealTimeCores:
    """Shares a host's cores among such streams, and leaves one for everything else."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taken = 0

    def take(self, wanted: int, there: int) -> int:
        """Return how many cores a stream gets: all that it wants, or none.

        Args:
            wanted: one for each of its partitions.
            there: how many cores Spark has.
        """
        with self._lock:
            if self._taken + wanted >= there:
                return 0
            self._taken += wanted
            return wanted

    def give_back(self, cores: int) -> None:
        """Note that a stream does not occupy these any more."""
        with self._lock:
            self._taken -= cores
