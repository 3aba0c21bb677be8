"""Sets of sequence numbers kept as few closed intervals: a watermark and its holes."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator

Interval = tuple[int, int]


class IntervalSet:
    """A set of integers stored as disjoint, non-adjacent closed intervals in ascending order.

    Size grows with the number of holes, not of members.
    """

    def __init__(self, intervals: Iterable[Interval] = ()) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        for first, last in intervals:
            self.add(first, last)

    def add(self, first: int, last: int) -> None:
        """Add every number from ``first`` to ``last``; numbers that are in the set already stay."""
        if last < first:
            raise ValueError(f"interval [{first}, {last}] ends before it starts")
        if not self._ends or first > self._ends[-1] + 1:
            self._starts.append(first)
            self._ends.append(last)
            return
        if first > self._ends[-1]:
            self._ends[-1] = last
            return
        left = bisect_right(self._ends, first - 2)
        right = bisect_right(self._starts, last + 1)
        if left < right:
            first = min(first, self._starts[left])
            last = max(last, self._ends[right - 1])
        self._starts[left:right] = [first]
        self._ends[left:right] = [last]

    def covers(self, first: int, last: int) -> bool:
        """Return whether every number from ``first`` to ``last`` is in."""
        at = bisect_right(self._starts, first) - 1
        return at >= 0 and self._ends[at] >= last

    def overlaps(self, first: int, last: int) -> bool:
        """Return whether any number from ``first`` to ``last`` is in."""
        at = bisect_right(self._starts, last) - 1
        return at >= 0 and self._ends[at] >= first

    def watermark(self, start: int = 0) -> int:
        """Return the first number from ``start`` on that is not in."""
        at = bisect_right(self._starts, start) - 1
        return self._ends[at] + 1 if at >= 0 and self._ends[at] >= start else start

    def __iter__(self) -> Iterator[Interval]:
        return iter(list(zip(self._starts, self._ends, strict=True)))

    def __len__(self) -> int:
        """Return the number of intervals (not of members)."""
        return len(self._starts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IntervalSet) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # mutable

    def __repr__(self) -> str:
        return f"IntervalSet({list(self)})"
