"""Finds the rows that make a micro-batch fail over state. Pure: the function that tries rows is an argument."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice

from engines.isolation.isolate import (
    OUT_OF_MEMORY,
    OUT_OF_MEMORY_MOST,
    WINDOW_ROWS,
    BrokenError,
    OutOfMemoryRowsError,
    TooManyBadError,
)

TryRows = Callable[[Sequence[int]], str]
"""Tries a micro-batch of some rows, in order, over the state before it; returns why it fails, or nothing."""


def rows_at_fault(count: int, try_rows: TryRows, known: dict[int, str], most_bad: int = 0) -> dict[int, str]:
    """Return the rows without which the micro-batch passes, in order, each with its reason.

    A row is at fault if it fails alone (``known``), or if the good rows before it pass and fail together with it. So a
    row that only fails because of the state that earlier rows made is found too. Each such row takes about
    ``log2(count) + 2`` tries. The last of them repeats a failure: one that does not recur is no row's fault.

    Args:
        count: how many rows the micro-batch has.
        try_rows: tries some of them.
        known: rows that fail alone, whatever the state is, and their reasons.
        most_bad: fail as soon as more rows than this are at fault among 1,000 consecutive ones; 0 allows all.

    Raises:
        BrokenError: it fails even without rows.
        TooManyBadError: more than ``most_bad`` rows are at fault.
        OutOfMemoryRowsError: more than ``OUT_OF_MEMORY_MOST`` rows exhaust the host's memory.
    """
    bad = dict(known)
    good = -1
    while True:
        _check_number(bad, most_bad)
        left = [row for row in range(count) if row not in bad]
        if good == len(left) or not try_rows(left):
            return dict(sorted(bad.items()))
        good = _passing(left, good, try_rows)
        reason = try_rows(left[: good + 1])
        if not reason:
            good = min(good + 1, len(left) - 1)
        elif good < 0:
            raise BrokenError(f"it fails even without rows: {reason}")
        else:
            bad[left[good]] = reason


def _passing(left: Sequence[int], good: int, try_rows: TryRows) -> int:
    """Return how many rows pass and fail with the next one; ``good`` rows are known to pass; -1: not even none do."""
    end = len(left)
    while end - good > 1:
        middle = (good + end) // 2
        if try_rows(left[:middle]):
            end = middle
        else:
            good = middle
    return good


def _check_number(bad: dict[int, str], most_bad: int) -> None:
    rows = sorted(bad)
    if most_bad and any(
        last - first < WINDOW_ROWS for first, last in zip(rows, islice(rows, most_bad, None), strict=False)
    ):
        raise TooManyBadError(bad[rows[0]])
    exhausting = [bad[row] for row in rows if bad[row].startswith(OUT_OF_MEMORY)]
    if len(exhausting) > OUT_OF_MEMORY_MOST:
        raise OutOfMemoryRowsError(exhausting[0])
