"""Where each run of a query is: waiting, open in a lane, or done. Pure: the first completion of a run counts.

A run that is overdue in its lane is asked for again: it waits once more, and an answer from either lane counts.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Set
from dataclasses import dataclass

import pyarrow as pa

from gateway.core.intervals import IntervalSet

# Runs in one micro-batch: more save Spark's fixed costs, fewer answer earlier.
BATCH_RUNS_MAX = 8


@dataclass(slots=True, eq=False)
class Run:
    """A contiguous range of seq, in memory until it is completed.

    ``arrival_s`` is the mean due time of its events on the gateway's monotonic clock; ``attempt`` counts its routings;
    ``shed`` is how many events came with its own, or since the run before it, and were shed.
    """

    first_seq: int
    last_seq: int
    batch: pa.RecordBatch
    arrival_s: float
    raw_bytes: int
    disordered: bool = False
    attempt: int = 0
    shed: int = 0

    @property
    def events(self) -> int:
        """Number of events."""
        return self.last_seq - self.first_seq + 1

    def __lt__(self, other: Run) -> bool:
        return self.first_seq < other.first_seq


class RunBook:
    """All runs of one query that are not in its sink yet.

    Args:
        done: what was completed before (by an earlier gateway).
    """

    def __init__(self, done: IntervalSet) -> None:
        self._waiting: list[Run] = []
        self._open: dict[str, dict[int, Run]] = {}
        self._overdue: dict[str, dict[int, Run]] = {}
        self._tried: dict[int, set[str]] = {}
        self._done = IntervalSet(done)
        self.duplicate_count = 0

    def add(self, run: Run) -> None:
        """Take a run that waits for a lane."""
        heapq.heappush(self._waiting, run)

    def next_waiting(self) -> Run | None:
        """Return the waiting run with the lowest seq, without taking it."""
        return self._waiting[0] if self._waiting else None

    def assign(self, lane: str) -> Run:
        """Move the waiting run with the lowest seq to ``lane`` and return it."""
        run = heapq.heappop(self._waiting)
        run.attempt += 1
        self._open.setdefault(lane, {})[run.first_seq] = run
        return run

    def ask_again(self, lane: str, first_seq: int) -> Run | None:
        """Let a run that is overdue in ``lane`` wait once more; return it, or None if it is not open there."""
        run = self._open.get(lane, {}).pop(first_seq, None)
        if run is not None:
            self._overdue.setdefault(lane, {})[first_seq] = run
            self._tried.setdefault(first_seq, set()).add(lane)
            heapq.heappush(self._waiting, run)
        return run

    def tried(self, run: Run) -> Set[str]:
        """Return the lanes in which a run is overdue."""
        return self._tried.get(run.first_seq, frozenset())

    def give_back(self, lane: str) -> list[Run]:
        """Let all runs open in ``lane`` wait again, for instance because the lane was lost; return them."""
        runs = list(self._open.pop(lane, {}).values())
        self._overdue.pop(lane, None)
        for lanes in self._tried.values():
            lanes.discard(lane)
        for run in runs:
            heapq.heappush(self._waiting, run)
        return runs

    def complete(self, lane: str, first_seq: int, last_seq: int) -> tuple[list[Run], bool]:
        """Note an answer from ``lane`` for a run, or for a whole number of consecutive ones.

        Returns:
            The runs that leave the book, in order, and whether their results count: False when they were done before
            (a duplicate; its runs were here only if they were added again, as a stateful query does on recovery).

        Raises:
            ValueError: the range is not one that was asked for there.
        """
        if self._done.covers(first_seq, last_seq):
            self.duplicate_count += 1
            return self._drop(lane, first_seq, last_seq), False
        asked = {**self._overdue.get(lane, {}), **self._open.get(lane, {})}
        events = sum(run.events for run in asked.values() if first_seq <= run.first_seq and run.last_seq <= last_seq)
        if events != last_seq - first_seq + 1:
            raise ValueError(f"lane {lane} answered {first_seq}-{last_seq}, which are no runs that are open there")
        self._done.add(first_seq, last_seq)
        return self._drop(lane, first_seq, last_seq), True

    def is_done(self, first_seq: int, last_seq: int) -> bool:
        """Whether these runs were completed before."""
        return self._done.covers(first_seq, last_seq)

    def _drop(self, lane: str, first_seq: int, last_seq: int) -> list[Run]:
        dropped = _taken(self._open.get(lane, {}), first_seq, last_seq)
        for key in [key for key in self._tried if first_seq <= key <= last_seq]:
            del self._tried[key]
            dropped += self._drop_everywhere(key)
        return sorted({run.first_seq: run for run in dropped}.values())

    def _drop_everywhere(self, first_seq: int) -> list[Run]:
        """Take a run that was asked for more than once from wherever it is."""
        found = [lane.pop(first_seq) for lane in (*self._open.values(), *self._overdue.values()) if first_seq in lane]
        waiting = [run for run in self._waiting if run.first_seq != first_seq]
        if len(waiting) < len(self._waiting):
            self._waiting = waiting
            heapq.heapify(waiting)
        return found

    def open_runs(self, lane: str) -> int:
        """Return how many runs are open in ``lane``."""
        return len(self._open.get(lane, {}))

    def oldest_arrival_s(self, lanes: Iterable[str] | None = None) -> float | None:
        """Return the earliest arrival of a run that waits or is open (in ``lanes`` only, if given), if any."""
        names = self._open.keys() if lanes is None else lanes
        arrivals = [run.arrival_s for name in names for run in self._open.get(name, {}).values()]
        arrivals += [run.arrival_s for run in self._waiting]
        return min(arrivals, default=None)

    @property
    def idle(self) -> bool:
        """Whether nothing waits and nothing is open."""
        return not self._waiting and not any(self._open.values())

    @property
    def waiting_runs(self) -> int:
        """Runs that wait for a lane."""
        return len(self._waiting)

    @property
    def waiting_events(self) -> int:
        """Events that wait for a lane."""
        return sum(run.events for run in self._waiting)

    @property
    def open_count(self) -> int:
        """Runs that are open in any lane."""
        return sum(map(len, self._open.values()))


def _taken(runs: dict[int, Run], first_seq: int, last_seq: int) -> list[Run]:
    keys = [key for key, run in runs.items() if first_seq <= key and run.last_seq <= last_seq]
    return [runs.pop(key) for key in keys]
