"""How many engines a query needs: its queue is classified from what was seen, and answered by formula or simulation.

M/M/c and M/D/c have formulas, for events that are processed one by one. All other queues, and all queues of
micro-batches, are simulated elsewhere (``loadtable``). Until the first table is there, M/M/c answers; while a new one
is simulated, the last one does.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from policies.arrays import Array
from policies.queueing.classify import LEAST_SAMPLE, classify
from policies.queueing.degree import BufferGoal, calculate_degree
from policies.queueing.distributions import Deterministic, Distribution, Empirical, Exponential
from policies.queueing.loadtable import LoadTable, QueueShape
from policies.queueing.sketch import TimesSeen, pooled
from policies.queueing.stationary import mdc_within, mmc_within

_SLOTS = 64
"""Times of so many slots are classified together."""

_SAMPLE = 256
_GROUP_WINDOWS = 8
"""Micro-batches grow while a query is behind; the smallest mean of so many windows is what they are otherwise."""

_GROUP_PART = 4
"""A micro-batch counts as at most this part of the limit: no number of engines keeps it with larger ones."""

_ALIKE = 0.2
"""Shapes that differ by less need no other table: a simulation is about as exact."""

_PARTS = np.array([0.1, 0.3, 0.5, 0.7, 0.9, 0.97])


@dataclass(frozen=True, slots=True)
class EnginesNeeded:
    """The answer: how many engines, home being the first, and why."""

    engines: int
    why: str


class EngineSearch:
    """Sketches of the times of a query, and the latest table of loads.

    Args:
        most: the greatest number of engines.

    Attributes:
        table: the result of the last simulation; None before the first.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._gaps: deque[TimesSeen] = deque(maxlen=_SLOTS)
        self._batch_times: deque[TimesSeen] = deque(maxlen=_SLOTS)
        self._group_s: deque[float] = deque(maxlen=_GROUP_WINDOWS)
        self._workload: Distribution = Exponential(1.0)
        self._service: Distribution = Deterministic(1.0)
        self.table: LoadTable | None = None

    def observe(
        self, rate: float, batch_events: float, gaps: Sequence[TimesSeen], batch_times: Sequence[TimesSeen]
    ) -> None:
        """Take the measurements of a window.

        Args:
            rate: events per second.
            batch_events: mean events of a micro-batch; 0 without one.
            gaps: the times between events in each of its slots.
            batch_times: the relative times of micro-batches in each of its slots.
        """
        if rate > 0 and batch_events > 0:
            self._group_s.append(batch_events / rate)
        # Relative to the window's own mean: the forecast covers changes of the rate from window to window.
        mean_s = math.fsum(each.mean_s * each.count for each in gaps) / max(1, sum(each.count for each in gaps))
        if mean_s > 0:
            self._gaps.extend(_times(each, 1.0 / mean_s) for each in gaps)
        self._batch_times.extend(batch_times)
        self._workload = _classified(self._gaps) or Exponential(1.0)
        # Where micro-batches are not measured one by one, as in a fluid, all of them are alike.
        self._service = _classified(self._batch_times) or Deterministic(1.0)

    def group(self, rate: float, limit: int) -> int:
        """Return how many events a micro-batch has at a rate, while the query is not behind."""
        events = rate * min(self._group_s, default=0.0)
        return max(1, min(round(events), limit // _GROUP_PART))

    def needed(self, rate: float, event_s: float, home: float, goal: BufferGoal) -> EnginesNeeded:
        """Return the smallest number of engines that keeps a goal.

        Args:
            rate: events per second.
            event_s: how long a VM is busy with an event.
            home: the speed of home, relative to a VM.
            goal: the limit to keep.
        """
        group = self.group(rate, goal.limit_events)
        by_formula = group == 1 and self._has_formula
        if self.table is not None and not by_formula:
            load = rate * event_s
            engines = next((each for each in range(1, self._most + 1) if self.table.load(each) >= load), self._most)
            model, kept = "in simulations", self.table.load(engines) >= load
        else:
            deterministic = by_formula and isinstance(self._service, Deterministic)
            formula, model = (mdc_within, "as M/D/c") if deterministic else (mmc_within, "as M/M/c")

            def within(each: int) -> float:
                return formula(rate, event_s * each / (each - 1 + home), each, goal.limit_events)

            engines, _, kept = calculate_degree(within, goal, current=1, most=self._most)
        words = (
            f"{self._workload.name} times between events, {rate:.4g} events/s forecast, micro-batches of {group} "
            f"events with {self._service.name} times: {model}, {engines} engines hold at most {goal.limit_events} "
            f"events {goal.probability:.0%} of the time"
        )
        return EnginesNeeded(engines, words if kept else f"{words} or less, and {self._most} is the most")

    def wanted(self, rate: float, home: float, goal: BufferGoal) -> QueueShape | None:
        """Return the queue that should be simulated; None if a formula or the last table answers for it."""
        group = self.group(rate, goal.limit_events)
        if group == 1 and self._has_formula:
            return None
        shape = QueueShape(self._workload, self._service, group, goal, home, self._most)
        return None if self.table is not None and _alike(self.table.shape, shape) else shape

    @property
    def _has_formula(self) -> bool:
        return isinstance(self._workload, Exponential) and isinstance(self._service, Exponential | Deterministic)


def _times(seen: TimesSeen, factor: float) -> TimesSeen:
    return replace(seen, mean_s=seen.mean_s * factor, sample=tuple(each * factor for each in seen.sample))


def _classified(seen: Sequence[TimesSeen]) -> Distribution | None:
    """Return the distribution of times; None if they are too few, or all 0."""
    if sum(len(each.sample) for each in seen) < LEAST_SAMPLE:
        return None
    sample = pooled(seen, _SAMPLE)
    if sample[-1] <= 0:
        return None
    found = classify(sample / sample.mean())
    return found.best if found.accepted else Empirical.fitted(sample / sample.mean())


def _alike(one: QueueShape, other: QueueShape) -> bool:
    """Return whether two queues need about as many engines at the same load."""
    if one.most != other.most or one.goal.probability != other.goal.probability:
        return False
    values = ((each.group, each.goal.limit_events + 1, each.home) for each in (one, other))
    if any(abs(math.log(a / b)) > _ALIKE for a, b in zip(*values, strict=True)):
        return False
    pairs = ((one.workload, other.workload), (one.service, other.service))
    return all(float(np.abs(_relative(a) - _relative(b)).max()) <= _ALIKE for a, b in pairs)


def _relative(times: Distribution) -> Array:
    """Return quantiles over the mean of a distribution, which is finite in a sample."""
    quantiles = times.quantile(_PARTS)
    return np.asarray(quantiles / quantiles.mean())
