"""Events in no lane yet, of many queries: how many, in how many runs, from which slots; first in, first out."""

from __future__ import annotations

import numpy as np

from policies.arrays import Array, BoolArray, IntArray

_FIRST_ROWS = 64
_NOTHING = 1e-9
MOST_BYTES = 768 * 2**20
"""The limit of the history. Events that have waited for longer count as from its beginning."""


def _grown(ring: Array, slots: IntArray) -> Array:
    """Return a ring twice as long with the same content in these slots."""
    rows, queries = ring.shape
    grown = np.zeros((2 * rows, queries))
    grown[slots % (2 * rows)] = ring[slots % rows]
    return grown


class WaitingEvents:
    """Queues of fluid, one for each query: a ring of slots, as long as the oldest event needs.

    Args:
        queries: how many.
        slot_s: length of a slot.
        most_bytes: limit of the ring's memory.

    Attributes:
        events: how many wait, shape (queries,).
        runs: their runs.
        oldest: the slot of the oldest event, shape (queries,); the next slot if none waits.
    """

    def __init__(self, queries: int, slot_s: float, most_bytes: int = MOST_BYTES) -> None:
        self.events: Array = np.zeros(queries)
        self.runs: Array = np.zeros(queries)
        self.oldest: IntArray = np.zeros(queries, dtype=np.intp)
        self._slot_s = slot_s
        # Two rings; during the doubling of one, the old one exists beside the new one.
        self._most_rows = max(2, most_bytes // (20 * queries))
        self._ring: Array = np.zeros((min(_FIRST_ROWS, self._most_rows), queries))
        self._run_ring: Array = np.zeros(self._ring.shape)
        self._now = -1

    def add(self, now: int, events: Array, runs: Array) -> None:
        """Add events of slot ``now``, the one after the last, in this many runs."""
        self._now = now
        self._make_room(now)
        self._ring[now % len(self._ring)] = events
        self._run_ring[now % len(self._ring)] = runs
        self.events += events
        self.runs += runs

    def _make_room(self, now: int) -> None:
        rows = len(self._ring)
        if now - int(np.minimum.reduce(self.oldest)) < rows:
            return
        if 2 * rows <= self._most_rows:
            slots = np.arange(max(0, now - rows), now)
            self._ring, self._run_ring = (_grown(ring, slots) for ring in (self._ring, self._run_ring))
            return
        old = np.flatnonzero(self.oldest == now - rows)
        for ring in (self._ring, self._run_ring):
            ring[(now - rows + 1) % rows, old] += ring[(now - rows) % rows, old]
        self.oldest[old] += 1

    def ahead(self, events: Array) -> Array:
        """Return the number of runs of each query's next ``events``, or of all that wait if these are fewer."""
        at = self._now % len(self._ring)
        row: Array = self._ring[at]
        run_row: Array = self._run_ring[at]
        old = (self.oldest < self._now).nonzero()[0]
        if events is self.events and not len(old):
            return run_row
        runs: Array = run_row * np.minimum(1.0, events / np.maximum(row, _NOTHING))
        if len(old):
            runs[old] = 0.0
            self._look_ahead(old, events, runs)
        return runs

    def _look_ahead(self, at: IntArray, events: Array, runs: Array) -> None:
        rows, queries = self._ring.shape
        ring, run_ring = self._ring.reshape(-1), self._run_ring.reshape(-1)
        slots, wanted = self.oldest[at], np.minimum(events[at], self.events[at])
        while len(at):
            place = slots % rows * queries + at
            here = ring[place]
            got = np.minimum(here, wanted)
            runs[at] += run_ring[place] * (got / np.maximum(here, _NOTHING))
            more = ((wanted > here) & (slots < self._now)).nonzero()[0]
            if not len(more):
                return
            at, slots, wanted = at[more], slots[more] + 1, (wanted - got)[more]

    def take(self, events: Array) -> tuple[Array, Array, Array]:
        """Take this many of each query's oldest events, at most those that wait.

        Returns:
            Their mean arrival, their first arrival, and their number of runs, each of shape (queries,); events of a
            slot count as evenly spread over it. The end of the slot if none is taken.
        """
        now, s = self._now, self._slot_s
        old = (self.oldest < now).nonzero()[0]
        if not len(old) and np.array_equal(events, self.events):
            runs = self.runs.copy()
            self._forget_all()
            some = events > 0
            return np.where(some, (now + 0.5) * s, (now + 1) * s), np.where(some, now * s, (now + 1) * s), runs
        some = events > 0
        first_s = np.where(some, self.oldest * s, (now + 1) * s)
        mean_s = np.where(some, (now + 0.5) * s, (now + 1) * s)
        row, run_row = (ring[now % len(self._ring)] for ring in (self._ring, self._run_ring))
        self.events -= events
        before, runs_before = row[old], run_row[old]
        runs = run_row * (events / np.maximum(row, _NOTHING))
        row -= events
        run_row -= runs
        if len(old):
            row[old], run_row[old] = before, runs_before
            self._take_old(old, events, mean_s, runs)
        self.runs -= runs
        self._forget(self.events <= _NOTHING)
        return mean_s, first_s, runs

    def _forget(self, empty: BoolArray) -> None:
        """Let no rounding be left of queries of which nothing waits."""
        at = self._now % len(self._ring)
        for values in (self._ring[at], self._run_ring[at], self.events, self.runs):
            np.copyto(values, 0.0, where=empty)
        np.copyto(self.oldest, self._now + 1, where=empty)

    def _forget_all(self) -> None:
        at = self._now % len(self._ring)
        for values in (self._ring[at], self._run_ring[at], self.events, self.runs):
            values.fill(0.0)
        self.oldest.fill(self._now + 1)

    def _take_old(self, old: IntArray, events: Array, mean_s: Array, runs: Array) -> None:
        """Take from slots before this one, a slot of each query at a time."""
        rows, queries = self._ring.shape
        ring, run_ring = self._ring.reshape(-1), self._run_ring.reshape(-1)
        came, at = np.zeros(queries), old
        slots, wanted = self.oldest[old], events[old]
        runs[old] = 0.0
        while len(at):
            place = slots % rows * queries + at
            here, runs_here = ring[place], run_ring[place]
            got = np.minimum(here, wanted)
            left, runs_got = here - got, runs_here * (got / np.maximum(here, _NOTHING))
            came[at] += got * (slots + 0.5)
            runs[at] += runs_got
            ring[place], run_ring[place] = left, runs_here - runs_got
            over = ((left <= _NOTHING) & (slots < self._now)).nonzero()[0]
            if not len(over):
                break
            ring[place[over]] = run_ring[place[over]] = 0.0
            at, slots, wanted = at[over], slots[over] + 1, (wanted - got)[over]
            self.oldest[at] = slots
        taken = old[events[old] > 0]
        mean_s[taken] = came[taken] / events[taken] * self._slot_s

    def put_back(self, rows: IntArray, events: Array, runs: Array, came_s: Array) -> None:
        """Let events wait again that arrived on average at ``came_s``; between two slots only.

        Args:
            rows: their queries, each once.
            events: how many, shape (rows,).
            runs: in how many runs, shape (rows,).
            came_s: their mean arrival, shape (rows,).
        """
        ring_rows = len(self._ring)
        slots = np.clip((came_s / self._slot_s).astype(np.intp), max(0, self._now - ring_rows + 1), self._now)
        some = events > 0
        rows, slots, events, runs = rows[some], slots[some], events[some], runs[some]
        self._ring[slots % ring_rows, rows] += events
        self._run_ring[slots % ring_rows, rows] += runs
        self.events[rows] += events
        self.runs[rows] += runs
        self.oldest[rows] = np.minimum(self.oldest[rows], slots)

    def since_s(self, rows: IntArray) -> Array:
        """Return when the oldest event of some queries came, to within half a slot; infinity where none waits."""
        return np.where(self.events[rows] > 0, (self.oldest[rows] + 0.5) * self._slot_s, np.inf)
