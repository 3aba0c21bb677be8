"""Which run of a query with selections tells why an event has no result: the first that has it among its rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from policies.arrays import BoolArray
from policies.selections.streamtime import Int64Array

Gap = tuple[int, int]


class Reported(NamedTuple):
    """The events that runs had among their rows so far.

    Attributes:
        before: no run had this event or a later one.
        gaps: first and last seq of earlier events that no run had, and that an open selection may have.
    """

    before: int = 0
    gaps: tuple[Gap, ...] = ()

    def fresh(self, seqs: Int64Array) -> BoolArray:
        """Return which of these events no run had, shape (events,); they ascend."""
        found = seqs >= self.before
        for first, last in self.gaps:
            found |= (seqs >= first) & (seqs <= last)
        return found

    def after(self, seqs: Int64Array, needed_from: int) -> Reported:
        """Return what is reported after a run.

        Args:
            seqs: the events of its rows, ascending, shape (rows,).
            needed_from: the first event that an open selection has.
        """
        before = max(self.before, int(seqs[-1]) + 1) if len(seqs) else self.before
        gaps = [*self.gaps, (self.before, before - 1)]
        left = [np.arange(max(first, needed_from), last + 1) for first, last in gaps]
        return Reported(before, _ranges(np.setdiff1d(np.concatenate(left), seqs, assume_unique=True)))


def _ranges(numbers: Int64Array) -> tuple[Gap, ...]:
    """Return the ranges of consecutive numbers; they ascend."""
    borders: Sequence[Int64Array] = np.split(numbers, np.flatnonzero(np.diff(numbers) != 1) + 1)
    return tuple((int(each[0]), int(each[-1])) for each in borders if len(each))
