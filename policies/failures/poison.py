"""When so many rows fail that the query is at fault, not its data: pure, no clock."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence

WINDOW_ROWS = 1000


class BadRows:
    """Counts the rows that failed among the last ``WINDOW_ROWS`` that were judged.

    Args:
        most: the part of them that may fail; 1 allows all.
    """

    def __init__(self, most: float) -> None:
        self.limit = math.floor(most * WINDOW_ROWS + 1e-9)
        self._judged = 0
        self._bad: deque[int] = deque()

    def too_many(self, bad: Sequence[int]) -> bool:
        """Tell whether a run would bring more bad rows among ``WINDOW_ROWS`` consecutive ones than may fail.

        Args:
            bad: places of the run's bad rows in it, from 0, rising.
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
        """Note a run of ``rows`` rows that was completed, and the places of its bad rows."""
        self._bad += [self._judged + place for place in bad]
        self._judged += rows
        while self._bad and self._bad[0] < self._judged - WINDOW_ROWS:
            self._bad.popleft()
