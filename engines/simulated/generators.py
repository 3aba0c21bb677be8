"""How many events a producer makes between two times (CEPSim, III-A.5); a fraction is an event in progress."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Protocol

import numpy as np


class Generator(Protocol):
    """Makes events; called for one tick after the other."""

    def events(self, from_s: float, to_s: float) -> float:
        """Return how many events come at ``from_s`` or later but before ``to_s``."""
        ...


def _not_negative(**values: float) -> None:
    for name, value in values.items():
        if not (value >= 0 and math.isfinite(value)):
            raise ValueError(f"{name} must be finite and not negative, not {value!r}")


@dataclass(frozen=True, slots=True)
class ConstantRate:
    """Always ``per_s`` events a second."""

    per_s: float

    def __post_init__(self) -> None:
        _not_negative(per_s=self.per_s)

    def events(self, from_s: float, to_s: float) -> float:
        """See ``Generator``."""
        return self.per_s * (to_s - from_s)


class RateSteps:
    """One rate after the other; the last one lasts to the end.

    Args:
        lasts_s: how long each rate lasts.
        per_s: the rates, events a second.

    Raises:
        ValueError: there are none, their numbers differ, or one is negative.
    """

    def __init__(self, lasts_s: Sequence[float], per_s: Sequence[float]) -> None:
        if not per_s or len(lasts_s) != len(per_s):
            raise ValueError(f"{len(lasts_s)} durations do not fit {len(per_s)} rates")
        for each_s, rate in zip(lasts_s, per_s, strict=True):
            _not_negative(lasts_s=each_s, per_s=rate)
        self._per_s = list(per_s)
        self._begins_s = [0.0, *accumulate(lasts_s[:-1])]
        self._before = [0.0, *accumulate(each_s * rate for each_s, rate in zip(lasts_s, per_s, strict=True))]

    def events(self, from_s: float, to_s: float) -> float:
        """See ``Generator``."""
        return self._until(to_s) - self._until(from_s)

    def _until(self, at_s: float) -> float:
        step = max(bisect_right(self._begins_s, at_s) - 1, 0)
        return self._before[step] + self._per_s[step] * (at_s - self._begins_s[step])


@dataclass(frozen=True, slots=True)
class UniformIncrease:
    """A rate that grows linearly from 0 to ``most_per_s`` in ``over_s`` and stays there."""

    most_per_s: float
    over_s: float

    def __post_init__(self) -> None:
        _not_negative(most_per_s=self.most_per_s, over_s=self.over_s)

    def events(self, from_s: float, to_s: float) -> float:
        """See ``Generator``."""
        return self._until(to_s) - self._until(from_s)

    def _until(self, at_s: float) -> float:
        growing_s = min(at_s, self.over_s)
        grown = self.most_per_s * growing_s * growing_s / (2 * self.over_s) if self.over_s > 0 else 0.0
        return grown + self.most_per_s * (at_s - growing_s)


class RecordedRates:
    """A recording: ``counts[i]`` events come at ``times_s[i]``; nothing after the last time.

    Raises:
        ValueError: the times do not ascend, a count is negative, or the lengths differ.
    """

    def __init__(self, times_s: Sequence[float], counts: Sequence[float]) -> None:
        if len(times_s) != len(counts):
            raise ValueError(f"a trace of {len(times_s)} times cannot have {len(counts)} counts")
        if any(later < earlier for earlier, later in pairwise(times_s)):
            raise ValueError("the times of a trace must ascend")
        for count in counts:
            _not_negative(count=count)
        self._times_s = list(times_s)
        self._sums = [0.0, *accumulate(counts)]

    def events(self, from_s: float, to_s: float) -> float:
        """See ``Generator``."""
        return self._sums[bisect_left(self._times_s, to_s)] - self._sums[bisect_left(self._times_s, from_s)]


@dataclass(frozen=True, slots=True)
class Bursts:
    """``base``, multiplied by ``times`` for the first ``for_s`` of every ``every_s``."""

    base: Generator
    every_s: float
    for_s: float
    times: float

    def __post_init__(self) -> None:
        _not_negative(for_s=self.for_s, times=self.times)
        if not self.every_s >= self.for_s or self.every_s <= 0:
            raise ValueError(f"a burst of {self.for_s:g} s does not fit into every {self.every_s:g} s")

    def events(self, from_s: float, to_s: float) -> float:
        """See ``Generator``."""
        if to_s <= from_s:
            return 0.0
        part = (self._burst_s(to_s) - self._burst_s(from_s)) / (to_s - from_s)
        return self.base.events(from_s, to_s) * (1 + (self.times - 1) * part)

    def _burst_s(self, at_s: float) -> float:
        whole, rest_s = divmod(at_s, self.every_s)
        return whole * self.for_s + min(rest_s, self.for_s)


@dataclass(frozen=True, slots=True)
class Poisson:
    """Independent arrivals with the mean of ``mean``, drawn from ``random``."""

    mean: Generator
    random: np.random.Generator

    def events(self, from_s: float, to_s: float) -> float:
        """See ``Generator``."""
        return float(self.random.poisson(self.mean.events(from_s, to_s)))
