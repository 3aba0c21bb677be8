"""A stateless query that is open on this host: each run is answered separately, and no row stops the others."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.functions import spark_partition_id

from engines.isolation.isolate import ExhaustedError, check_memory
from engines.isolation.isolation import RUN_S, Isolation
from engines.query.known import KnownQuery
from engines.reading.references import References, can_read
from engines.streamable import check_streams
from engines.streaming.activity import Activity
from engines.streaming.answers import Reports, RunOutcome
from engines.streaming.batches import Batches, parts_of
from engines.streaming.checkpoints import ResumePoint
from engines.streaming.feed import Feed, Item, pack
from engines.streaming.keptplan import KeptPlan
from engines.streaming.stream import Warmth
from engines.streaming.tables import one_batch
from infra.clock import Clock
from infra.messages import SELECTION

# Not the name of a hidden column (``infra.messages.NAMES``), which results may have, too.
_PARTITION = "_spillway_run_partition"
FEED_BYTES = 64 << 20
"""The limit of decoded rows that wait for Spark (one run is always accepted)."""
_FAILURES_IN_A_ROW = 3
"""After this many failed micro-batches in a row, the query leaves most of the CPU time to others."""
_REST_TIMES = 3.0
_REST_MOST_S = 2.0
_ALONE = -1
"""The micro-batch of runs that are in none."""


class StatelessStream:
    """A stateless query, open.

    Positions in the feed count the runs since this start; the checkpoint is temporary.

    Args:
        query: the query.
        clock: measures micro-batches.
        reports: get the answers of each micro-batch, one for each run that was put with a tag; a run that failed is
            answered later, and holds up no other.
        run_s: how long a run that failed may be judged.

    Attributes:
        progress: always empty: the query has no state.
        activity: the record of Spark's work for it.
    """

    def __init__(
        self,
        query: KnownQuery,
        clock: Clock,
        reports: Reports,
        run_s: float = RUN_S,
    ) -> None:
        self.query = query
        self.progress = ResumePoint()
        self.activity = Activity(clock)
        self._clock = clock
        self._reports = reports
        self._broken = ""
        self._failures = 0
        self._closing = threading.Event()
        self._warmth = Warmth()
        self._named = query.plan.names_selections
        most = query.spec.max_batch_runs if query.plan.shares_batches else 1
        # The same run twice would double the rows of its selections.
        self.feed = Feed(0, most, FEED_BYTES, clock, kind_of=_selections if self._named else None)
        self._stream = Batches(query, self.feed, self._batch, self._died)
        ends = replace(reports, death=self._cannot_isolate, broken=self._is_broken, exhausted=self._exhausts)
        self._isolation = Isolation(query, clock, ends, self.activity, self._rest, run_s)
        # Where the answer depends on more than the rows, the query is planned anew for each micro-batch.
        self._keeps = query.plan.narrow and query.plan.switchable and not self._named
        self._kept: dict[bool, KeptPlan] = {}
        self._references: References | None = None
        self._no_rows: DataFrame | None = None

    def open(self) -> None:
        """Start, and return once an empty micro-batch has passed.

        Raises:
            RefusedError: Spark cannot run it, or it fails even without events.
        """
        try:
            check_streams(self.query)
            self._read_ranges()
            self._stream.start(parts_of(self.query, by_reference=self.by_reference))
            self._warmth.wait(self.query.spec.query)
        except BaseException:
            self.close()
            raise

    def _read_ranges(self) -> None:
        """Let executors read the events of runs, if that is wanted and possible."""
        reads, context = self.query.spec.reads, self.query.base.sparkContext
        if reads is not None and self._keeps and can_read(context, reads):
            self._references = References(context, reads, self.query.run_columns, self.query.run_schema)

    def put(self, parts: Sequence[pa.Buffer], tag: object, first_seq: int = 0, end_seq: int = 0) -> None:  # noqa: ARG002
        """Append a run, in any order of seq; blocks while the feed is full.

        Of a query whose runs come by reference, one with its events is evaluated alone: its parts have other columns.

        Raises:
            FeedClosed: the query was stopped.
        """
        if self._references is None:
            self.feed.put(parts, tag)
        else:
            self._isolation.put([Item(0, 0, parts, tag)], _ALONE)

    def put_ranges(self, parts: Sequence[pa.Buffer], tag: object) -> None:
        """Append a run by reference.

        Raises:
            ValueError: its events must come with it.
            FeedClosed: the query was stopped.
        """
        if self._references is None:
            raise ValueError(f"query {self.query.spec.query}: a run came by reference, and cannot be read here")
        self.feed.put(parts, tag)

    @property
    def by_reference(self) -> bool:
        """Return whether its runs may come by reference."""
        return self._references is not None

    @property
    def death(self) -> str:
        """Return why it ended; empty while it lives."""
        return self._stream.death or self._broken

    @property
    def can_change_owner(self) -> bool:
        """Return whether it lives: runs are independent, so any session may continue with it."""
        return not self.death

    def committed(self, last_seq: int) -> None:
        """Do nothing: no state waits for the sink."""

    def drop_waiting(self) -> None:
        """Drop the runs that are not in a micro-batch yet, and those whose micro-batch failed."""
        self._isolation.forget()
        self.feed.drop_unplanned()

    def close(self) -> None:
        """Stop; runs without an answer will not get one."""
        self._closing.set()
        self._isolation.close()
        self._stream.stop()
        if self._references is not None:
            self._references.close()

    def _died(self, reason: str) -> None:
        self._warmth.died(reason)
        self._reports.death(reason)

    def _is_broken(self, reason: str) -> None:
        self._broken = reason
        self._reports.broken(reason)

    def _exhausts(self, reason: str) -> None:
        self._broken = reason
        self.feed.close(reason)  # the next micro-batch might exhaust the memory again
        self._reports.exhausted(reason)

    def _cannot_isolate(self, reason: str) -> None:
        self._broken = reason
        self._reports.death(reason)

    def _batch(self, frame: DataFrame, batch_id: int) -> None:
        items = self.feed.planned
        tagged = [item for item in items if item.tag is not None]
        try:
            with self.activity.running():
                tables = self._evaluated(frame, items)
        except Exception as error:
            if self._stream.stopping or not tagged:
                raise
            try:
                check_memory(str(error), shares_host=self.query.spec.shares_host)
            except ExhaustedError as exhausted:
                self._exhausts(str(exhausted))
                return
            self._reports.isolating(tagged)
            self._isolation.put([self._with_events(item) for item in tagged], batch_id)
            self._failures += 1
            self._closing.wait(min(_REST_MOST_S, self._rest() * (self._clock.now() - self.feed.planned_at_s)))
        else:
            self._failures = 0
            batch_s = self._clock.now() - self.feed.planned_at_s
            counted = self._counted(items)
            answers = [
                RunOutcome((item,), rows, (), batch_id, batch_s) for item, rows in zip(counted, tables, strict=True)
            ]
            self._reports.answers([answer for answer in answers if answer.items[0].tag is not None])
        if items:
            self.feed.release(items[-1].end)
        self._warmth.warmed()

    def _rest(self) -> float:
        """Return how long to pause after Spark has worked, as a multiple of the time that it worked."""
        return _REST_TIMES if self._failures >= _FAILURES_IN_A_ROW else 0.0

    def _counted(self, items: Sequence[Item]) -> Sequence[Item]:
        """Return runs by reference with what was read of them."""
        if self._references is None:
            return items
        counts = self._references.counts([item.parts for item in items])
        return [replace(item, counts=count) for item, count in zip(items, counts, strict=True)]

    def _with_events(self, item: Item) -> Item:
        """Return a run with its events: of one by reference they are read here."""
        if self._references is None:
            return item
        events, counts = self._references.read(item.parts)
        return replace(item, parts=pack(events), counts=counts)

    def _evaluated(self, frame: DataFrame, items: Sequence[Item]) -> list[pa.RecordBatch]:
        schema = self.query.result_schema
        if len(items) == 1:
            return [one_batch(self._table(frame, named=False), schema)]
        if self._named:
            return _by_selections(self._table(frame, named=False), items, schema)
        # Else only a narrow plan has several items, and there each row is made in the partition of its event.
        table = self._table(frame, named=True)
        partitions = table.column(_PARTITION).to_numpy()
        if np.any(np.diff(partitions) < 0):
            raise RuntimeError("Spark returned partitions out of order: results cannot be assigned to their runs")
        table = table.drop_columns([_PARTITION])
        results, part = [], 0
        for item in items:
            first, last = np.searchsorted(partitions, [part, part + len(item.parts)])
            results.append(one_batch(table.slice(first, last - first), schema))
            part += len(item.parts)
        return results

    def _table(self, frame: DataFrame, *, named: bool) -> pa.Table:
        """Return the results of a micro-batch; ``named``: with the partition of each."""
        build = self._build_named if named else self._build
        if not self._keeps:
            return build(frame).toArrow()
        if self._no_rows is None:
            self._no_rows = frame  # the warm-up's; a plan keeps alive what it is made of
        if named not in self._kept:
            self._kept[named] = KeptPlan(build, self._no_rows)
        return self._kept[named].evaluate(frame)

    def _build(self, frame: DataFrame) -> DataFrame:
        return self.query.build(frame if self._references is None else self._references.events(frame))

    def _build_named(self, frame: DataFrame) -> DataFrame:
        return self._build(frame).select("*", spark_partition_id().alias(_PARTITION))


def _selections(item: Item) -> object:
    """Return the numbers of a run's first and last selection; of the warm-up's item itself."""
    return item if item.tag is None else item.tag.selections


def _by_selections(table: pa.Table, items: Sequence[Item], schema: pa.Schema) -> list[pa.RecordBatch]:
    """Return the results of each run: those of its selections. They are in order of these.

    Raises:
        ValueError: some have none of these, such as a row that an outer join has filled with null.
    """
    numbers = table.column(SELECTION).to_numpy()
    results = []
    for item in items:
        known = None if item.tag is None else item.tag.selections
        first, end = (0, 0) if known is None else np.searchsorted(numbers, [known[0], known[1] + 1])
        results.append(one_batch(table.slice(first, end - first), schema))
    if sum(rows.num_rows for rows in results) != table.num_rows or np.any(np.diff(numbers) < 0):
        # Each run is then evaluated alone.
        raise ValueError(f"results name other selections in {SELECTION} than those of the runs")
    return results
