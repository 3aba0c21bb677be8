"""P_c: which event closes each open selection, for whole runs at a time (Mayer et al., section IV-B and Figure 2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from policies.arrays import BoolArray, IntArray
from policies.selections.streamtime import Int64Array


class Closes(NamedTuple):
    """For each selection, shape (selections,); positions are rows of the run, and beyond its end if nothing closes it.

    Attributes:
        at: the row of the event that closes it.
        end: the row after its last event; ``at`` if the closing event is no part of it, else ``at + 1``.
        bounded: whether only ``ClosingRule.most_events`` ended it.
    """

    at: IntArray
    end: IntArray
    bounded: BoolArray


class Keys(NamedTuple):
    """Of a closing condition that holds only for selections with the same key: numbers that stand for the keys.

    Attributes:
        opened: of each opening event, shape (selections,); negative if it has none.
        events: of each event of the run, shape (events,); negative if it has none.
    """

    opened: Int64Array
    events: Int64Array


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosingRule:
    """When a selection ends: with the first event for which one of these holds.

    Attributes:
        after_ms: it comes more than this after the opening event (Figure 2, line 11); it is no part of the selection.
        events: it is the n-th event, the opening one included.
        on_match: it comes after the opening event, and meets the pattern's closing condition; it is part of the
            selection.
        most_events: the bound: a selection that has so many events ends, whatever the others say.

    Raises:
        ValueError: a number is not above zero, or nothing but the bound would end a selection.
    """

    after_ms: int | None = None
    events: int | None = None
    on_match: bool = False
    most_events: int = 1_000_000

    def __post_init__(self) -> None:
        if self.after_ms is None and self.events is None and not self.on_match:
            raise ValueError("a selection needs an end: a time, a number of events, or a condition")
        if any(number is not None and number <= 0 for number in (self.after_ms, self.events, self.most_events)):
            raise ValueError(f"the end of a selection must be above zero: {self}")

    def closes(
        self,
        opened: Int64Array,
        opened_ms: Int64Array,
        times_ms: Int64Array,
        ends: BoolArray | None,
        keys: Keys | None = None,
    ) -> Closes:
        """Return where the selections end.

        Args:
            opened: the row of each opening event, shape (selections,); negative if it came in an earlier run.
            opened_ms: the stream's time at it, shape (selections,).
            times_ms: the stream's time at each event of the run, shape (events,).
            ends: whether each event meets the closing condition, shape (events,); None if there is none.
            keys: an event that meets it closes only selections with the same key; None: it closes all.

        Raises:
            ValueError: ``on_match`` is set, and there is no condition.
        """
        if self.on_match and ends is None:
            raise ValueError("a pattern needs to know which events meet its closing condition")
        count = len(times_ms)
        beyond = np.full(len(opened), count, dtype=np.intp)
        by_count = opened + self.events - 1 if self.events is not None else beyond
        by_match = beyond
        if ends is not None and self.on_match:
            by_match = _next(ends, opened, count) if keys is None else _next_of_key(ends, opened, keys, count)
        by_time = beyond
        if self.after_ms is not None:
            by_time = np.searchsorted(times_ms, opened_ms + self.after_ms, side="right")
        inside = np.minimum(by_count, by_match)
        bound = opened + self.most_events - 1
        at = np.minimum(np.minimum(inside, by_time), bound)
        # An event that is too late is no part of the selection, whatever else it would do to it.
        end = np.where(by_time <= at, at, at + 1)
        return Closes(at, end, (bound < inside) & (bound < by_time))


def _next(ends: BoolArray, opened: Int64Array, beyond: int) -> IntArray:
    """Return the first row after each opening event that meets the closing condition."""
    rows = np.append(np.flatnonzero(ends), beyond)
    found: IntArray = rows[np.searchsorted(rows[:-1], opened, side="right")]
    return found


def _next_of_key(ends: BoolArray, opened: Int64Array, keys: Keys, beyond: int) -> IntArray:
    """Return the same as ``_next``, but only of rows with the key of the opening event."""
    rows = np.flatnonzero(ends & (keys.events >= 0))
    # One number for key and row, so that the next row of a key is the next number.
    numbers = np.sort(keys.events[rows] * beyond + rows)
    wanted = keys.opened * beyond + np.maximum(opened, -1) + 1
    # The row after the last one is the first of the next key.
    at = np.searchsorted(numbers, wanted)
    found = np.append(numbers, -1)[at]
    is_same = (found >= 0) & (found // max(beyond, 1) == keys.opened)
    return np.where(is_same, found - keys.opened * beyond, beyond)
