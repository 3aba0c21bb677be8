"""When the records of a partition came, by how far it had grown at each look. Pure."""

from __future__ import annotations

from collections import deque
from typing import Final

import numpy as np

from policies.arrays import Array

_MOST: Final = 4_096


class Sightings:
    """How far one partition had grown, and when it was seen.

    What came between two looks is taken to have come evenly. Of very many looks some are forgotten.
    """

    def __init__(self) -> None:
        self._seen: deque[tuple[int, float]] = deque()

    def note(self, end: int, wall_s: float) -> None:
        """Note that the next record will have the offset ``end`` (at a time in s since 1970)."""
        if len(self._seen) >= 2 and self._seen[-1][0] == self._seen[-2][0] == end:
            self._seen.pop()  # of a pause its two ends count
        self._seen.append((end, wall_s))
        if len(self._seen) > _MOST:
            self._seen = deque(list(self._seen)[::2])

    def arrivals_s(self, begin: int, end: int) -> Array:
        """Return when the records from offset ``begin`` to ``end`` (exclusive) came (s since 1970); shape (n,).

        Those that were there at the first look count as having come then.
        """
        ends, times = (np.array(each, float) for each in zip(*self._seen, strict=True))
        grown = np.arange(begin, end) + 1.0
        # The first look at which each record was there; those after the last look count as having come at it.
        at = np.minimum(np.searchsorted(ends, grown), len(ends) - 1)
        before = np.maximum(at - 1, 0)
        part = np.minimum(1.0, (grown - ends[before]) / np.maximum(1.0, ends[at] - ends[before]))
        came: Array = np.where(at == 0, times[0], times[before] + part * (times[at] - times[before]))
        return came

    def forget(self, before: int) -> None:
        """Forget what only records before an offset need."""
        while len(self._seen) > 1 and self._seen[1][0] <= before:
            self._seen.popleft()
