"""The load at which engines that work in micro-batches just keep a buffer limit, by simulation of their queue.

Formulas exist for events that are processed one by one. An engine takes a micro-batch: its events come one by one, wait
until the run is closed, and are all done at its end. So the simulated customer is a micro-batch of ``group`` events.

A queue looks the same whatever the unit of time. So one table of loads serves at every rate, until the shape of the
queue changes: how irregular times between events and times of micro-batches are, and how many events a micro-batch has.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from policies.arrays import Array, IntArray
from policies.queueing.degree import BufferGoal
from policies.queueing.distributions import Distribution

_RUNS = 40
_GROUPS = 400
_WARM_UP = 0.3
"""This first part of each run, which begins with an empty queue, is ignored."""

_MOMENTS = 40
_SUMMED = 12
"""Sums of more times between events are close to normal: they are scaled from the sum of so many."""

_LEVELS = np.linspace(0.12, 0.96, 15)
"""Utilisations at which queues are simulated. Busier ones do not settle down in such a short run."""

_SURE = 1.685
"""Student's t of 95 %, one-sided."""

_SIZES_MOST = 7
"""So many numbers of engines are simulated; between them the utilisation is interpolated."""


@dataclass(frozen=True, slots=True)
class QueueShape:
    """A queue without its unit of time: what is to be simulated.

    Attributes:
        workload: times between events; only their shape counts.
        service: times of micro-batches; only their shape counts.
        group: events of a micro-batch.
        goal: the limit to keep.
        home: the speed of the first engine; that of all others is 1.
        most: the greatest number of engines.
        seed: of the simulation.
    """

    workload: Distribution
    service: Distribution
    group: int
    goal: BufferGoal
    home: float
    most: int
    seed: int = 1


@dataclass(frozen=True, slots=True)
class LoadTable:
    """The result: up to which load engines keep the goal.

    Attributes:
        shape: of the queue.
        engines: the numbers of engines that were simulated, ascending.
        utilisations: for each, the highest utilisation that keeps the goal; 0 if none does.
    """

    shape: QueueShape
    engines: tuple[int, ...]
    utilisations: tuple[float, ...]

    def load(self, engines: int) -> float:
        """Return the offered load, in engines of speed 1, up to which so many engines keep the goal."""
        utilisation = float(np.interp(engines, self.engines, self.utilisations))
        return utilisation * (engines - 1 + self.shape.home)


def load_table(shape: QueueShape) -> LoadTable:
    """Simulate the queue; about 0.1 s for up to seven engines."""
    rng = np.random.default_rng(shape.seed)
    sizes = np.unique(np.geomspace(1, shape.most, min(shape.most, _SIZES_MOST)).round().astype(int)).tolist()
    between = _between_groups(shape, rng)
    busy = shape.service.quantile(rng.uniform(size=(_GROUPS, _RUNS)))
    busy *= shape.group / busy.mean()
    moments = rng.uniform(_WARM_UP, 1.0, (_MOMENTS, _RUNS))
    return LoadTable(shape, tuple(sizes), tuple(_most_used(shape, each, between, busy, moments) for each in sizes))


def _between_groups(shape: QueueShape, rng: np.random.Generator) -> Array:
    """Return times between the closings of runs, shape (groups, runs); a time between events is 1 on average."""
    few = min(shape.group, _SUMMED)
    drawn = shape.workload.quantile(rng.uniform(size=(_GROUPS, few, _RUNS)))
    off = (drawn / drawn.mean()).sum(axis=1) - few
    return np.asarray(np.maximum(shape.group + (shape.group / few) ** 0.5 * off, 0.0))


def _most_used(shape: QueueShape, engines: int, between: Array, busy: Array, moments: Array) -> float:
    """Return the highest utilisation of so many engines that keeps the goal."""
    speed = engines - 1 + shape.home
    arrivals = np.cumsum(between, axis=0)
    arrivals = np.concatenate([arrivals / (level * speed) for level in _LEVELS], axis=1)
    ends = np.sort(_ends(arrivals, np.tile(busy, len(_LEVELS)), engines, shape.home), axis=0)
    at = np.tile(moments, len(_LEVELS)) * arrivals[-1]
    kept = _kept(shape, arrivals, ends, at).reshape(len(_LEVELS), _RUNS)
    sure = kept.mean(axis=1) - _SURE * kept.std(axis=1, ddof=1) / _RUNS**0.5
    above = np.flatnonzero(sure < shape.goal.probability)
    if not len(above):
        return float(_LEVELS[-1])
    if not above[0]:
        return 0.0
    around = slice(above[0] - 1, above[0] + 1)
    return float(np.interp(-shape.goal.probability, -sure[around], _LEVELS[around]))


def _ends(arrivals: Array, busy: Array, engines: int, home: float) -> Array:
    """Return when micro-batches are done: in order, by the engine that is free first (Kiefer and Wolfowitz 1955)."""
    columns = np.arange(arrivals.shape[1])
    ends, free = np.empty_like(arrivals), np.zeros((len(columns), engines))
    slowness = np.ones(engines)
    slowness[0] = 1.0 / home
    for at, arrived in enumerate(arrivals):
        first = free.argmin(axis=1)
        ends[at] = np.maximum(arrived, free[columns, first]) + busy[at] * slowness[first]
        free[columns, first] = ends[at]
    return ends


def _kept(shape: QueueShape, arrivals: Array, ends: Array, at: Array) -> Array:
    """Return, for each run, the part of the moments at which no more events are there than allowed.

    Events of micro-batches that are still open are there, too.

    Args:
        shape: of the queue.
        arrivals: when micro-batches are closed, shape (groups, runs), ascending in each run.
        ends: when micro-batches are done, the same shape, ascending in each run.
        at: the moments, shape (moments, runs), within the time of each run's arrivals.
    """
    closed = _not_after(arrivals, at, arrivals[-1])
    before_s = np.take_along_axis(np.vstack([np.zeros_like(arrivals[:1]), arrivals]), closed, axis=0)
    after_s = np.take_along_axis(arrivals, np.minimum(closed, len(arrivals) - 1), axis=0)
    part = np.where(closed > 0, (at - before_s) / np.maximum(after_s - before_s, np.finfo(float).tiny), 0.0)
    came = np.floor((closed + np.minimum(part, 1.0)) * shape.group)
    done = _not_after(ends, at, arrivals[-1]) * shape.group
    return np.asarray((came - done <= shape.goal.limit_events).mean(axis=0))


def _not_after(times: Array, at: Array, whole: Array) -> IntArray:
    """Return how many times of each column are not after each moment of that column; ``whole`` is the last moment."""
    # One search for all columns is many times as fast as one for each: column 3 has the numbers from 6 to 7.5.
    columns = 2.0 * np.arange(times.shape[1])
    of_all = (np.minimum(times / whole, 1.5) + columns).T.ravel()
    found = np.searchsorted(of_all, (at / whole + columns).ravel(), side="right").reshape(at.shape)
    return found - len(times) * np.arange(times.shape[1])
