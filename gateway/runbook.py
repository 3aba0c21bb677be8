"""Where each run of a query is: waiting, open in a lane, or done. Pure: the first completion of a run counts."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import pyarrow as pa

from gateway.intervals import IntervalSet


@dataclass(slots=True, eq=False)
class Run:
    """A contiguous range of seq, in memory until it is completed.

    ``arrival_s`` is the mean due time of its events on the gateway's monotonic clock; ``attempt`` counts its routings.
    """

    first_seq: int
    last_seq: int
    batch: pa.RecordBatch
    arrival_s: float
    raw_bytes: int
    disordered: bool = False
    attempt: int = 0

    @property
    def events(self) -> int:
        """Number of events."""
        return self.last_seq - self.first_seq + 1

    def __lt__(self, other: Run) -> bool:
        return self.first_seq < other.first_seq


class RunBook:
    """All runs of one query that are not completed yet.

    Args:
        done: what was completed before (by an earlier gateway).
    """

    def __init__(self, done: IntervalSet) -> None:
        self._runs: dict[int, Run] = {}
        self._waiting: list[Run] = []
        self._open: dict[str, dict[int, Run]] = {}
        self._done = IntervalSet(done)
        self.duplicate_count = 0

    def add(self, run: Run) -> None:
        """Take a run that waits for a lane."""
        self._runs[run.first_seq] = run
        heapq.heappush(self._waiting, run)

    def next_waiting(self) -> Run | None:
        """Return the waiting run with the lowest seq, without taking it."""
        while self._waiting and self._waiting[0].first_seq not in self._runs:
            heapq.heappop(self._waiting)  # it was answered late by a lane that had been given up
        return self._waiting[0] if self._waiting else None

    def assign(self, lane: str) -> Run:
        """Move the waiting run with the lowest seq, which ``next_waiting`` has shown, to ``lane`` and return it."""
        run = heapq.heappop(self._waiting)
        run.attempt += 1
        self._open.setdefault(lane, {})[run.first_seq] = run
        return run

    def give_back(self, lane: str) -> list[Run]:
        """Let all runs open in ``lane`` wait again, for instance because the lane was lost; return them."""
        runs = list(self._open.pop(lane, {}).values())
        for run in runs:
            heapq.heappush(self._waiting, run)
        return runs

    def complete(self, first_seq: int, last_seq: int) -> tuple[list[Run], bool]:
        """Note an answer, from whatever lane, for a run or for a whole number of consecutive ones.

        Returns:
            The runs that leave the book, in order, and whether this is their first completion; a later one is to be
            dropped.

        Raises:
            ValueError: the range is neither done nor made of runs in the book.
        """
        runs = sorted(run for key, run in self._runs.items() if first_seq <= key and run.last_seq <= last_seq)
        known = self._done.covers(first_seq, last_seq)
        if not known and sum(run.events for run in runs) != last_seq - first_seq + 1:
            raise ValueError(f"{first_seq}-{last_seq} was answered, which are no runs of this query")
        for run in runs:
            del self._runs[run.first_seq]
            for opened in self._open.values():
                opened.pop(run.first_seq, None)
        self._done.add(first_seq, last_seq)
        self.duplicate_count += known
        return runs, not known

    def oldest_waiting_s(self) -> float | None:
        """Return the earliest arrival of a run that waits for a lane, None without any."""
        return min((run.arrival_s for run in self._waiting if run.first_seq in self._runs), default=None)

    @property
    def idle(self) -> bool:
        """Whether every run that was added is completed."""
        return not self._runs

    @property
    def waiting_events(self) -> int:
        """Events that wait for a lane."""
        return sum(run.events for run in self._waiting if run.first_seq in self._runs)
