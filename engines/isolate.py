"""Finding the rows that a query cannot stand, with few tries."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from infra.messages import Poison

MAX_TRIES = 64


class BrokenError(Exception):
    """The query fails without any row: no row is to blame."""


def isolate(
    rows: pa.RecordBatch,
    run: Callable[[pa.RecordBatch], pa.Table],
    reason_of: Callable[[BaseException], str],
    max_tries: int = MAX_TRIES,
) -> tuple[list[pa.Table], tuple[Poison, ...]]:
    """Run a stateless query over rows of which some make it fail.

    Each poison row costs at most log2(n) + 1 tries: one over all that is left, then a binary search for the first
    row that fails. Results of good rows stay in order.

    Args:
        rows: the input.
        run: evaluates the query over part of it; raises when a row fails.
        reason_of: turns what ``run`` raised into a sentence.
        max_tries: after so many tries every row not yet answered is reported as poison.

    Returns:
        The results of the good rows, in order, and the poison.

    Raises:
        BrokenError: not even an empty input can be evaluated.
    """
    try:
        run(rows.slice(0, 0))
    except Exception as error:
        raise BrokenError(reason_of(error)) from error
    return _Search(rows, run, reason_of, max_tries).all()


class _Search:
    def __init__(
        self,
        rows: pa.RecordBatch,
        run: Callable[[pa.RecordBatch], pa.Table],
        reason_of: Callable[[BaseException], str],
        max_tries: int,
    ) -> None:
        self._rows = rows
        self._run = run
        self._reason_of = reason_of
        self._tries_left = max_tries
        self._reason = ""
        self._results: list[pa.Table] = []

    def all(self) -> tuple[list[pa.Table], tuple[Poison, ...]]:
        poison: list[Poison] = []
        start, end = 0, self._rows.num_rows
        while start < end and not self._answers(start, end):
            row = self._first_poison(start, end)
            if row is None:
                reason = f"not tried alone, the run has too many rows that fail; the last said: {self._reason}"
                start = self._good_until
                poison += [Poison(row=each, reason=reason) for each in range(start, end)]
                break
            poison.append(Poison(row=row, reason=self._reason))
            start = row + 1
        return self._results, tuple(poison)

    def _first_poison(self, start: int, end: int) -> int | None:
        """Return the first row in ``[start, end)`` that fails; None when the tries ran out before it was alone."""
        good, bad = start, end
        while bad - good > 1 and self._tries_left > 0:
            middle = (good + bad) // 2
            if self._answers(good, middle):
                good = middle
            else:
                bad = middle
        self._good_until = good
        return good if bad - good == 1 else None

    def _answers(self, start: int, end: int) -> bool:
        self._tries_left -= 1
        try:
            self._results.append(self._run(self._rows.slice(start, end - start)))
        except Exception as error:
            self._reason = self._reason_of(error)
            return False
        return True
