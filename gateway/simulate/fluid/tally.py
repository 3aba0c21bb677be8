"""The results of a fluid world: latencies as histograms in one array, misses, and values over time."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from policies.arrays import Array, IntArray

_SMALLEST_S = 1e-4
_GROWTH = 1.04
_BINS = math.ceil(math.log(1e7 / _SMALLEST_S) / math.log(_GROWTH)) + 1
POINTS_MOST = 1440
"""A day is recorded in minutes."""
NAMED_MOST = 32
"""With more queries, only their sum is recorded over time."""


class LatencyTally:
    """Latencies of many queries, weighted by events: mean and largest exact, quantiles within 2 %.

    Args:
        qos_s: the promise of each query, shape (queries,).

    Attributes:
        events: completed, by query.
        missed: those of them that took longer than promised.
        largest_s: by query.
    """

    def __init__(self, qos_s: Array) -> None:
        queries = len(qos_s)
        self._qos_s = qos_s
        # Bin by bin, not query by query: most latencies of a slot are alike, and so near each other in memory.
        self._bins: Array = np.zeros(_BINS * queries)
        self._row: IntArray = np.arange(queries)
        self._total_s: Array = np.zeros(queries)
        self.events: Array = np.zeros(queries)
        self.missed: Array = np.zeros(queries)
        self.largest_s: Array = np.zeros(queries)

    def add(self, rows: IntArray | slice, latency_s: Array, events: Array) -> None:
        """Count events of the queries ``rows``, each named once."""
        place = np.maximum(latency_s, _SMALLEST_S)
        place *= 1.0 / _SMALLEST_S
        np.log(place, out=place)
        place *= 1.0 / math.log(_GROWTH)
        at = np.minimum(place.astype(np.intp), _BINS - 1)
        at *= len(self._row)
        at += self._row[rows]
        self._bins[at] += events
        self._total_s[rows] += latency_s * events
        self.events[rows] += events
        late = latency_s > self._qos_s[rows]
        if np.count_nonzero(late):
            self.missed[rows] += events * late
        seen_s = np.where(events > 0, latency_s, 0.0)
        self.largest_s[rows] = np.maximum(self.largest_s[rows], seen_s)

    @property
    def _by_query(self) -> Array:
        return self._bins.reshape(_BINS, -1).T

    def mean_s(self, q: int) -> float:
        """Return a query's mean latency; 0 without events."""
        return float(self._total_s[q] / self.events[q]) if self.events[q] > 0 else 0.0

    def quantile_s(self, q: int, part: float) -> float:
        """Return the latency below which ``part`` of a query's events lie; 0 without events."""
        return _quantile_s(self._by_query[q], part, float(self.largest_s[q]))

    def all_mean_s(self) -> float:
        """Return the mean latency over all queries; 0 without events."""
        events = float(self.events.sum())
        return float(self._total_s.sum()) / events if events > 0 else 0.0

    def all_quantile_s(self, part: float) -> float:
        """Return the same as ``quantile_s`` over all queries."""
        return _quantile_s(np.ascontiguousarray(self._by_query).sum(axis=0), part, float(self.largest_s.max()))


def _quantile_s(bins: Array, part: float, largest_s: float) -> float:
    sums = np.cumsum(bins)
    if sums[-1] <= 0:
        return 0.0
    at = min(int(np.searchsorted(sums, part * sums[-1])), _BINS - 1)
    middle_s: float = _SMALLEST_S * _GROWTH ** (at + 0.5)
    return min(middle_s, largest_s)


@dataclass(frozen=True, slots=True)
class Point:
    """Several slots together.

    Attributes:
        until_s: their end.
        latency_s: mean latency of completed events, of each named query or of all together; None without any.
        missed: part of these events that took longer than promised, in the same order.
        input_rate: events a second, of all queries.
        vms: VMs at the end.
        usd: money spent until then.
    """

    until_s: float
    latency_s: tuple[float | None, ...]
    missed: tuple[float, ...]
    input_rate: float
    vms: int
    usd: float


@dataclass(slots=True)
class Picture:
    """Collects points of equal length.

    Attributes:
        tally: counts all completed events.
        every_slots: slots per point.
        slot_s: length of a slot.
        points: so far.
    """

    tally: LatencyTally
    every_slots: int
    slot_s: float
    points: list[Point] = field(default_factory=list)
    _events: Array = field(default_factory=lambda: np.zeros(0))
    _total_s: Array = field(default_factory=lambda: np.zeros(0))
    _missed: Array = field(default_factory=lambda: np.zeros(0))
    _came: float = 0.0

    def slot(self, came: float) -> None:
        """Count a slot's input."""
        self._came += came

    def point(self, until_s: float, vms: int, usd: float) -> None:
        """End a point."""
        events, total_s, missed = self._sums()
        if not len(self._events):
            self._events, self._total_s, self._missed = (np.zeros(len(events)) for _ in range(3))
        done, took_s, late = events - self._events, total_s - self._total_s, missed - self._missed
        self._events, self._total_s, self._missed = events, total_s, missed
        some = np.maximum(done, 1e-12)
        means = tuple(float(t) if d > 1e-9 else None for t, d in zip(took_s / some, done, strict=True))
        rate = self._came / (self.every_slots * self.slot_s)
        parts = tuple(np.clip(late / some, 0.0, 1.0).tolist())
        self.points.append(Point(until_s, means, parts, rate, vms, usd))
        self._came = 0.0

    def _sums(self) -> tuple[Array, Array, Array]:
        tally = self.tally
        sums = (tally.events, tally._total_s, tally.missed)  # noqa: SLF001  # two classes of one module
        if len(tally.events) <= NAMED_MOST:
            return sums[0].copy(), sums[1].copy(), sums[2].copy()
        return np.array([sums[0].sum()]), np.array([sums[1].sum()]), np.array([sums[2].sum()])
