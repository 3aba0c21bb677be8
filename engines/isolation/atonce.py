"""Evaluates a query over some events at once, as a batch, and leaves out the rows at fault, for ``spillway try``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql import SparkSession

from engines.isolation.beforestate import rows_that_fail_alone
from engines.isolation.isolate import BrokenError, Span, broken_by_too_many, isolate
from engines.isolation.search import rows_at_fault
from engines.isolation.verdicts import EVALUATION_ERRORS, Verdicts
from engines.query.known import KnownQuery
from engines.query.reasons import why
from engines.spark.session import sibling
from infra.clock import Clock

SEARCH_S = 120.0
"""Someone waits for the answer: a search for rows at fault may take this long."""


class Evaluated(NamedTuple):
    """The results of the rows that pass, and why each of the others fails, by its index."""

    results: pa.Table
    bad: dict[int, str]


def evaluate(query: KnownQuery, rows: pa.RecordBatch, clock: Clock, search_s: float = SEARCH_S) -> Evaluated:
    """Evaluate a query over rows as if its source had only these, and had ended.

    Args:
        query: what runs; not a part of a divided query.
        rows: of the query's input schema.
        clock: limits the search for rows at fault.
        search_s: how long that search may take.

    Raises:
        BrokenError: the query is at fault and not its rows, or the search took too long.
    """
    session = sibling(query.base)
    verdicts = Verdicts(query, session)
    try:
        return Evaluated(verdicts.results(rows), {})
    except EVALUATION_ERRORS:
        _check_without_rows(query, verdicts, rows)
    with broken_by_too_many(query.spec.bad_rows_most):
        bad = _Search(query, session, rows, clock, search_s).bad()
    try:
        return Evaluated(verdicts.results(_without(rows, bad)), bad)
    except EVALUATION_ERRORS as error:
        raise BrokenError(f"rows that pass alone fail together: {why(error)}") from error


def _check_without_rows(query: KnownQuery, verdicts: Verdicts, rows: pa.RecordBatch) -> None:
    try:
        verdicts.results(rows.slice(0, 0))
    except EVALUATION_ERRORS as error:
        streams = (
            ". Some of Spark's functions need a stream, and cannot be tried over a sample. To see results of such a "
            "query, run a copy of the config that has another state_dir and another sink"
        )
        raise BrokenError(
            f"it fails even without rows: {why(error)}{streams if query.plan.stateful else ''}"
        ) from error


class _Search:
    """Looks for the rows at fault, for a limited time."""

    def __init__(
        self, query: KnownQuery, session: SparkSession, rows: pa.RecordBatch, clock: Clock, search_s: float
    ) -> None:
        self._query, self._session, self._rows, self._clock = query, session, rows, clock
        self._search_s = search_s
        self._ends_s = clock.now() + search_s
        self._verdicts = Verdicts(query, session)

    def bad(self) -> dict[int, str]:
        """Return the rows at fault, in order."""
        count, most = self._rows.num_rows, self._query.spec.bad_rows_most
        if not self._query.plan.stateful:
            return isolate(count, self._judge, most)
        known = rows_that_fail_alone(self._query, self._session, self._rows, self._check, exhausts=False)
        return rows_at_fault(count, self._try, known, most)

    def _check(self) -> None:
        if self._clock.now() > self._ends_s:
            raise BrokenError(
                f"looking for the rows that fail took more than {self._search_s:g} s: try it with fewer events, or fix "
                "the query, its schema or the source"
            )

    def _judge(self, spans: Sequence[Span]) -> list[str]:
        self._check()
        return self._verdicts.of(self._rows, spans)

    def _try(self, some: Sequence[int]) -> str:
        self._check()
        try:
            self._verdicts.results(self._rows.take(pa.array(some, pa.int64())))
        except EVALUATION_ERRORS as error:
            return why(error)
        return ""


def _without(rows: pa.RecordBatch, bad: dict[int, str]) -> pa.RecordBatch:
    return rows.take(pa.array([row for row in range(rows.num_rows) if row not in bad], pa.int64()))
