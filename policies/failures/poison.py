"""When so many rows fail that the query is at fault, not its data. Pure, no clock."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence

WINDOW_ROWS = 1000


class BadRows:
    """Counts the rows that failed among the last ``WINDOW_ROWS`` rows.

    Args:
        most: the share of them that may fail; 1 allows all.
    """

    def __init__(self, most: float) -> None:
        self.limit = math.floor(most * WINDOW_ROWS + 1e-9)
        self._judged = 0
        self._bad: deque[int] = deque()

    def too_many(self, bad: Sequence[int]) -> bool:
        """Return whether a run would bring more bad rows among ``WINDOW_ROWS`` consecutive ones than may fail.

        Args:
            bad: indices of the run's bad rows, from 0, ascending.
        """
        recent = deque(self._bad)
        for place in bad:
            recent.append(self._judged + place)
            while recent[0] <= self._judged + place - WINDOW_ROWS:
                recent.popleft()
            if len(recent) > self.limit:
                return True
        return False

    def add(self, rows: int, bad: Sequence[int]) -> None:
        """Note a completed run of ``rows`` rows, and the indices of its bad rows."""
        self._bad += [self._judged + place for place in bad]
        self._judged += rows
        while self._bad and self._bad[0] < self._judged - WINDOW_ROWS:
            self._bad.popleft()
