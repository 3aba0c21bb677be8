"""A reference that shares no code with the formulas: a queue with c servers, event by event."""

from __future__ import annotations

import heapq

import numpy as np


def system_sizes(between_s: np.ndarray, busy_s: np.ndarray, instances: int, rng: np.random.Generator) -> np.ndarray:
    """Return how many events are in the system at random moments, after a fifth of the run as warm-up.

    Args:
        between_s: times between arrivals, shape (n,).
        busy_s: processing times, shape (n,).
        instances: number of servers; first come, first served.
        rng: for the moments.
    """
    arrivals = np.cumsum(between_s)
    free = [0.0] * instances
    done = []
    for arrived_s, needs_s in zip(arrivals.tolist(), busy_s.tolist(), strict=True):
        ends_s = max(arrived_s, heapq.heappop(free)) + needs_s
        done.append(ends_s)
        heapq.heappush(free, ends_s)
    moments = rng.uniform(arrivals[-1] * 0.2, arrivals[-1], 20_000)
    return np.searchsorted(arrivals, moments) - np.searchsorted(np.sort(done), moments)
