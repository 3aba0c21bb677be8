"""The rate at which events come now, and how certain that is: it follows a burst within one or two slots."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

_SLOTS = 20
_STEPS = 60
_LEAST_STEPS = 4
"""Before so many are known, nobody can tell a burst from events that always come in lumps."""
_CERTAIN = 3.0
"""The last slots differ from the ones before if their mean is this many standard errors away."""
_SUDDEN = 6.0
"""One slot is enough if it is this far away."""
_LEAST_CHANGE = 0.05
"""A smaller change, as a part of the rate, is none."""


@dataclass(frozen=True, slots=True)
class Arriving:
    """An estimate.

    Attributes:
        rate: events per second.
        error: its standard error.
    """

    rate: float
    error: float


class ArrivalRate:
    """Averages the slots since the rate changed last, at most 20 of them.

    How irregular slots are is seen in the steps from one to the next: a change of the rate is one large step, and
    events that come in lumps are many. They are at least as irregular as those of a Poisson process.

    Args:
        slot_s: length of a slot.
    """

    def __init__(self, slot_s: float) -> None:
        self._slot_s = slot_s
        self._rates: deque[float] = deque(maxlen=_SLOTS)
        self._squared_steps: deque[float] = deque(maxlen=_STEPS)

    def observe(self, rate: float) -> Arriving:
        """Add a slot, and return what the rate is now."""
        known = [*self._rates, rate]
        for last, certain in ((1, _SUDDEN), (2, _CERTAIN)):
            enough = len(known) > last and len(self._squared_steps) >= _LEAST_STEPS
            if enough and self._differ(known[:-last], known[-last:], certain):
                self._rates = deque(known[-last:-1], maxlen=_SLOTS)
                break
        if len(known) > 1:
            self._squared_steps.append((rate - known[-2]) ** 2)
        self._rates.append(rate)
        mean = _mean(self._rates)
        return Arriving(mean, self._deviation(mean) / math.sqrt(len(self._rates)))

    def _differ(self, before: list[float], last: list[float], certain: float) -> bool:
        old, new = _mean(before), _mean(last)
        error = self._deviation(old) * math.sqrt(1 / len(before) + 1 / len(last))
        return abs(new - old) > max(certain * error, _LEAST_CHANGE * old)

    def _deviation(self, rate: float) -> float:
        """Return the standard deviation of a slot's rate around its mean."""
        poisson = max(rate, 1.0 / self._slot_s) / self._slot_s
        seen = _mean(self._squared_steps) / 2 if self._squared_steps else 0.0
        return math.sqrt(max(poisson, seen))


def _mean(values: deque[float] | list[float]) -> float:
    return sum(values) / len(values)
