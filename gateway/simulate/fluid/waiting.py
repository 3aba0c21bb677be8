"""Events that no lane has yet, of many queries: how many, and from which slots; first come, first out."""

from __future__ import annotations

import numpy as np

from policies.arrays import Array, IntArray

_FIRST_ROWS = 64
_NOTHING = 1e-9
MOST_BYTES = 768 * 2**20
"""Bound of the history. What waits for longer than it reaches back counts as come at its beginning."""


class WaitingEvents:
    """Queues of fluid, one for each query: a ring of slots, as long as the oldest event needs.

    Args:
        queries: how many.
        slot_s: length of a slot.
        most_bytes: bound of the memory for the ring.

    Attributes:
        events: how many wait, shape (queries,).
        oldest: the slot from which the oldest one is, shape (queries,); the next slot where none waits.
    """

    def __init__(self, queries: int, slot_s: float, most_bytes: int = MOST_BYTES) -> None:
        self.events: Array = np.zeros(queries)
        self.oldest: IntArray = np.zeros(queries, dtype=np.intp)
        self._slot_s = slot_s
        # While it is doubled, the old ring stands beside the new one.
        self._most_rows = max(2, most_bytes // (12 * queries))
        self._ring: Array = np.zeros((min(_FIRST_ROWS, self._most_rows), queries))
        self._now = -1

    def add(self, now: int, events: Array) -> None:
        """Let events of slot ``now``, the one after the last, wait."""
        self._now = now
        self._make_room(now)
        self._ring[now % len(self._ring)] = events
        self.events += events

    def _make_room(self, now: int) -> None:
        rows = len(self._ring)
        if now - int(self.oldest.min()) < rows:
            return
        if 2 * rows <= self._most_rows:
            grown = np.zeros((2 * rows, self._ring.shape[1]))
            slots = np.arange(max(0, now - rows), now)
            grown[slots % (2 * rows)] = self._ring[slots % rows]
            self._ring = grown
            return
        old = np.flatnonzero(self.oldest == now - rows)
        self._ring[(now - rows + 1) % rows, old] += self._ring[(now - rows) % rows, old]
        self.oldest[old] += 1

    def take(self, events: Array) -> tuple[Array, Array]:
        """Take so many of each query's oldest events, not more than wait.

        Returns:
            When they came on average, and when the first of them came, each of shape (queries,); events of a slot count
            as come evenly over it. The end of the slot where none is taken.
        """
        now, s = self._now, self._slot_s
        if self.oldest.min() >= now and np.array_equal(events, self.events):
            self._ring[now % len(self._ring)] = 0.0
            self.events[:] = 0.0
            self.oldest[:] = now + 1
            some = events > 0
            return np.where(some, (now + 0.5) * s, (now + 1) * s), np.where(some, now * s, (now + 1) * s)
        first_s = np.where(events > 0, self.oldest * s, (now + 1) * s)
        mean_s = np.where(events > 0, (now + 0.5) * s, (now + 1) * s)
        row = self._ring[now % len(self._ring)]
        self.events -= events
        old = (self.oldest < now).nonzero()[0]
        before = row[old]
        row -= events
        if len(old):
            row[old] = before
            self._take_old(old, events, mean_s)
        empty = self.events <= _NOTHING
        self.events[empty] = 0.0
        row[empty] = 0.0
        self.oldest[empty] = now + 1
        return mean_s, first_s

    def _take_old(self, old: IntArray, events: Array, mean_s: Array) -> None:
        """Take from slots before this one, a slot of each query at a time."""
        ring, rows = self._ring, len(self._ring)
        came, at = np.zeros(len(self.events)), old
        slots, wanted = self.oldest[old], events[old]
        while len(at):
            place = slots % rows, at
            here = ring[place]
            got = np.minimum(here, wanted)
            left = here - got
            came[at] += got * (slots + 0.5)
            over = (left <= _NOTHING) & (slots < self._now)
            ring[place] = np.where(over, 0.0, left)
            at, slots, wanted = at[over], slots[over] + 1, (wanted - got)[over]
            self.oldest[at] = slots
        taken = old[events[old] > 0]
        mean_s[taken] = came[taken] / events[taken] * self._slot_s

    def put_back(self, rows: IntArray, events: Array, came_s: Array) -> None:
        """Let events wait again that came on average at ``came_s``; between two slots only.

        Args:
            rows: of which queries, each once.
            events: how many, shape (rows,).
            came_s: when, shape (rows,).
        """
        ring_rows = len(self._ring)
        slots = np.clip((came_s / self._slot_s).astype(np.intp), max(0, self._now - ring_rows + 1), self._now)
        some = events > 0
        rows, slots, events = rows[some], slots[some], events[some]
        self._ring[slots % ring_rows, rows] += events
        self.events[rows] += events
        self.oldest[rows] = np.minimum(self.oldest[rows], slots)

    @property
    def since_s(self) -> Array:
        """When the oldest event came, to within half a slot; infinity where none waits. Shape (queries,)."""
        return np.where(self.events > 0, (self.oldest + 0.5) * self._slot_s, np.inf)
