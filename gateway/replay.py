"""When the records of a replayed source are due.

Latency is measured against this schedule, so that a gateway that falls behind cannot hide its backlog.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate


class Schedule:
    """Piecewise constant rates, one after the other; the last one holds for ever.

    Args:
        steps: (duration in s, records per s), rates above 0.
    """

    def __init__(self, steps: Sequence[tuple[float, float]]) -> None:
        if not steps or any(duration_s <= 0 or rate <= 0 for duration_s, rate in steps):
            raise ValueError(f"a schedule needs steps with durations and rates above 0, not {list(steps)}")
        self._rates = [rate for _, rate in steps]
        self._starts_s = [0.0, *accumulate(duration_s for duration_s, _ in steps[:-1])]
        self._starts = [0.0, *accumulate(duration_s * rate for duration_s, rate in steps[:-1])]

    def due_s(self, record: float) -> float:
        """Return when record number ``record`` (from 0) is due, in seconds since the start."""
        step = bisect_right(self._starts, record) - 1
        return self._starts_s[step] + (record - self._starts[step]) / self._rates[step]

    def due_count(self, at_s: float) -> int:
        """Return how many records are due at ``at_s`` seconds since the start."""
        if at_s < 0:
            return 0
        step = bisect_right(self._starts_s, at_s) - 1
        count = int(self._starts[step] + (at_s - self._starts_s[step]) * self._rates[step]) + 1
        # Rounding may put the last one or the next one on the wrong side of its own due time.
        if self.due_s(count) <= at_s:
            return count + 1
        return count if self.due_s(count - 1) <= at_s else count - 1

    def mean_due_s(self, first: int, last: int) -> float:
        """Return the mean of ``due_s`` over the records ``first`` to ``last``, exact where the rate is constant."""
        return (self.due_s(first) + self.due_s(last)) / 2
