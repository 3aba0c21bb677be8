"""Finds the rows at fault of a micro-batch of a stateful query; meanwhile the query stands still."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa

from engines.isolation.beforestate import rows_that_fail_alone
from engines.isolation.isolate import BrokenError, broken_by_too_many
from engines.isolation.search import rows_at_fault
from engines.isolation.trials import Trials
from engines.query.known import KnownQuery
from engines.query.parts.heartbeats import divided
from engines.spark.session import sibling
from engines.streaming.activity import Activity
from engines.streaming.feed import FeedServer, Item
from engines.streaming.tables import unpack
from infra.clock import Clock

BATCH_S = 300.0
"""A micro-batch that takes longer fails the query."""


class StoppedError(Exception):
    """The query is being closed: the rows are not wanted any more."""


class BatchIsolation:
    """Looks for the rows at fault of one query's micro-batches.

    Args:
        query: what runs.
        server: where Spark asks for rows.
        clock: tells how long it takes.
        activity: notes when Spark runs the query.
        stopped: tells that the query is being closed.
        batch_s: how long one micro-batch may take.
    """

    def __init__(
        self,
        query: KnownQuery,
        server: FeedServer,
        clock: Clock,
        activity: Activity,
        stopped: Callable[[], bool],
        batch_s: float,
    ) -> None:
        self._query = query
        self._server = server
        self._clock = clock
        self._activity = activity
        self._stopped = stopped
        self._batch_s = batch_s

    def bad_rows(self, items: Sequence[Item], checkpoint: Path, *, exhausts: bool) -> dict[int, str]:
        """Return the rows at fault, counted over all runs of the micro-batch, each with its reason.

        Args:
            items: its runs.
            checkpoint: the folder of the start in which it failed; nothing writes there any more.
            exhausts: it exhausted the host's memory.

        Raises:
            BrokenError: the query is at fault, or it takes too long.
            StoppedError: the query is being closed.
        """
        ends_s = self._clock.now() + self._batch_s
        rows = unpack([part for item in items for part in item.parts], self._query.run_schema)
        # A heartbeat is dropped before the user's code: it is in every try, and never at fault.
        own, heartbeats = (range(rows.num_rows), []) if self._query.spec.part is None else divided(rows)

        def check() -> None:
            if self._stopped():
                raise StoppedError
            if self._clock.now() > ends_s:
                raise BrokenError(self._too_slow(items))

        limits = items[0].start, items[-1].end
        trials = Trials(self._query, self._server, self._clock, checkpoint, *limits, check)

        def reason(wanted: Sequence[int]) -> str:
            check()
            with self._activity.running():
                return trials.reason(_taken(rows, sorted([*(own[row] for row in wanted), *heartbeats])))

        most = self._query.spec.bad_rows_most
        with broken_by_too_many(most):
            with self._activity.running():
                session = sibling(self._query.base)
                known = rows_that_fail_alone(self._query, session, _taken(rows, own), check, exhausts=exhausts)
            return {own[row]: said for row, said in rows_at_fault(len(own), reason, known, most).items()}

    def _too_slow(self, items: Sequence[Item]) -> str:
        return (
            f"isolating the rows of the events {items[0].start} to {items[-1].end - 1} that fail took more than "
            f"{self._batch_s:.0f} s: fix the query, its schema or the source, or let runs hold fewer events "
            "(runs.max_events)"
        )


def _taken(rows: pa.RecordBatch, wanted: Sequence[int]) -> pa.RecordBatch:
    return rows.take(pa.array(wanted, pa.int64()))
