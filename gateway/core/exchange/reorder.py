"""Puts completions back in the order of their seq, without waiting for ever for a missing one.

It works on answers, not on events. ESM (section 6) flushes a buffer periodically; here each gap has its own deadline.
The reorderer waits for it at most ``flush_s`` from the first later completion. Then it releases the later ones; the
missing one is released, marked late, when it comes.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from dataclasses import dataclass
from typing import Generic, TypeVar

from gateway.core.intervals import IntervalSet

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Released(Generic[T]):
    """One completion that may go to the sink now; ``late`` marks one that comes after later ones."""

    first_seq: int
    last_seq: int
    item: T
    late: bool


class Reorderer(Generic[T]):
    """The reorder buffer of one query. The times of its calls must not decrease.

    Args:
        flush_s: how long to wait for a gap; None waits for ever (strict order).
        ordered: False releases everything on completion.
        released: everything that was released before (by an earlier gateway).
    """

    def __init__(self, *, flush_s: float | None, ordered: bool = True, released: IntervalSet | None = None) -> None:
        self._flush_s = flush_s
        self._ordered = ordered
        self._released = IntervalSet(released or ())
        self._held: list[tuple[int, int, T]] = []
        # Since when each is held, the longest first.
        self._since_s: OrderedDict[int, float] = OrderedDict()
        self._next_seq = self._released.watermark()
        self._horizon = max((last + 1 for _, last in self._released), default=0)
        self.late_count = 0

    @property
    def next_seq(self) -> int:
        """The first seq of the gap that is waited for."""
        return self._next_seq

    @property
    def held_count(self) -> int:
        """How many completions wait for an earlier one."""
        return len(self._held)

    @property
    def held(self) -> list[tuple[int, int, T]]:
        """The completions that wait for an earlier one: (first seq, last seq, item), in no order."""
        return list(self._held)

    @property
    def held_since_s(self) -> float | None:
        """Since when the completion is held that has waited longest; None if none is held."""
        return next(iter(self._since_s.values()), None)

    def complete(self, first_seq: int, last_seq: int, item: T, now_s: float) -> list[Released[T]]:
        """Add a completion and return what may be released because of it, in order.

        Raises:
            ValueError: some of these seqs came before; the caller must drop duplicates first.
        """
        if self._released.overlaps(first_seq, last_seq) or first_seq in self._since_s:
            raise ValueError(f"run {first_seq}-{last_seq} was released before, or is held")
        if not self._ordered:
            return [self._release(first_seq, last_seq, item, late=False)]
        if first_seq < self._next_seq:
            return [self._release(first_seq, last_seq, item, late=True)]
        # No two have the same first seq, so items are never compared.
        heapq.heappush(self._held, (first_seq, last_seq, item))
        self._since_s[first_seq] = now_s
        return self._drain()

    def flush(self, now_s: float) -> list[Released[T]]:
        """Return the completions whose gap has been waited for long enough."""
        out: list[Released[T]] = []
        while (deadline := self.next_deadline_s()) is not None and deadline <= now_s:
            self._next_seq = self._held[0][0]
            out += self._drain()
        return out

    def next_deadline_s(self) -> float | None:
        """Return the latest time at which ``flush`` has something to do; None if nothing is held or order is strict."""
        if self._flush_s is None or not self._held:
            return None
        return next(iter(self._since_s.values())) + self._flush_s

    def _drain(self) -> list[Released[T]]:
        out: list[Released[T]] = []
        while self._held and self._held[0][0] == self._next_seq:
            first, last, item = heapq.heappop(self._held)
            del self._since_s[first]
            out.append(self._release(first, last, item, late=first < self._horizon))
        return out

    def _release(self, first_seq: int, last_seq: int, item: T, *, late: bool) -> Released[T]:
        self._released.add(first_seq, last_seq)
        self._horizon = max(self._horizon, last_seq + 1)
        self._next_seq = self._released.watermark(self._next_seq)
        self.late_count += late
        return Released(first_seq, last_seq, item, late=late)
