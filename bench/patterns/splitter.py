"""How fast the splitter of selections is, by their overlap (Figure 8f).

As in the paper, the operator is a tuple window of 10,000 events, and more or fewer of these windows overlap. Each run
is split, and the events that the selections closed by it need are found.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
from planning.document import table

from policies.selections.closing import ClosingRule
from policies.selections.opening import EachCount
from policies.selections.splitter import SelectionSplitter, needed

WINDOW = 10_000
OVERLAPS = (1, 10, 100, 1_000, 10_000)
EVENTS, RUN = 1_000_000, 5_000
REPEATS = 5


def report(_data: Path | None) -> str:
    """Measure; return the table."""
    rows = [(f"{overlap:,}", *_cells(overlap)) for overlap in OVERLAPS]
    return table(("windows that overlap", "million events per second (median)", "least, most"), rows)


def _cells(overlap: int) -> tuple[str, str]:
    per_s = sorted(EVENTS / _split_s(overlap) / 1e6 for _ in range(REPEATS))
    return f"{per_s[REPEATS // 2]:.1f}", f"{per_s[0]:.1f}, {per_s[-1]:.1f}"


def _split_s(overlap: int) -> float:
    """Return how long it takes to split all events."""
    splitter = SelectionSplitter(EachCount(WINDOW // overlap), ClosingRule(events=WINDOW))
    times_ms = np.arange(RUN, dtype=np.int64)
    closed = 0
    begun_s = time.perf_counter()
    for run in range(0, EVENTS, RUN):
        kept_from = splitter.needed_from
        found = splitter.split(times_ms + run)
        needed(found, kept_from, splitter.next_event - kept_from)
        closed += len(found.first)
    took_s = time.perf_counter() - begun_s
    assert closed + len(splitter.open.first) == EVENTS // (WINDOW // overlap)
    return took_s
