"""Gives each run of a query the events of the selections that it closes, and holds the events of open ones."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gateway.query.flow.runlog import LoggedRuns, SelectionMark
from gateway.query.flow.selecting.keynumbers import KeyNumbers
from gateway.query.flow.selecting.reporting import Reported
from infra.messages import SelectionRule
from infra.payload.marks import marks_column, with_marks
from infra.payload.predicates import keep_mask
from infra.queryplan import SelectionConditions
from policies.arrays import BoolArray
from policies.selections.closing import ClosingRule
from policies.selections.opening import EachCount, EachMatch, EachTime, OpeningRule
from policies.selections.splitter import ClosedSelections, SelectionSplitter, SplitterMark, needed
from policies.selections.streamtime import Int64Array


class Selected(NamedTuple):
    """What a run becomes.

    Attributes:
        batch: the events of the selections that it closes, each once, with their marks.
        seqs: the seq of each row, ascending, shape (rows,).
        fresh: which of them no earlier run had, shape (rows,).
        dropped: the first event of each selection that ended without a result, because too many were open; they are in
            ``dropped_seqs`` order.
        dropped_seqs: their seqs, ascending, shape (dropped,).
        open_from: no selection that closes later has an event before this seq.
    """

    batch: pa.RecordBatch
    seqs: Int64Array
    fresh: BoolArray
    dropped: pa.RecordBatch
    dropped_seqs: Int64Array
    open_from: int


class HeldTooMuchError(Exception):
    """The events of open selections need more memory than allowed; the message says what to do."""


class Selector:
    """The splitter of one query, with the events that open selections have.

    Args:
        rule: which event opens a selection, and which closes it.
        conditions: those of the rule's conditions that the gateway evaluates; None if it has none.
        begin_seq: the first event.
        begin: where the selections begin there.
        most_bytes: the events of open selections may take so much memory.

    Attributes:
        begin_seq: the first event.
        most_open: how many selections may be open.
    """

    def __init__(
        self,
        rule: SelectionRule,
        conditions: SelectionConditions | None,
        begin_seq: int,
        begin: SelectionMark,
        most_bytes: int,
    ) -> None:
        self.begin_seq, self.most_open = begin_seq, rule.most_open
        self._column = rule.column
        self._keys = KeyNumbers()
        self._most_bytes = most_bytes
        self._conditions = conditions or SelectionConditions()
        self._same = rule.closes_same or self._conditions.same
        closing = ClosingRule(
            after_ms=rule.after_ms or None,
            events=rule.events or None,
            on_match=self._conditions.closing is not None,
            most_events=rule.most_events,
        )
        mark = SplitterMark(begin_seq, begin.selection, begin.before_ms, begin.blocked_by)
        self._splitter = SelectionSplitter(
            _opening(rule, self._conditions), closing, rule.most_open, mark, disjoint=rule.disjoint
        )
        self._reported = Reported(begin.reports_from, begin.unreported)
        self._held: deque[tuple[int, pa.RecordBatch]] = deque()

    @property
    def mark(self) -> SelectionMark:
        """Where the selections of the next run begin."""
        mark = self._splitter.mark
        needed_from = self._splitter.needed_from
        return SelectionMark(
            mark.selection, mark.before_ms, self._reported.before, needed_from, mark.blocked_by, self._reported.gaps
        )

    @property
    def held_bytes(self) -> int:
        """The size of the events that open selections have."""
        return sum(batch.nbytes for _, batch in self._held)

    def select(self, batch: pa.RecordBatch, logged: SelectionMark | None = None) -> Selected:
        """Return what the next run becomes.

        Args:
            batch: its events, which follow those of the run before.
            logged: of a run that is cut again, the mark that was logged with it: this selector may have begun after
                selections that the run has closed, and whose events were reported with it.

        Raises:
            HeldTooMuchError: their events would take too much memory.
        """
        self._held.append((self._splitter.next_event, batch))
        opens, ends = (
            None if condition is None else keep_mask(batch, [condition]).to_numpy(zero_copy_only=False)
            for condition in (self._conditions.opening, self._conditions.closing)
        )
        keys = self._keys.of(batch.column(self._same)) if self._same else None
        closed = self._splitter.split(self._times_ms(batch), opens, ends, keys)
        if logged is not None:
            closed = self._splitter.renumbered(closed, logged.selection)
        selected = self._selected(closed)
        self._reported = self._reported.after(selected.seqs, self._splitter.needed_from)
        if logged is not None:
            self._reported = Reported(logged.reports_from, logged.unreported)
        self._drop()
        if (held_bytes := self.held_bytes) > self._most_bytes:
            raise HeldTooMuchError(
                f"its {len(self._splitter.open.first):,} open selections hold {held_bytes:,} bytes of events, and "
                f"{self._most_bytes:,} may be: close them sooner, or raise gateway.memory"
            )
        return selected

    def _times_ms(self, batch: pa.RecordBatch) -> Int64Array:
        if not self._column:
            return np.zeros(batch.num_rows, dtype=np.int64)
        times = batch.column(self._column).cast(pa.timestamp("ms", tz="UTC"), safe=False).cast(pa.int64())
        # An event without a time does not move the stream's time.
        oldest = np.iinfo(np.int64).min
        found: Int64Array = pc.fill_null(times, pa.scalar(oldest, pa.int64())).to_numpy(zero_copy_only=False)
        return found

    def _selected(self, closed: ClosedSelections) -> Selected:
        schema = with_marks(self._held[-1][1].schema)
        rest = self._rows(closed.dropped), closed.dropped, self._splitter.needed_from
        if not len(closed.selection):
            return Selected(_nothing(schema), closed.first, self._reported.fresh(closed.first), *rest)
        first, end = int(closed.first.min()), int(closed.end.max())
        wanted = needed(closed, first, end - first)
        seqs = first + np.flatnonzero(wanted)
        rows = self._between(first, end).filter(pa.array(wanted))
        begins = np.searchsorted(seqs, closed.first)
        marks = marks_column(len(seqs), begins, closed.selection, closed.end - closed.first)
        batch = pa.RecordBatch.from_arrays([*rows.columns, marks], schema=schema)
        return Selected(batch, seqs, self._reported.fresh(seqs), *rest)

    def _rows(self, seqs: Int64Array) -> pa.RecordBatch:
        if not len(seqs):
            return self._held[-1][1].slice(0, 0)
        first = int(seqs[0])
        return self._between(first, int(seqs[-1]) + 1).take(pa.array(seqs - first))

    @property
    def open_count(self) -> int:
        """How many selections are open."""
        return len(self._splitter.open.first)

    def _between(self, first: int, end: int) -> pa.RecordBatch:
        parts = [
            batch.slice(max(0, first - at), max(0, min(end, at + batch.num_rows) - max(first, at)))
            for at, batch in self._held
            if at < end and at + batch.num_rows > first
        ]
        return pa.Table.from_batches(parts).combine_chunks().to_batches()[0]

    def _drop(self) -> None:
        while self._held and self._held[0][0] + self._held[0][1].num_rows <= self._splitter.needed_from:
            self._held.popleft()
        if self._same:
            self._keys.keep(self._splitter.open.key)


def selector_for(
    rule: SelectionRule | None,
    conditions: SelectionConditions | None,
    log: LoggedRuns,
    committed_before: int,
    begin_seq: int,
    most_bytes: int,
) -> Selector | None:
    """Return the selector that goes on with what a query's run log has; None without a rule.

    It begins with the first run of which an open selection has events, or which is not committed. The log has that one.

    Args:
        rule: which event opens a selection, and which closes it.
        conditions: see ``Selector``.
        log: the query's run log.
        committed_before: the sink has everything before this seq.
        begin_seq: where the query's definition begins: earlier events are in no selection of it.
        most_bytes: see ``Selector``.
    """
    if rule is None:
        return None
    runs = log.runs
    open_from = log.needed_from(committed_before)
    at = next((i for i, run in enumerate(runs) if run.last_seq >= open_from and run.first_seq >= begin_seq), len(runs))
    mark = runs[at - 1].selections if at else log.head.selections
    first_seq = runs[at].first_seq if at < len(runs) else log.next_seq
    return Selector(rule, conditions, first_seq, mark or SelectionMark(), most_bytes)


def _opening(rule: SelectionRule, conditions: SelectionConditions) -> OpeningRule:
    if rule.each_ms:
        return EachTime(rule.each_ms)
    if rule.each_events:
        return EachCount(rule.each_events)
    # Without a condition that the gateway can evaluate, each event opens a selection, and Spark finds those that match.
    return EachCount(1) if conditions.opening is None else EachMatch()


def _nothing(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)
