"""How earlier occurrences of an announcement came true, and what that makes of the next one."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

_REMEMBERED = 50
_DOUBT = 0.15
"""Before anything was seen, the logarithm of the real height over the announced one has this standard deviation."""
_LATE_PART = 0.05
"""The same of the delay, as a part of the announced length."""
_PRIOR = 2.0
"""These assumptions count as much as so many occurrences, and fade as these do."""
_MEMORY = 0.9
"""The weight of an occurrence one occurrence later."""
_Z = 1.645
"""The 95 % quantile of the standard normal distribution."""
_JUDGED = 3
"""Before so many occurrences, an announcement is believed even if none came true."""


class Prediction(NamedTuple):
    """A value with the interval in which 90 % of the next ones are expected."""

    low: float
    mean: float
    high: float


@dataclass(frozen=True, slots=True)
class CameTrue:
    """What an occurrence was in the end.

    Attributes:
        ratio: its height over the announced one; 0 if no load came.
        late_s: its delay; negative if it came early.
    """

    ratio: float
    late_s: float = 0.0


class Experience:
    """The last occurrences of an announcement."""

    def __init__(self) -> None:
        self._seen: deque[CameTrue] = deque(maxlen=_REMEMBERED)

    def add(self, seen: CameTrue) -> None:
        """Add an occurrence that is over."""
        self._seen.append(seen)

    @property
    def _true(self) -> list[CameTrue]:
        return [each for each in self._seen if each.ratio > 0]

    @property
    def believed(self) -> bool:
        """Return whether at least half of the last occurrences came true."""
        return len(self._seen) < _JUDGED or 2 * len(self._true) >= len(self._seen)

    @property
    def words(self) -> str:
        """Return how many came true, in words; empty before the first."""
        if not self._seen:
            return ""
        ratio = self.ratio()
        return f"{len(self._true)} of the last {len(self._seen)} came true, at {ratio.mean:.0%} of what was announced"

    def ratio(self) -> Prediction:
        """Return the height over the announced one."""
        logs = _spread([math.log(each.ratio) for each in self._true], _DOUBT)
        return Prediction(*map(math.exp, logs))

    def late_s(self, lasts_s: float) -> Prediction:
        """Return the delay of an occurrence of this length."""
        return _spread([each.late_s for each in self._true], _LATE_PART * lasts_s)


def _spread(values: list[float], deviation: float) -> Prediction:
    """Return the normal prediction from values, oldest first, and an assumed mean of 0 with this deviation."""
    weights = [_MEMORY**age for age in reversed(range(len(values)))]
    prior = _PRIOR * _MEMORY ** len(values)
    count = math.fsum(weights) + prior
    mean = math.fsum(weight * each for weight, each in zip(weights, values, strict=True)) / count
    squares = math.fsum(weight * (each - mean) ** 2 for weight, each in zip(weights, values, strict=True))
    squares += prior * (deviation**2 + mean**2)
    wide = _Z * math.sqrt(squares / count * (1.0 + 1.0 / count))
    return Prediction(mean - wide, mean, mean + wide)
