"""Weighted histogram of durations with log-spaced bins: bounded memory, mergeable, mean exact, quantiles within 1 %."""

from __future__ import annotations

import math
from collections.abc import Mapping

_SMALLEST_S = 1e-5
_LARGEST_S = 1e7
_GROWTH = 1.02  # the middle of a bin is then less than 1 % from any value in it
_LOG_GROWTH = math.log(_GROWTH)
_LAST_BIN = math.ceil(math.log(_LARGEST_S / _SMALLEST_S) / _LOG_GROWTH)


def _middle_s(at: int) -> float:
    return _SMALLEST_S * math.exp(_LOG_GROWTH * (at + 0.5))


class Histogram:
    """Durations from 10 µs (shorter ones count as that) to 115 days, each with a weight; at most 1397 bins."""

    __slots__ = ("_bins", "_largest_s", "_smallest_s", "_total_s", "_weight")

    def __init__(self) -> None:
        self._bins: dict[int, float] = {}
        self._weight = 0.0
        self._total_s = 0.0
        self._smallest_s = math.inf
        self._largest_s = 0.0

    def add(self, value_s: float, weight: float = 1.0) -> None:
        """Count a duration ``weight`` times.

        Raises:
            ValueError: a negative or infinite duration, or a negative weight.
        """
        if not 0 <= value_s < math.inf or not 0 <= weight < math.inf:
            raise ValueError(f"cannot count a duration of {value_s!r} s with weight {weight!r}")
        if weight == 0:
            return
        at = int(math.log(value_s / _SMALLEST_S) / _LOG_GROWTH) if value_s > _SMALLEST_S else 0
        at = min(at, _LAST_BIN)
        self._bins[at] = self._bins.get(at, 0.0) + weight
        self._weight += weight
        self._total_s += value_s * weight
        if value_s < self._smallest_s:
            self._smallest_s = value_s
        if value_s > self._largest_s:
            self._largest_s = value_s

    def merge(self, other: Histogram) -> None:
        """Count everything that ``other`` has counted."""
        for at, weight in other._bins.items():
            self._bins[at] = self._bins.get(at, 0.0) + weight
        self._weight += other._weight
        self._total_s += other._total_s
        self._smallest_s = min(self._smallest_s, other._smallest_s)
        self._largest_s = max(self._largest_s, other._largest_s)

    @property
    def weight(self) -> float:
        """Return the sum of all weights."""
        return self._weight

    @property
    def mean_s(self) -> float:
        """Return the weighted mean, exact; 0 when nothing was counted."""
        return self._total_s / self._weight if self._weight else 0.0

    @property
    def largest_s(self) -> float:
        """Return the largest duration, exact; 0 when nothing was counted."""
        return self._largest_s

    def quantile_s(self, q: float) -> float:
        """Return the duration below which a part ``q`` of the weight lies, within 1 %; 0 when nothing was counted.

        Raises:
            ValueError: ``q`` is not in [0, 1].
        """
        if not 0 <= q <= 1:
            raise ValueError(f"a quantile lies in [0, 1], not at {q!r}")
        if not self._weight:
            return 0.0
        wanted, seen = q * self._weight, 0.0
        for at in sorted(self._bins):
            seen += self._bins[at]
            if seen >= wanted:
                break
        if q == 1 or at == _LAST_BIN:
            return self._largest_s
        middle_s = _middle_s(at)
        return min(max(middle_s, self._smallest_s), self._largest_s)

    def bins(self) -> Mapping[float, float]:
        """Return the weight by the middle of its bin in seconds, ascending; for plots."""
        return {_middle_s(at): self._bins[at] for at in sorted(self._bins)}
