"""The runs of a query that ``spillway profile`` measures."""

from __future__ import annotations

from functools import cache
from typing import Final

import pyarrow as pa

from engines.query.known import KnownQuery
from engines.query.selections.expansion import expanded
from gateway.query.flow.runlog import SelectionMark
from gateway.query.flow.selecting.selector import HeldTooMuchError, Selector

HELD_BYTES: Final = 1 << 30
_RUNS_MOST: Final = 101
_SETTLED_PART: Final = 0.5
"""In the first part of the events fewer selections are open than later."""


class ProfileError(Exception):
    """A query cannot be measured; the message says why and what to do."""


class WholeRuns:
    """Runs of a query without selections.

    Args:
        events: those of the largest run, at least.

    Attributes:
        most_events: the events of the largest run.
    """

    def __init__(self, events: pa.RecordBatch) -> None:
        self._events = events
        self.most_events = events.num_rows

    def rows(self, first: int, end: int) -> pa.RecordBatch:
        """Return the events of a run."""
        return self._events.slice(first, end - first)


class RunsOfSelections:
    """Runs of a query with selections: the events of those that a run closes, as the query sees them.

    How many rows that is differs from run to run. So of many runs with the same number of events that one counts whose
    number of rows is the median.

    Args:
        name: the query's.
        query: as the host knows it.
        events: in their order.

    Attributes:
        most_events: the events of the largest run.
    """

    def __init__(self, name: str, query: KnownQuery, events: pa.RecordBatch) -> None:
        self._name, self._query, self._events = name, query, events
        self.most_events = int(events.num_rows * (1 - _SETTLED_PART))
        self._of_size = cache(self._median_run)

    def rows(self, first: int, end: int) -> pa.RecordBatch:
        """Return the rows of a run with so many events.

        Raises:
            ProfileError: no such run closes a selection, or open ones hold too many events.
        """
        return self._of_size(end - first)

    def _median_run(self, size: int) -> pa.RecordBatch:
        rule = self._query.spec.selections
        assert rule is not None
        selector = Selector(rule, self._query.plan.selecting, 0, SelectionMark(), HELD_BYTES)
        at = self._events.num_rows - self.most_events
        try:
            selector.select(self._events.slice(0, at))
            runs = list[pa.RecordBatch]()
            while at + size <= self._events.num_rows and len(runs) < _RUNS_MOST:
                runs.append(expanded(selector.select(self._events.slice(at, size)).batch, rule)[0])
                at += size
        except HeldTooMuchError as error:
            raise ProfileError(f"query {self._name}: {error}") from error
        if not selector.mark.selection:
            raise ProfileError(
                f"query {self._name}: its first {self._events.num_rows:,} events close no selection, so there is "
                "nothing to measure: give a longer file, or close selections sooner"
            )
        return sorted(runs, key=lambda run: run.num_rows)[len(runs) // 2]
