"""Splitting by windows: which windows an event belongs to, as they overlap more and more."""

from __future__ import annotations

import numpy as np

from policies.selections.closing import ClosingRule
from policies.selections.opening import EachCount
from policies.selections.splitter import SelectionSplitter, needed
from suite.row import Row, rate_of
from suite.turns import OURS, Goal, Sample

WINDOW, RUN, EVENTS = 10_000, 5_000, 200_000
OVERLAPS = (1, 10, 100, 1_000, 10_000)


def _figure(overlap: int) -> str:
    return f"events/s, overlap {overlap:,}"


def _split(overlap: int) -> int:
    """Split all events, and return how many they are.

    Raises:
        RuntimeError: windows are missing.
    """
    splitter = SelectionSplitter(EachCount(WINDOW // overlap), ClosingRule(events=WINDOW))
    times_ms, closed = np.arange(RUN, dtype=np.int64), 0
    for run in range(0, EVENTS, RUN):
        kept_from = splitter.needed_from
        found = splitter.split(times_ms + run)
        needed(found, kept_from, splitter.next_event - kept_from)
        closed += len(found.first)
    if closed + len(splitter.open.first) != EVENTS // (WINDOW // overlap):
        raise RuntimeError(f"{closed} windows were closed and {len(splitter.open.first)} are open: some are missing")
    return EVENTS


def ours() -> Sample:
    """Measure the gateway's splitter."""
    return Sample({_figure(overlap): rate_of(lambda overlap=overlap: _split(overlap)) for overlap in OVERLAPS})  # type: ignore[misc]


def by_lists() -> Sample:
    """Measure a list for each open window, to which each event is added: what a stream processor's operator does."""

    def split(overlap: int) -> int:
        every, open_windows, closed = WINDOW // overlap, list[list[int]](), 0
        for event in range(events):
            if event % every == 0:
                open_windows.append([])
            for window in open_windows:
                window.append(event)
            if len(open_windows[0]) == WINDOW:
                open_windows.pop(0)
                closed += 1
        return closed

    figures = {}
    for overlap in OVERLAPS:
        # The work of an event grows with the overlap.
        events = max(100, min(EVENTS, 400_000 // overlap))

        def work(overlap: int = overlap, events: int = events) -> int:
            split(overlap)
            return events

        figures[_figure(overlap)] = rate_of(work)
    return Sample(figures)


ROW = Row(
    name="windows",
    title="split by windows of 10,000 events",
    sides={OURS: ours, "a list for each window": by_lists},
    goals=(
        *(Goal(_figure(overlap), None, 1e6) for overlap in OVERLAPS),
        *(Goal(_figure(overlap), "a list for each window", 1.0) for overlap in OVERLAPS),
    ),
    note="Runs of 5,000 events. Overlap: how many windows an event belongs to.",
)
