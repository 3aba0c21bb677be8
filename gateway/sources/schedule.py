"""When the records of a replayed source are due.

Latency is measured against this schedule, so that a gateway that falls behind cannot hide its backlog.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from policies.arrays import Array


class DueTimes(Protocol):
    """When the records of a source are due, in seconds since its start."""

    def due_s(self, record: float) -> float:
        """Return when record number ``record`` (from 0) is due; a later record is never due earlier."""
        ...

    def due_count(self, at_s: float) -> int:
        """Return how many records are due at ``at_s``."""
        ...

    def mean_due_s(self, first: int, last: int) -> float:
        """Return the mean of ``due_s`` over the records ``first`` to ``last``."""
        ...

    def due_times_s(self, first: int, last: int) -> Array:
        """Return ``due_s`` of each of the records ``first`` to ``last``."""
        ...


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
        # Rounding may put the last record or the next one on the wrong side of its own due time.
        if self.due_s(count) <= at_s:
            return count + 1
        return count if self.due_s(count - 1) <= at_s else count - 1

    def mean_due_s(self, first: int, last: int) -> float:
        """Return the mean of ``due_s`` over the records ``first`` to ``last``, exact where the rate is constant."""
        return (self.due_s(first) + self.due_s(last)) / 2

    def due_times_s(self, first: int, last: int) -> Array:
        """See ``DueTimes.due_times_s``."""
        records = np.arange(first, last + 1)
        steps = np.searchsorted(self._starts, records, side="right") - 1
        starts_s, starts, rates = (np.array(each)[steps] for each in (self._starts_s, self._starts, self._rates))
        return np.asarray(starts_s + (records - starts) / rates)


class RecordedSchedule:
    """Records are due at the intervals at which they were recorded.

    A pass begins one mean interval after the last record of the previous pass. A record after the last one is due
    together with the last one.

    Args:
        times_us: shape (records in a pass,), microseconds, never falling.
        speed: factor on the recorded speed.
        loops: number of passes.
    """

    def __init__(self, times_us: npt.NDArray[np.int64], *, speed: float = 1.0, loops: int = 1) -> None:
        if speed <= 0 or loops < 1 or (np.diff(times_us) < 0).any():
            raise ValueError(f"recorded times must not fall, speed ({speed}) and loops ({loops}) must be above 0")
        self._times_us = times_us
        self._us_per_s = 1e6 * speed
        self._loops = loops
        self._count = len(times_us)
        length_s = self._since_first_s(self._count - 1) if self._count else 0.0
        self._pass_s = length_s * self._count / max(1, self._count - 1)

    def _since_first_s(self, index: int) -> float:
        return float(int(self._times_us[index]) - int(self._times_us[0])) / self._us_per_s

    def due_s(self, record: float) -> float:
        """See ``DueTimes.due_s``."""
        if not self._count:
            return 0.0
        loop, index = divmod(min(int(record), self._count * self._loops - 1), self._count)
        return loop * self._pass_s + self._since_first_s(index)

    def due_count(self, at_s: float) -> int:
        """See ``DueTimes.due_count``."""
        if at_s < 0 or not self._count:
            return 0
        total = self._count * self._loops
        if at_s >= self.due_s(total - 1):
            return total
        loop = min(self._loops - 1, int(at_s / self._pass_s))
        target_us = int(self._times_us[0]) + int((at_s - loop * self._pass_s) * self._us_per_s)
        count = loop * self._count + int(np.searchsorted(self._times_us, target_us, side="right"))
        # Rounding may put the last records or the next ones on the wrong side of their own due time.
        while count and self.due_s(count - 1) > at_s:
            count = self._edge(count - 1, "left")
        while count < total and self.due_s(count) <= at_s:
            count = self._edge(count, "right")
        return count

    def _edge(self, record: int, side: Literal["left", "right"]) -> int:
        """Return the first record that is due with ``record`` in its pass, or the one after the last of them."""
        loop, index = divmod(record, self._count)
        return loop * self._count + int(np.searchsorted(self._times_us, self._times_us[index], side=side))

    def mean_due_s(self, first: int, last: int) -> float:
        """See ``DueTimes.mean_due_s``."""
        return float(np.mean(self.due_times_s(first, last)))

    def due_times_s(self, first: int, last: int) -> Array:
        """See ``DueTimes.due_times_s``."""
        if not self._count:
            return np.zeros(last - first + 1)
        records = np.minimum(np.arange(first, last + 1), self._count * self._loops - 1)
        loops, indices = np.divmod(records, self._count)
        since_us = self._times_us[indices] - self._times_us[0]
        return np.asarray(loops * self._pass_s + since_us / self._us_per_s)
