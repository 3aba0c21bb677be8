"""The only register of one query's runs: where each is, and which is dispatched next."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import Generic

from gateway.core.exchange.entry import R, RunEntry, RunState
from gateway.core.intervals import IntervalSet

_STALE_MOST = 64


class Runs(Generic[R]):
    """All runs of one query that are not committed.

    Args:
        committed: the ranges that were committed before (by an earlier gateway).
    """

    def __init__(self, committed: Iterable[tuple[int, int]]) -> None:
        self.done = IntervalSet(committed)
        self.entries: dict[int, RunEntry[R]] = {}
        self.waiting_runs = self.waiting_events = 0
        self._logged = IntervalSet()
        # First seqs; a run that does not wait any more stays in it until it is the lowest.
        self._waiting: list[int] = []
        # (arrival, first seq) likewise.
        self._arrivals: list[tuple[float, int]] = []

    def add(self, run: R) -> RunEntry[R]:
        """Add a run that waits for a lane.

        Raises:
            ValueError: its range is empty or has less seqs than events, it was logged before, or only a part of it was
            done before.
        """
        first, last = run.first_seq, run.last_seq
        if not 0 <= first <= last or not 0 <= run.events <= last - first + 1:
            raise ValueError(f"run {first}-{last} has {run.events} events")
        done_before = self.done.covers(first, last)
        if self._logged.overlaps(first, last) or (not done_before and self.done.overlaps(first, last)):
            raise ValueError(f"run {first}-{last} was logged or done before, or a part of it was")
        self._logged.add(first, last)
        entry = self.entries[first] = RunEntry(first, last, run.events, run, done_before)
        self.wait(entry)
        return entry

    # ------------------------------------------------------------------------------------------------------- waiting

    def wait(self, entry: RunEntry[R]) -> None:
        """Put a run back to wait for a lane."""
        entry.state, entry.lane = RunState.WAITING, None
        self.waiting_runs += 1
        self.waiting_events += entry.events
        heapq.heappush(self._waiting, entry.first_seq)
        if len(self._arrivals) > 2 * self.waiting_runs + _STALE_MOST:
            self._arrivals = [each for each in self._arrivals if self._waits(each[1])]
            heapq.heapify(self._arrivals)
        heapq.heappush(self._arrivals, (entry.held_run.arrival_s, entry.first_seq))

    def next_waiting(self) -> RunEntry[R] | None:
        """Return the waiting run with the lowest seq, without taking it."""
        while self._waiting:
            entry = self.entries.get(self._waiting[0])
            if entry is not None and entry.state is RunState.WAITING:
                return entry
            heapq.heappop(self._waiting)
        return None

    def open(self, entry: RunEntry[R], lane: str) -> None:
        """Note that the waiting run with the lowest seq goes to a lane."""
        assert self._waiting[0] == entry.first_seq, f"run {entry.first_seq} is not the lowest that waits"
        heapq.heappop(self._waiting)
        self._stop_waiting(entry)
        entry.state, entry.lane = RunState.OPEN, lane
        entry.attempt += 1

    def _stop_waiting(self, entry: RunEntry[R]) -> None:
        self.waiting_runs -= 1
        self.waiting_events -= entry.events

    @property
    def oldest_waiting_s(self) -> float | None:
        """The earliest arrival of a run that waits."""
        while self._arrivals and not self._waits(self._arrivals[0][1]):
            heapq.heappop(self._arrivals)
        return self._arrivals[0][0] if self._arrivals else None

    # ------------------------------------------------------------------------------------------------------ answered

    def asked(self, lane: str, first_seq: int, last_seq: int) -> list[RunEntry[R]]:
        """Return the runs that make up this range and were all dispatched to this lane; none if they do not."""
        entries: list[RunEntry[R]] = []
        at_seq = first_seq
        while at_seq <= last_seq:
            entry = self.entries.get(at_seq)
            if entry is None or lane not in entry.copies:
                return []
            entries.append(entry)
            at_seq = entry.last_seq + 1
        return entries if at_seq == last_seq + 1 else []

    def complete(self, entry: RunEntry[R]) -> R:
        """Note that a run is answered; return the caller's run, which is not kept."""
        if entry.state is RunState.WAITING:
            self._stop_waiting(entry)
        run, entry.run = entry.held_run, None
        entry.lane = entry.counted_in = None
        entry.copies.clear()
        if entry.done_before:
            del self.entries[entry.first_seq]
        else:
            entry.state = RunState.HELD
            self.done.add(entry.first_seq, entry.last_seq)
        return run

    def between(self, first_seq: int, last_seq: int) -> list[RunEntry[R]]:
        """Return the consecutive runs that make up this range."""
        entries: list[RunEntry[R]] = []
        while first_seq <= last_seq:
            entries.append(self.entries[first_seq])
            first_seq = entries[-1].last_seq + 1
        return entries

    def forget(self, first_seq: int, last_seq: int) -> None:
        """Remove the runs of this range, which are committed."""
        for entry in self.between(first_seq, last_seq):
            del self.entries[entry.first_seq]

    def at(self, seq: int) -> RunEntry[R] | None:
        """Return the run that contains this seq."""
        return next((e for e in self.entries.values() if e.first_seq <= seq <= e.last_seq), None)

    def was_logged(self, seq: int) -> bool:
        """Return whether a run with this seq was ever logged here, or committed before."""
        return self._logged.covers(seq, seq) or self.done.covers(seq, seq)

    def validate(self) -> None:
        """Assert that the counters are correct, and that each run is where its state says."""
        waiting = [entry for entry in self.entries.values() if entry.state is RunState.WAITING]
        counted, summed = (self.waiting_runs, self.waiting_events), (len(waiting), sum(e.events for e in waiting))
        assert counted == summed, f"{counted} runs and events wait by the counters, {summed} do"
        queued = [first_seq for first_seq in self._waiting if self._waits(first_seq)]
        assert sorted(queued) == sorted(e.first_seq for e in waiting), f"{queued} are queued, {waiting} wait"
        oldest_s = min((entry.held_run.arrival_s for entry in waiting), default=None)
        assert self.oldest_waiting_s == oldest_s, f"the oldest arrival is {oldest_s!r}, not {self.oldest_waiting_s!r}"
        for entry in self.entries.values():
            assert (entry.state is RunState.OPEN) is (entry.lane is not None), f"{entry} is open without a lane"
            undone = entry.state is RunState.WAITING or entry.state is RunState.OPEN
            assert undone is (entry.run is not None), f"{entry} keeps its input, or lost it too early"
            done = self.done.covers(entry.first_seq, entry.last_seq)
            assert done is (not undone or entry.done_before), f"{entry} is done and undone"
            assert undone or not entry.copies, f"{entry} is done, and a lane is asked for it"
            assert entry.state is RunState.WAITING or entry.move is None, f"{entry} moves, and does not wait"

    def _waits(self, first_seq: int) -> bool:
        entry = self.entries.get(first_seq)
        return entry is not None and entry.state is RunState.WAITING
