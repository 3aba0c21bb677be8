"""Queues without formulas: how many engines the gateway's search finds (Mayer et al., section VI-C, Figure 8e).

The experiments are the paper's. The search gets sketches of the times, as in the gateway, and simulates the queue. Its
answer is compared with the paper's, and with the smallest number that a simulation of each event finds, which shares
nothing with it. How the limit is kept while VMs come and go is in docs/results/patterns.md (Figures 8a to 8d).
"""

from __future__ import annotations

import heapq

import numpy as np

from planning.document import table
from policies.arrays import Array
from policies.queueing.degree import BufferGoal
from policies.queueing.distributions import Distribution, Exponential, Pareto, Uniform
from policies.queueing.engines import EngineSearch
from policies.queueing.loadtable import load_table
from policies.queueing.sketch import TimesSeen, TimesSketch

GOAL = BufferGoal(limit_events=15, probability=0.95)
MOST = 40
SEED = 11
EVENTS = 60_000
SLOTS, SLOT_EVENTS = 60, 400
UNIFORM, PARETO = Uniform(0.1, 0.2), Pareto(0.05, 2.0)
EXPERIMENTS: tuple[tuple[str, Distribution, Distribution, int], ...] = (
    ("uniform workload", UNIFORM, Exponential(0.3), 10),
    ("uniform service", Exponential(0.04), UNIFORM, 6),
    ("Pareto workload", PARETO, Exponential(0.3), 6),
    ("Pareto service", Exponential(0.06667), PARETO, 10),
)
"""Name, times between events, times to process one, and the paper's degree."""


def approximations() -> str:
    """Return Figure 8e as a table."""
    rows: list[tuple[object, ...]] = []
    for name, workload, service, paper in EXPERIMENTS:
        rng = np.random.default_rng(SEED)
        between_s, busy_s = (times.quantile(rng.uniform(size=EVENTS)) for times in (workload, service))
        found = searched(between_s, busy_s)
        least = next(each for each in range(1, MOST) if held(between_s, busy_s, each) >= GOAL.probability)
        kept = held(between_s, busy_s, found)
        rows.append((name, paper, found, f"{kept:.1%}", least, f"{found / least:.2f}"))
    return table(("experiment", "paper", "the gateway's search", "within 15", "minimum", "/ minimum"), rows)


def searched(between_s: Array, busy_s: Array) -> int:
    """Return the number of engines that the gateway's search finds once it has seen some slots of both times."""
    search = EngineSearch(MOST)
    rate = 1.0 / float(between_s.mean())
    search.observe(rate, 1.0, _seen(between_s), _seen(busy_s))
    if (shape := search.wanted(rate, 1.0, GOAL)) is not None:
        search.table = load_table(shape)
    return search.needed(rate, float(busy_s.mean()), 1.0, GOAL).engines


def _seen(times_s: Array) -> list[TimesSeen]:
    """Return the sketches of some slots."""
    sketch, found = TimesSketch(SEED), []
    for slot in range(SLOTS):
        sketch.add(times_s[slot * SLOT_EVENTS : (slot + 1) * SLOT_EVENTS])
        seen = sketch.take()
        assert seen is not None
        found.append(seen)
    return found


def held(between_s: Array, busy_s: Array, engines: int) -> float:
    """Play each event, the engine that is free first takes it; return the part of the time that keeps the limit."""
    arrivals, free, done = np.cumsum(between_s), [0.0] * engines, []
    for came_s, needs_s in zip(arrivals.tolist(), busy_s.tolist(), strict=True):
        ends_s = max(came_s, heapq.heappop(free)) + needs_s
        done.append(ends_s)
        heapq.heappush(free, ends_s)
    moments = np.linspace(0.1 * arrivals[-1], arrivals[-1], 20_000)
    there = np.searchsorted(arrivals, moments, "right") - np.searchsorted(np.sort(done), moments, "right")
    return float(np.mean(there <= GOAL.limit_events))
