"""Reports one query's data to the profiler and to the report."""

from __future__ import annotations

import logging
import math
from typing import Final

from gateway.core.decide.profiler import Profiler
from gateway.core.exchange.instructions import Dispatched, Done, Release
from gateway.query.flow.delivery import Results
from gateway.query.flow.run import Run
from gateway.query.flow.statistics import Tally
from policies.signals import HOME

_LOG = logging.getLogger(__name__)

LOG_S: Final = 60.0
"""What comes too late is logged this often at most, in s."""


class Measures:
    """Passes on what happens to the runs of a query.

    Args:
        query: its name.
        profiler: gets it for the slot.
        tally: counts it for the report.
        part: the part of the query whose runs are reported; None if the query is not divided.
    """

    def __init__(self, query: str, profiler: Profiler, tally: Tally, part: int | None = None) -> None:
        self._query = query
        self._part = part
        self._profiler = profiler
        self._tally = tally
        self._too_late = 0
        self._logged_s = -math.inf

    def arrived(self, run: Run) -> None:
        """Note that a run was read."""
        self._tally.arrived(run.first_seq, run.last_seq, run.shed)
        self._profiler.arrived(
            self._query,
            # Shed events arrived too: the input rate includes them.
            events=run.events + run.shed,
            raw_bytes=run.raw_bytes * (run.events + run.shed) // run.events,
            first_due_s=run.arrival_s,
            last_due_s=run.arrival_s,
        )

    def carried(self, events: int, raw_bytes: int, since_s: float, now_s: float) -> None:
        """Note events that came between two times, and that Spark at home reads by itself."""
        self._profiler.arrived(self._query, events=events, raw_bytes=raw_bytes, first_due_s=since_s, last_due_s=now_s)

    def dispatched(self, what: Dispatched[Run]) -> None:
        """Note that a run was sent."""
        self._profiler.dispatched(
            self._query,
            lane=what.lane,
            events=what.run.events,
            raw_bytes=what.raw_bytes,
            sent_bytes=what.sent_bytes,
        )
        self._tally.dispatched(what.run.events)
        if what.lane != HOME:
            self._tally.sent(what.raw_bytes, what.sent_bytes)

    def done(self, done: Done[Run], now_s: float) -> None:
        """Note that runs were completed, for the first time."""
        for run in done.runs:
            self._tally.completed(done.lane, max(0.0, now_s - run.arrival_s), run.events)
            if self._part is None:  # the parts answer all runs in order
                self._tally.received(run.first_seq, run.last_seq)
            if run.first_seq in done.isolated:
                continue  # its time says nothing about the lane
            self._profiler.completed(
                self._query,
                last_seq=run.last_seq,
                events=run.events,
                lane=done.lane,
                mean_arrival_s=run.arrival_s,
                completed_s=now_s,
                batch_id=done.batch_id,
                batch_s=done.batch_s,
            )

    def state(self, last_seq: int, too_late: int, open_groups: int | None, now_s: float) -> None:
        """Note what a micro-batch, which ends with ``last_seq``, dropped and left in the state."""
        self._too_late += self._tally.state(self._part or 0, last_seq, too_late, open_groups)
        self.log_too_late(now_s)

    def log_too_late(self, now_s: float = math.inf) -> None:
        """Log what came too late, at most once in `LOG_S`; without ``now_s``, all that is left."""
        if not self._too_late or now_s < self._logged_s + LOG_S:
            return
        text = "query %s: %d rows, or groups of rows, came later than its watermark allows and were dropped; %d in all"
        _LOG.warning(text, self._query, self._too_late, self._tally.too_late)
        self._too_late, self._logged_s = 0, now_s

    def released(self, release: Release[Results], now_s: float) -> None:
        """Note that results go to the sink."""
        latency_s = max(0.0, now_s - release.arrival_s)
        self._tally.released(latency_s, release.events, release.results.batch.num_rows, late=release.late)


class Unmeasured(Measures):
    """Reports nothing: what a part repeats in its next place was reported when it was done for the first time."""

    def __init__(self) -> None:
        """Need no profiler."""

    def dispatched(self, what: Dispatched[Run]) -> None:
        """Ignore it; the link counts its bytes."""

    def state(self, last_seq: int, too_late: int, open_groups: int | None, now_s: float) -> None:
        """Ignore it."""
