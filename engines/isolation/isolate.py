"""Finds the rows that make a query fail. Pure: the function that evaluates slices of rows is an argument."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from infra.badrows import too_many_bad_rows

Span = tuple[int, int]
"""Consecutive rows, the end exclusive."""

JudgeSpans = Callable[[Sequence[Span]], Sequence[str]]
"""Returns for each span why the query fails over it; an empty text where it does not."""

SIZES = (32, 4, 1)
"""Rows in a span: a slice that fails is cut into smaller ones (measured, see docs/decisions/0079)."""

JOB_SPANS = 200
"""Spans evaluated at a time: after each such job the search may stop."""

JOB_SPANS_LEAST = 20
"""Fewer are not worth a job, even if fewer failures would stop the search."""

WINDOW_ROWS = 1000
"""``most_bad`` counts within this many consecutive rows."""

OUT_OF_MEMORY = "java.lang.OutOfMemoryError"
"""The reason why a row fails begins with it if the row needs more memory than the engine host has. Elsewhere in a
reason it may be data: a value that cannot be cast is part of its error."""

OUT_OF_MEMORY_MOST = 3
"""So many rows of a run may exhaust the host's memory. For each, the JVM collects its whole heap twice and drops its
soft references, and all queries on the host wait (measured, see docs/decisions/0097)."""


class BrokenError(Exception):
    """The query is at fault, not single rows; the message gives the evidence."""


class TooManyBadError(Exception):
    """More rows fail than are allowed; the message is the reason of the first."""


class ExhaustedError(Exception):
    """The query exhausted the memory of a host that it shares with others; the message says how."""


class OutOfMemoryRowsError(Exception):
    """More rows exhaust the host's memory than are allowed; the message is the reason of the first."""


def check_memory(reason: str, *, shares_host: bool) -> bool:
    """Return whether an evaluation failed because it exhausted the host's memory.

    Where data only names that error, a query runs alone for a while or is searched more slowly; nothing else changes.

    Raises:
        ExhaustedError: it did, and the query shares the host.
    """
    exhausts = OUT_OF_MEMORY in reason
    if exhausts and shares_host:
        raise ExhaustedError(
            "it needed more memory than the engine host has, and the other queries on the host had to wait "
            f"({OUT_OF_MEMORY}): it runs alone next time"
        )
    return exhausts


@contextmanager
def broken_by_too_many(most_bad: int) -> Iterator[None]:
    """Raise ``BrokenError`` where a search ends because too many rows fail, or exhaust the host's memory."""
    try:
        yield
    except TooManyBadError as error:
        raise BrokenError(too_many_bad_rows(most_bad, str(error))) from error
    except OutOfMemoryRowsError as error:
        raise BrokenError(
            f"more than {OUT_OF_MEMORY_MOST} rows of a run need more memory than the engine host has, and its other "
            f"queries wait each time: {error}. Fix the query or its data, or raise private.spark.memory"
        ) from error


def isolate(count: int, judge: JudgeSpans, most_bad: int = 0, *, exhausts: bool = False) -> dict[int, str]:
    """Return the rows that fail alone, in order, each with its reason.

    Each of these rows was evaluated alone. All rows of a slice that passes are good, so when few rows fail, few are
    evaluated alone. Where most slices fail, all their rows are evaluated alone at once.

    Args:
        count: how many rows there are.
        judge: evaluates at most ``JOB_SPANS`` spans at a time.
        most_bad: as soon as more rows than this fail among ``WINDOW_ROWS`` consecutive ones, the search stops; 0:
            never.
        exhausts: the rows exhaust the host's memory: they are searched slice by slice, so that few evaluations do.

    Raises:
        TooManyBadError: more than ``most_bad`` fail.
        OutOfMemoryRowsError: more than ``OUT_OF_MEMORY_MOST`` exhaust the host's memory.
    """
    search = _Search(most_bad, exhausts)
    for span in _cut([(0, count)], SIZES[0] if exhausts else max(count, 1)):
        rows = _cut(_slices_that_fail(span, judge, search), 1)
        while rows:
            part, rows = rows[: search.rows_next], rows[search.rows_next :]
            for (row, _), reason in zip(part, judge(part), strict=True):
                search.note(row, reason)
    return search.bad


def _slices_that_fail(span: Span, judge: JudgeSpans, search: _Search) -> list[Span]:
    """Return the smallest slices of a span that fail."""
    spans, sizes = [span], list(SIZES)
    while sizes[0] > 1:
        cut, failed = _cut(spans, sizes.pop(0)), []
        for part in _jobs(cut):
            reasons = judge(part)
            search.exhausts |= any(reason.startswith(OUT_OF_MEMORY) for reason in reasons)
            failed += [each for each, reason in zip(part, reasons, strict=True) if reason]
        spans = failed
        if search.exhausts or 2 * len(spans) > len(cut):
            sizes = [1]
    return spans


class _Search:
    """The rows that were found, and when there are too many of them; ``exhausts``: some exhaust the host's memory."""

    def __init__(self, most_bad: int, exhausts: bool) -> None:
        self.exhausts = exhausts
        self._most_bad = most_bad
        self._recent: deque[int] = deque()
        self._exhausting: list[str] = []
        self.bad: dict[int, str] = {}

    @property
    def rows_next(self) -> int:
        """How many rows to evaluate next: not many more than can end the search, since failures are costly."""
        if self.exhausts:
            return OUT_OF_MEMORY_MOST + 1 - len(self._exhausting)
        if not self._most_bad:
            return JOB_SPANS
        return min(JOB_SPANS, max(JOB_SPANS_LEAST, self._most_bad + 1 - len(self._recent)))

    def note(self, row: int, reason: str) -> None:
        """Note why a row fails; it does not if the reason is empty."""
        if reason:
            self.bad[row] = reason
            self._recent.append(row)
        if reason.startswith(OUT_OF_MEMORY):
            self._exhausting.append(reason)
            self.exhausts = True
        while self._recent and self._recent[0] <= row - WINDOW_ROWS:
            self._recent.popleft()
        if 0 < self._most_bad < len(self._recent):
            raise TooManyBadError(next(iter(self.bad.values())))
        if len(self._exhausting) > OUT_OF_MEMORY_MOST:
            raise OutOfMemoryRowsError(self._exhausting[0])


def _cut(spans: Sequence[Span], size: int) -> list[Span]:
    return [(at, min(at + size, end)) for first, end in spans for at in range(first, end, size)]


def _jobs(spans: Sequence[Span]) -> list[Sequence[Span]]:
    return [spans[at : at + JOB_SPANS] for at in range(0, len(spans), JOB_SPANS)]
