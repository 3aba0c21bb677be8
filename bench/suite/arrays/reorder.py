"""Putting in order: results that are completed out of order, with gaps, and some of them twice."""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Iterator

import numpy as np
from sortedcontainers import SortedDict

from gateway.core.exchange.reorder import Reorderer
from policies.arrays import IntArray
from suite.row import Row, rate_of
from suite.turns import OURS, Goal, Sample

RUNS, RUN_EVENTS, SEED = 5_000, 100, 5
DISPLACED = (10, 1_000, 100_000)
"""By so many events a run is completed too late, at most; at least one run."""
TWICE = 0.01


def completions(displaced: int) -> IntArray:
    """Return the first seqs of runs in the order of their completion; one in a hundred comes twice."""
    rng = np.random.default_rng(SEED)
    late = rng.integers(0, max(1, displaced // RUN_EVENTS) + 1, RUNS)
    runs = np.argsort(np.arange(RUNS) + late, kind="stable")
    twice = np.flatnonzero(rng.uniform(size=RUNS) < TWICE)
    return np.insert(runs, twice, runs[twice]) * RUN_EVENTS


def _answer(released: Iterator[int]) -> str:
    return hashlib.sha256(np.fromiter(released, dtype=np.int64).tobytes()).hexdigest()


def _by_runs(order: list[int]) -> list[int]:
    """Return the first seqs of runs in the order in which the gateway's reorder buffer releases them."""
    buffer, done, released = Reorderer[None](flush_s=None), set[int](), list[int]()
    for first in order:
        if first not in done:
            done.add(first)
            released += (each.first_seq for each in buffer.complete(first, first + RUN_EVENTS - 1, None, 0.0))
    return released


def _by_heap(order: list[int]) -> list[int]:
    """Return seqs in order, event by event, by a heap."""
    waiting, next_seq, released = list[int](), 0, list[int]()
    for first in order:
        for seq in range(first, first + RUN_EVENTS):
            heapq.heappush(waiting, seq)
        while waiting and waiting[0] <= next_seq:
            if heapq.heappop(waiting) == next_seq:
                released.append(next_seq)
                next_seq += 1
    return released


def _by_dict(order: list[int]) -> list[int]:
    """Return seqs in order, event by event, by a sorted dictionary."""
    waiting, next_seq, released = SortedDict(), 0, list[int]()
    for first in order:
        for seq in range(first, first + RUN_EVENTS):
            if seq >= next_seq:
                waiting[seq] = None
        while waiting and waiting.peekitem(0)[0] == next_seq:
            waiting.popitem(0)
            released.append(next_seq)
            next_seq += 1
    return released


def ours() -> Sample:
    """Measure the gateway's reorder buffer, which takes runs."""
    orders = {displaced: completions(displaced).tolist() for displaced in DISPLACED}

    def work(displaced: int) -> int:
        return len(_by_runs(orders[displaced])) * RUN_EVENTS

    figures = {_figure(displaced): rate_of(lambda displaced=displaced: work(displaced)) for displaced in DISPLACED}  # type: ignore[misc]
    events = (first + at for first in _by_runs(orders[DISPLACED[1]]) for at in range(RUN_EVENTS))
    return Sample(figures, _answer(events))


def _figure(displaced: int) -> str:
    return f"events/s, displaced by {displaced:,}"


def _peer(reorder: object) -> Sample:
    assert callable(reorder)
    few = RUNS // 10
    figures, answer = dict[str, float](), ""
    for displaced in DISPLACED:
        order = [first for first in completions(displaced).tolist() if first < few * RUN_EVENTS]
        figures[_figure(displaced)] = rate_of(lambda order=order: len(reorder(order)))  # type: ignore[misc]
        if displaced == DISPLACED[1]:
            answer = _answer(iter(reorder(completions(displaced).tolist())))
    return Sample(figures, answer)


def by_heapq() -> Sample:
    """Measure a heap of events."""
    return _peer(_by_heap)


def by_sorted() -> Sample:
    """Measure a sorted dictionary of events."""
    return _peer(_by_dict)


def by_numpy() -> Sample:
    """Measure the limit: all events are sorted at once, and nothing is released before."""
    figures = {}
    for displaced in DISPLACED:
        events = (completions(displaced)[:, None] + np.arange(RUN_EVENTS)).ravel()
        figures[_figure(displaced)] = rate_of(lambda events=events: len(np.unique(events)))  # type: ignore[misc]
    return Sample(figures)


ROW = Row(
    name="reorder",
    title="put in order",
    sides={OURS: ours, "heapq": by_heapq, "sortedcontainers": by_sorted, "numpy, all at once": by_numpy},
    goals=(
        *(Goal(_figure(displaced), "heapq", 10.0) for displaced in DISPLACED),
        *(Goal(_figure(displaced), None, 50e6) for displaced in DISPLACED),
    ),
    note=(
        "Runs of 100 events are completed up to 10, 1,000 or 100,000 events too late, 1 % of them twice. The gateway "
        "puts runs in order, its peers events."
    ),
)
