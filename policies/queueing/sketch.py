"""A bounded sketch of times: how many, their mean, and a random sample of them.

Ingress sketches the times between events, and the profiler the times of micro-batches. Each slot has a sketch of its
own, and sketches of several slots are pooled. A time of 0 is a time like others: events that came together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from policies.arrays import Array

SAMPLE_MOST = 32
"""So many times of a slot are kept. A window has several slots, and the classification needs 50 times."""

_DIGITS = 4
"""Significant digits of the times in a sample, which is written into the event log."""


@dataclass(frozen=True, slots=True)
class TimesSeen:
    """The times of a slot.

    Attributes:
        count: how many, at least one.
        mean_s: their mean.
        sample: some of them, each equally likely to be here; all if they are few.
    """

    count: int
    mean_s: float
    sample: tuple[float, ...]


class TimesSketch:
    """Takes times in arrays of any length, with a fixed number of numpy calls for each.

    Args:
        seed: of the draws that choose the sample.
    """

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self._begin()

    def _begin(self) -> None:
        self._count = 0
        self._sum_s = 0.0
        self._kept = self._keys = np.zeros(0)

    def add(self, times_s: Array) -> None:
        """Take times, shape (n,), none of them negative."""
        self._count += len(times_s)
        self._sum_s += float(times_s.sum())
        # Each time draws a key, and the smallest keys stay: any times are as likely as any others to be among them.
        kept, keys = (np.concatenate(pair) for pair in ((self._kept, times_s), (self._keys, self._draw(len(times_s)))))
        if len(keys) > SAMPLE_MOST:
            chosen = np.argpartition(keys, SAMPLE_MOST)[:SAMPLE_MOST]
            kept, keys = kept[chosen], keys[chosen]
        self._kept, self._keys = kept, keys

    def _draw(self, count: int) -> Array:
        return self._rng.random(count)

    def take(self) -> TimesSeen | None:
        """Return what was added since the last call, and begin anew; None if that is nothing."""
        if not self._count:
            return None
        sample = tuple(float(f"{each:.{_DIGITS}g}") for each in self._kept.tolist())
        seen = TimesSeen(self._count, self._sum_s / self._count, sample)
        self._begin()
        return seen


class GapSketch:
    """The times between events, from their arrivals.

    Args:
        seed: see ``TimesSketch``.
    """

    def __init__(self, seed: int) -> None:
        self._times = TimesSketch(seed)
        self._last_s: float | None = None

    def add(self, arrivals_s: Array) -> None:
        """Take the arrivals of events that were read together, shape (n,), in any order.

        Sources with several partitions may read an event after one that came later. Such an event counts as if both had
        come together.
        """
        if not len(arrivals_s):
            return
        ordered = np.sort(arrivals_s)
        first_s, last_s = float(ordered[0]), float(ordered[-1])
        gaps_s = np.diff(ordered, prepend=first_s if self._last_s is None else self._last_s)
        self._times.add(np.maximum(gaps_s if self._last_s is not None else gaps_s[1:], 0.0))
        self._last_s = last_s if self._last_s is None else max(self._last_s, last_s)

    def take(self) -> TimesSeen | None:
        """See ``TimesSketch.take``; the next gap begins at the last arrival."""
        return self._times.take()


def pooled(seen: Sequence[TimesSeen], size: int) -> Array:
    """Return a sample of the times of several slots, each slot in proportion to its count; ascending.

    Args:
        seen: at least one slot.
        size: how long the sample is: so many quantiles of what the slots kept.
    """
    kept = np.concatenate([np.array(each.sample) for each in seen])
    weights = np.concatenate([np.full(len(each.sample), each.count / len(each.sample)) for each in seen])
    order = np.argsort(kept, kind="stable")
    below = np.cumsum(weights[order])
    wanted = (np.arange(size) + 0.5) / size * below[-1]
    sample: Array = kept[order][np.searchsorted(below, wanted).clip(max=len(kept) - 1)]
    return sample
