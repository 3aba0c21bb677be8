"""The splitter of an operator over selections: finds where each begins and ends, a whole run at a time."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from policies.arrays import BoolArray, IntArray
from policies.selections.closing import Closes, ClosingRule, Keys
from policies.selections.opening import OpeningRule
from policies.selections.streamtime import Int64Array, stream_times


class ClosedSelections(NamedTuple):
    """The selections that a run has closed, in order of their closing events; those of one event in order of opening.

    Attributes:
        selection: their numbers, counted from 0 in this order, shape (closed,).
        first: the number of each one's first event, shape (closed,).
        end: the number after its last event, shape (closed,).
        bounded: whether only the bound on its events ended it, shape (closed,).
        dropped: the number of the first event of each selection that ended without a number, because too many were
            open, shape (dropped,): cases for the dead letters.
    """

    selection: Int64Array
    first: Int64Array
    end: Int64Array
    bounded: BoolArray
    dropped: Int64Array


class OpenSelections(NamedTuple):
    """The selections that are open, oldest first; each array has the shape (open,).

    Attributes:
        first: the number of the opening event.
        opened_ms: the stream's time at it.
        key: its key, if there are keys; else -1.
    """

    first: Int64Array
    opened_ms: Int64Array
    key: Int64Array


class SplitterMark(NamedTuple):
    """Where a splitter may begin again: it opens the same selections from there on.

    Attributes:
        event: the number of the next event.
        selection: the number of the next selection that closes.
        before_ms: the stream's time at the event before; None before the first event.
        blocked_by: of a splitter whose selections are disjoint, the first event of the one that is open, and the
            stream's time at it; None if none is open.
    """

    event: int = 0
    selection: int = 0
    before_ms: int | None = None
    blocked_by: tuple[int, int] | None = None


_START = SplitterMark()


_NONE = np.zeros(0, dtype=np.int64)
_NO_KEY = -1


class SelectionSplitter:
    """Evaluates P_s and P_c. Its state is one row for each open selection, so memory is linear in these.

    A selection is a range of events, since all events between its first and its last are part of it (section IV-B).

    Args:
        opening: P_s.
        closing: P_c.
        most_open: at most so many selections may be open after a run; those that opened first are dropped.
        begin: where it begins.
        disjoint: no selection opens while another one is open (restricted consumption): an event is part of one at
            most.

    Attributes:
        open: the open selections.
        next_event: the number of the next event.
        next_selection: the number of the next selection that closes.
    """

    def __init__(
        self,
        opening: OpeningRule,
        closing: ClosingRule,
        most_open: int = 1_000_000,
        begin: SplitterMark = _START,
        *,
        disjoint: bool = False,
    ) -> None:
        self._opening = opening
        self._disjoint = disjoint
        self._closing = closing
        self._most_open = most_open
        self.next_event, self.next_selection, self._before_ms, blocked_by = begin
        self.open = OpenSelections(_NONE, _NONE, _NONE)
        # It was open where the splitter began, and is not returned when it closes.
        self._earlier = -1 if blocked_by is None else blocked_by[0]
        if blocked_by is not None:
            self.open = OpenSelections(*(np.array([each], dtype=np.int64) for each in (*blocked_by, _NO_KEY)))

    @property
    def mark(self) -> SplitterMark:
        """Where the next run begins. A splitter that begins there returns none of the selections that are open now."""
        is_blocked = self._disjoint and len(self.open.first) > 0
        blocked_by = (int(self.open.first[0]), int(self.open.opened_ms[0])) if is_blocked else None
        return SplitterMark(self.next_event, self.next_selection, self._before_ms, blocked_by)

    @property
    def needed_from(self) -> int:
        """The number of the first event that an open selection has; the next event's if none is open."""
        return int(self.open.first[0]) if len(self.open.first) else self.next_event

    def split(
        self,
        times_ms: Int64Array,
        matches: BoolArray | None = None,
        ends: BoolArray | None = None,
        keys: Int64Array | None = None,
    ) -> ClosedSelections:
        """Return the selections that a run closes.

        Args:
            times_ms: of the run's events in order of seq, shape (events,).
            matches: which events meet the opening condition, shape (events,); None if there is none.
            ends: which events meet the closing condition, shape (events,); None if there is none.
            keys: their keys, shape (events,), negative for none: an event that meets the closing condition closes
                only selections that an event with its key opened. None: it closes all.
        """
        count, now_ms = len(times_ms), stream_times(times_ms, self._before_ms)
        rows = np.flatnonzero(self._opening.opens(now_ms, self._before_ms, self.next_event, matches))
        if self._disjoint:
            rows = self._apart(rows, now_ms, ends)
        known = self._with(rows, now_ms, keys)
        own = None if keys is None else Keys(known.key, keys)
        found = self._closing.closes(known.first - self.next_event, known.opened_ms, now_ms, ends, own)
        is_open = found.at >= count
        left = np.flatnonzero(is_open)
        too_many = max(0, len(left) - self._most_open)
        returned = np.flatnonzero(~is_open & (known.first != self._earlier))
        returned = returned[np.argsort(found.at[returned], kind="stable")]
        numbers = self.next_selection + np.arange(len(returned), dtype=np.int64)
        ends_before = self.next_event + found.end[returned]
        self.open = OpenSelections(*(each[left[too_many:]] for each in known))
        self.next_event += count
        self.next_selection += len(returned)
        if count:
            self._before_ms = int(now_ms[-1])
        return ClosedSelections(
            numbers, known.first[returned], ends_before, found.bounded[returned], known.first[left[:too_many]]
        )

    def _with(self, rows: IntArray, now_ms: Int64Array, keys: Int64Array | None) -> OpenSelections:
        """Return the open selections and those that these rows open."""
        key = np.full(len(rows), _NO_KEY, dtype=np.int64) if keys is None else keys[rows]
        added = (self.next_event + rows, now_ms[rows], key)
        return OpenSelections(*(np.concatenate(pair) for pair in zip(self.open, added, strict=True)))

    def renumbered(self, closed: ClosedSelections, following: int) -> ClosedSelections:
        """Return what the last run has closed, with other numbers: the next one is then ``following``."""
        self.next_selection = following
        count = len(closed.selection)
        return closed._replace(selection=np.arange(following - count, following, dtype=np.int64))

    def _apart(self, rows: IntArray, now_ms: Int64Array, ends: BoolArray | None) -> IntArray:
        """Return those rows that open a selection when none is open."""
        count, first = len(now_ms), self.open.first - self.next_event
        before = self._closing.closes(first, self.open.opened_ms, now_ms, ends)
        free_from = _free(before, -1, count) if len(first) else 0
        found = self._closing.closes(rows, now_ms[rows], now_ms, ends)
        chosen = list[int]()
        at = int(np.searchsorted(rows, free_from))
        while at < len(rows):
            chosen.append(at)
            at = int(np.searchsorted(rows, _free(found, at, count)))
        return rows[chosen]


def _free(closes: Closes, index: int, count: int) -> int:
    """Return the first row that is no part of a selection; beyond the run if nothing in it closes the selection."""
    return int(closes.end[index]) if closes.at[index] < count else count


def needed(closed: ClosedSelections, first: int, count: int) -> BoolArray:
    """Return which of ``count`` events from number ``first`` on belong to any of these selections, shape (count,).

    Events that a run of a lane has are sent once, however many of its selections have them.
    """
    changes = np.zeros(count + 1, dtype=np.int64)
    np.add.at(changes, np.clip(closed.first - first, 0, count), 1)
    np.add.at(changes, np.clip(closed.end - first, 0, count), -1)
    return np.asarray(np.cumsum(changes[:-1]) > 0, dtype=np.bool_)
