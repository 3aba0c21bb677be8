"""Finds the rows that make a query fail. Pure: the function that evaluates slices of rows is an argument."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

Span = tuple[int, int]
"""Consecutive rows, the end exclusive."""

JudgeSpans = Callable[[Sequence[Span]], Sequence[str]]
"""Returns for each span why the query fails over it; an empty text where it does not."""

SIZES = (32, 4, 1)
"""Rows in a span: a slice that fails is cut into smaller ones (measured, see docs/decisions/0079)."""

JOB_SPANS = 200
"""Spans evaluated at a time: after each such job the search may stop."""

WINDOW_ROWS = 1000
"""``most_bad`` counts within this many consecutive rows."""


class BrokenError(Exception):
    """The query is at fault, not single rows; the message gives the evidence."""


class TooManyBadError(Exception):
    """More rows fail than are allowed; the message is the reason of the first."""


def isolate(count: int, judge: JudgeSpans, most_bad: int = 0) -> dict[int, str]:
    """Return the rows that fail alone, in order, each with its reason.

    Each of these rows was evaluated alone. All rows of a slice that passes are good, so when few rows fail, few are
    evaluated alone. Where most slices fail, all their rows are evaluated alone at once.

    Args:
        count: how many rows there are.
        judge: evaluates at most ``JOB_SPANS`` spans at a time.
        most_bad: as soon as more rows than this fail among ``WINDOW_ROWS`` consecutive ones, the search stops; 0:
            never.

    Raises:
        TooManyBadError: more than ``most_bad`` fail.
    """
    spans: list[Span] = [(0, count)] if count else []
    sizes = list(SIZES)
    while sizes[0] > 1:
        cut = _cut(spans, sizes.pop(0))
        spans = [span for part in _jobs(cut) for span, reason in zip(part, judge(part), strict=True) if reason]
        if 2 * len(spans) > len(cut):
            sizes = [1]
    bad: dict[int, str] = {}
    recent: deque[int] = deque()
    for part in _jobs(_cut(spans, 1)):
        for (row, _), reason in zip(part, judge(part), strict=True):
            if reason:
                bad[row] = reason
                recent.append(row)
            while recent and recent[0] <= row - WINDOW_ROWS:
                recent.popleft()
            if 0 < most_bad < len(recent):
                raise TooManyBadError(next(iter(bad.values())))
    return bad


def _cut(spans: Sequence[Span], size: int) -> list[Span]:
    return [(at, min(at + size, end)) for first, end in spans for at in range(first, end, size)]


def _jobs(spans: Sequence[Span]) -> list[Sequence[Span]]:
    return [spans[at : at + JOB_SPANS] for at in range(0, len(spans), JOB_SPANS)]
