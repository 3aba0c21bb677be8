"""The smallest number of instances for times without formulas, by simulation: it may save some of a safe degree.

The approximations of section V-C are safe and may give too many instances. Once workload and service are known as
distributions, the queue itself can be simulated: many short independent runs at once, so that their spread shows how
certain the answer is. It takes hundredths of a second for a degree, a second where it is close: run it where nobody
waits.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from policies.arrays import Array
from policies.queueing.degree import BufferGoal, Degree
from policies.queueing.distributions import Distribution

_RUNS = 40
_BATCHES_MOST = 6
_EVENTS = 1200
_WARM_UP = 0.4
"""This first part of each run, which begins with an empty queue, is ignored."""

_MOMENTS = 100
_SURE = 1.685
"""Student's t of 95 %, one-sided, for one batch of runs; a little more than enough for several."""

_BUSIEST = 0.93
"""Busier queues do not reach a steady state in such a short run, and would look emptier than they are."""


@dataclass(frozen=True, slots=True)
class Simulated:
    """The result of simulating a queue: P(Q <= BL).

    Attributes:
        within: mean over the runs.
        error: its error, with 95 % confidence to either side.
    """

    within: float
    error: float


def simulate(
    workload: Distribution,
    service: Distribution,
    instances: int,
    goal: BufferGoal,
    rng: np.random.Generator,
) -> Simulated:
    """Return P(Q <= BL) of G/G/c, with the events being processed, at random moments.

    More runs are added, each time twice as many, until it is clear whether the goal is kept, or the limit is reached.
    Heavy tails need thousands of runs, and many runs side by side take little longer than few.
    """
    shares: list[float] = []
    for batch in range(_BATCHES_MOST):
        shares += _batch(workload, service, instances, goal.limit_events, _RUNS * 2**batch, rng)
        mean, error = float(np.mean(shares)), _SURE * float(np.std(shares, ddof=1)) / len(shares) ** 0.5
        if abs(mean - goal.probability) > error:
            break
    return Simulated(mean, error)


def refined(
    safe: Degree, workload: Distribution, service: Distribution, goal: BufferGoal, rng: np.random.Generator
) -> Degree:
    """Return the smallest degree below a safe one that certainly keeps the goal in simulations; or the safe one.

    Args:
        safe: the degree of ``optimal_degree``.
        workload: times between events.
        service: times to process one.
        goal: the limit to keep.
        rng: for the simulations.
    """
    offered = service.mean_s / workload.mean_s
    for instances in range(int(offered / _BUSIEST) + 1, safe.instances):
        found = simulate(workload, service, instances, goal, rng)
        if found.within - found.error >= goal.probability:
            return replace(safe, instances=instances, kept=True, probability=found.within)
    return safe


def _batch(
    workload: Distribution, service: Distribution, instances: int, limit: int, runs: int, rng: np.random.Generator
) -> list[float]:
    """Return P(Q <= limit) of queues run side by side.

    Events are processed in order by the instance that is free first (Kiefer and Wolfowitz 1955).
    """
    shape = (_EVENTS, runs)
    arrivals = np.cumsum(workload.quantile(rng.uniform(size=shape)), axis=0)
    busy_s = service.quantile(rng.uniform(size=shape))
    ends, free, run = np.empty(shape), np.zeros((runs, instances)), np.arange(runs)
    for at in range(_EVENTS):
        first = free.argmin(axis=1)
        ends[at] = np.maximum(arrivals[at], free[run, first]) + busy_s[at]
        free[run, first] = ends[at]
    return [_share(arrivals[:, each], np.sort(ends[:, each]), limit, rng) for each in run]


def _share(arrivals: Array, ends: Array, limit: int, rng: np.random.Generator) -> float:
    moments = rng.uniform(arrivals[int(_WARM_UP * _EVENTS)], arrivals[-1], _MOMENTS)
    return float(np.mean(np.searchsorted(arrivals, moments) - np.searchsorted(ends, moments) <= limit))
