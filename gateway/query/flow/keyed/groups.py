"""Puts waiting runs of a divided query together: all of its parts must have the same micro-batches. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable

import pyarrow as pa

from gateway.query.flow.run import BATCH_RUNS_MAX, Run

_BYTES_MOST = 16 << 20


class Groups:
    """The runs that wait to be sent to the parts, as one micro-batch for several of them.

    Args:
        ends: where micro-batches have to end (seq, exclusive), because a part, or the sink, has had them already.
    """

    def __init__(self, ends: Iterable[int]) -> None:
        self._ends = sorted(set(ends))
        self._runs: deque[Run] = deque()

    @property
    def waiting(self) -> int:
        """How many runs wait."""
        return len(self._runs)

    @property
    def waiting_events(self) -> int:
        """How many events wait."""
        return sum(run.events for run in self._runs)

    @property
    def oldest_s(self) -> float | None:
        """The earliest mean arrival of a run that waits; None if none does."""
        return min((run.arrival_s for run in self._runs), default=None)

    def add(self, run: Run) -> None:
        """Add the next run."""
        self._runs.append(run)

    def take(self) -> Run | None:
        """Return the next micro-batch as one run; None if no run waits, or not all of those that belong together."""
        if not self._runs:
            return None
        at = bisect_right(self._ends, self._runs[0].first_seq)
        if at < len(self._ends):
            end = self._ends[at]
            if self._runs[-1].last_seq + 1 < end:
                return None
            return _as_one([self._runs.popleft() for run in tuple(self._runs) if run.last_seq < end])
        taken, taken_bytes = [self._runs.popleft()], 0
        while self._runs and len(taken) < BATCH_RUNS_MAX:
            taken_bytes += self._runs[0].raw_bytes
            if taken_bytes > _BYTES_MOST:
                break
            taken.append(self._runs.popleft())
        return _as_one(taken)


def _as_one(runs: list[Run]) -> Run:
    if len(runs) == 1:
        return runs[0]
    (batch,) = pa.Table.from_batches([run.batch for run in runs]).combine_chunks().to_batches()
    events = sum(run.events for run in runs)
    return Run(
        runs[0].first_seq,
        runs[-1].last_seq,
        batch,
        sum(run.arrival_s * run.events for run in runs) / events,
        sum(run.raw_bytes for run in runs),
    )
