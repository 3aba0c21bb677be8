"""The results of one query from answered to committed: held for order, released, counted until they are committed.

The results themselves are kept only while they are held; after their release they belong to the caller.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic

from gateway.core.exchange.events import A
from gateway.core.exchange.reorder import Released, Reorderer
from gateway.core.intervals import IntervalSet


@dataclass(frozen=True, slots=True)
class Outcome(Generic[A]):
    """The results of one answer, and the data that is reported at their release."""

    results: A
    result_bytes: int
    events: int
    arrival_s: float


class Outbox(Generic[A]):
    """The results that are not committed yet.

    Args:
        reorderer: puts them in order.
        held_bytes_max: with at least so many bytes, only runs are dispatched that results wait for.

    Attributes:
        held_bytes: bytes of results from answered to committed.
        bound_bytes: a second such limit, which changes with the memory that other queries leave.
    """

    def __init__(self, reorderer: Reorderer[Outcome[A]], held_bytes_max: int) -> None:
        self._reorderer = reorderer
        self._held_bytes_max = held_bytes_max
        self.held_bytes = 0
        self.bound_bytes = held_bytes_max
        self._uncommitted: dict[int, tuple[int, int]] = {}

    def takes(self, first_seq: int) -> bool:
        """Return whether a run may be dispatched: when full, only one that is late, or that held results wait for."""
        next_seq = self._reorderer.next_seq
        if not self.is_full or first_seq < next_seq:
            return True
        return first_seq == next_seq and self._reorderer.held_count > 0

    @property
    def is_full(self) -> bool:
        """Whether only runs are dispatched that results wait for."""
        return self.held_bytes >= min(self._held_bytes_max, self.bound_bytes)

    @property
    def waits_for_seq(self) -> int:
        """The first seq that held results wait for."""
        return self._reorderer.next_seq

    def held_for_s(self, now_s: float) -> float | None:
        """Return how long results have waited for an earlier run; None if none do."""
        since_s = self._reorderer.held_since_s
        return None if since_s is None else now_s - since_s

    def complete(self, first_seq: int, last_seq: int, outcome: Outcome[A], now_s: float) -> list[Released[Outcome[A]]]:
        """Add results that are not a duplicate; return what may be released because of them."""
        self.held_bytes += outcome.result_bytes
        return self._note(self._reorderer.complete(first_seq, last_seq, outcome, now_s))

    def flush(self, now_s: float) -> list[Released[Outcome[A]]]:
        """Return the results whose gap has been waited for long enough."""
        return self._note(self._reorderer.flush(now_s))

    def _note(self, released: list[Released[Outcome[A]]]) -> list[Released[Outcome[A]]]:
        for each in released:
            self._uncommitted[each.first_seq] = (each.last_seq, each.item.result_bytes)
        return released

    def commit(self, ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
        """Note that the sink has these ranges; return the releases that they consist of.

        Raises:
            ValueError: a part of them was not released, or is committed already; then nothing has changed.
        """
        released = [each for first_seq, last_seq in ranges for each in self._releases_in(first_seq, last_seq)]
        if len(set(released)) < len(released):
            raise ValueError(f"{released} are committed, some of them twice")
        for first_seq, _ in released:
            _, result_bytes = self._uncommitted.pop(first_seq)
            self.held_bytes -= result_bytes
        return released

    def _releases_in(self, first_seq: int, last_seq: int) -> list[tuple[int, int]]:
        releases: list[tuple[int, int]] = []
        at_seq = first_seq
        while at_seq <= last_seq and at_seq in self._uncommitted:
            end_seq, _ = self._uncommitted[at_seq]
            releases.append((at_seq, end_seq))
            at_seq = end_seq + 1
        if at_seq != last_seq + 1 or not releases:
            raise ValueError(f"{first_seq}-{last_seq} is committed, but these are not whole uncommitted releases")
        return releases

    @property
    def held_count(self) -> int:
        """Answers that wait for an earlier one."""
        return self._reorderer.held_count

    @property
    def uncommitted_count(self) -> int:
        """Answers that were released, and are not in the sink yet."""
        return len(self._uncommitted)

    @property
    def late_count(self) -> int:
        """Answers that were released after later ones, and marked so."""
        return self._reorderer.late_count

    @property
    def next_deadline_s(self) -> float | None:
        """When held results are released although an earlier one is missing."""
        return self._reorderer.next_deadline_s()

    def validate(self, held: Iterable[tuple[int, int]], released: Iterable[tuple[int, int]]) -> None:
        """Assert that exactly these runs are here, and that everything that could be released was.

        Args:
            held: the ranges of the runs that are held.
            released: the ranges of the runs that are released and not committed.
        """
        kept = self._reorderer.held
        _assert_same(((first, last) for first, last, _ in kept), held)
        _assert_same(((first, last) for first, (last, _) in self._uncommitted.items()), released)
        summed = sum(item.result_bytes for *_, item in kept) + sum(size for _, size in self._uncommitted.values())
        assert self.held_bytes == summed, f"{self.held_bytes} bytes of results are counted, {summed} are here"
        next_seq = self._reorderer.next_seq
        stuck = [first for first, *_ in kept if first <= next_seq]
        assert not stuck, f"{stuck} are held, and {next_seq} is waited for"


def _assert_same(here: Iterable[tuple[int, int]], runs: Iterable[tuple[int, int]]) -> None:
    """Assert that the answers that are here are made of these runs."""
    answered, of_runs = IntervalSet(here), IntervalSet(runs)
    assert answered == of_runs, f"the results of {answered} are here, those of {of_runs} should be"
