"""Carries the number of each input row through a plan, up to the operator that drops what comes too late.

Spark's operators count what they drop, and do not say which rows it came from. The part of a plan below such an
operator looks at one row at a time. So it can be evaluated again, over a relation of the same rows with their numbers.

The nodes of the plan are Spark's own optimised ones, so that conditions are where Spark evaluates them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from engines.query.conditions import kind_of, scala_items

_ROW: Final = "_spillway_row"
_TIME: Final = pa.timestamp("us", "UTC")
_DELAY: Final = "spark.watermarkDelayMs"
"""In the metadata of the event time, and of windows over it."""
_DEDUPES: Final = frozenset({"Deduplicate", "DeduplicateWithinWatermark"})
_SAME_OUTPUT: Final = frozenset({"Filter", "Repartition", "RepartitionByExpression", "RebalancePartitions"})
_MORE_OUTPUT: Final = frozenset({"Generate", "ArrowEvalPython", "BatchEvalPython"})
_ABOVE: Final = _SAME_OUTPUT | _MORE_OUTPUT | {"Project", "Join", "Sort", "EventTimeWatermark"}


class NoLineageError(Exception):
    """It cannot be said which rows of the input a plan drops; the message says why."""


def check(plan: Any) -> None:
    """Check whether it can be said which rows a plan drops.

    Args:
        plan: the optimised plan of a streaming query.

    Raises:
        NoLineageError: it cannot.
    """
    if not plan.deterministic():
        raise NoLineageError("its plan has an expression that would not have the same value again")
    for below in _inputs(_operator(plan)):
        _check_below(below)


class Lineage:
    """Evaluates again what comes to the operator that drops late rows.

    Args:
        session: of the caller.
        rows: the input.
        plan: the optimised plan of the micro-batch that Spark has run over them.

    Raises:
        NoLineageError: see ``check``.
    """

    def __init__(self, session: SparkSession, rows: pa.RecordBatch, plan: Any) -> None:
        check(plan)
        self._session = session
        jvm: Any = session.sparkContext._jvm  # noqa: SLF001 - plans are nowhere in the public API
        self._jvm = jvm
        self._logical = jvm.org.apache.spark.sql.catalyst.plans.logical
        numbers = pa.array(range(rows.num_rows), pa.int64())
        table = pa.Table.from_batches([rows]).append_column(_ROW, numbers)
        frame = session.createDataFrame(table)._jdf  # noqa: SLF001
        self._java_session, self._events = frame.sparkSession(), frame.queryExecution().analyzed()
        *self._columns, self._row = scala_items(self._events.output())
        self._operator = _operator(plan)

    def event_times(self) -> Iterator[pa.Table]:
        """Yield, for each input of the operator, the number of the row behind each of its rows, and its event time.

        The event time of a row in a window is the window's end; it is null where the operator drops nothing. A row may
        come more than once, or not at all.
        """
        for below in _inputs(self._operator):
            time = _event_time(self._operator, below)
            wanted = [self._row] if time is None else [self._row, time]
            yield self._evaluated(self._logical.Project(self._seq(wanted), self._carried(below)))

    def _evaluated(self, plan: Any) -> pa.Table:
        classic: Any = self._jvm.org.apache.spark.sql.classic
        frame = DataFrame(classic.Dataset.ofRows(self._java_session, plan), self._session)
        rows, *times = frame.toArrow().columns
        time = times[0] if times else pa.chunked_array([pa.nulls(len(rows), _TIME)])
        if pa.types.is_struct(time.type):
            time = pa.chunked_array([chunk.field("end") for chunk in time.chunks], _TIME)
        return pa.table({"row": rows, "time": time})

    def _carried(self, node: Any) -> Any:
        """Return a node whose output ends with, or at least has, the row's number."""
        kind, children = kind_of(node), list(scala_items(node.children()))
        if not children:
            return self._relation(node)
        below = [self._carried(child) if child.isStreaming() else child for child in children]
        if kind == "EventTimeWatermark":
            return below[0]
        if kind == "Project":
            return self._logical.Project(node.projectList().appended(self._row), below[0])
        if kind == "Expand":
            projections = [each.appended(self._row) for each in scala_items(node.projections())]
            return self._logical.Expand(self._seq(projections), node.output().appended(self._row), below[0])
        if kind == "Union":
            # It takes the columns of its inputs by their positions.
            below = [
                self._logical.Project(child.output().appended(self._row), carried)
                for child, carried in zip(children, below, strict=True)
            ]
        return node.withNewChildren(self._seq(below))

    def _relation(self, leaf: Any) -> Any:
        """Return our rows as the output of a leaf that Spark reads them from."""
        expressions: Any = self._jvm.org.apache.spark.sql.catalyst.expressions
        nothing, none = self._seq([]), self._jvm.scala.Option.apply(None)
        columns = [
            expressions.Alias(ours, str(theirs.name()), theirs.exprId(), nothing, none, nothing)
            for ours, theirs in zip(self._columns, scala_items(leaf.output()), strict=True)
        ]
        return self._logical.Project(self._seq([*columns, self._row]), self._events)

    def _seq(self, items: Sequence[Any]) -> Any:
        return self._jvm.PythonUtils.toSeq(items)


def _operator(plan: Any) -> Any:
    """Return the operator of a plan that keeps state.

    Raises:
        NoLineageError: there is none that is known.
    """
    node = plan
    while True:
        kind, streaming = kind_of(node), [each for each in scala_items(node.children()) if each.isStreaming()]
        if kind == "Aggregate" or kind in _DEDUPES or (kind == "Join" and len(streaming) > 1):
            return node
        if len(streaming) != 1 or kind not in _ABOVE:
            raise NoLineageError(f"its plan has {kind}, of which it is not known what it drops")
        node = streaming[0]


def _inputs(operator: Any) -> list[Any]:
    return [each for each in scala_items(operator.children()) if each.isStreaming()]


def _check_below(node: Any) -> None:
    kind, children = kind_of(node), list(scala_items(node.children()))
    streaming = [each for each in children if each.isStreaming()]
    if not children:
        return
    known = kind in _SAME_OUTPUT | _MORE_OUTPUT | {"Project", "Expand", "EventTimeWatermark", "Join"}
    if kind != "Union" and not (known and len(streaming) == 1):
        raise NoLineageError(f"its plan has {kind} below another operator that keeps state")
    for each in streaming:
        _check_below(each)


def _event_time(operator: Any, below: Any) -> Any:
    """Return the attribute by which an operator judges what is too late; None if it has none."""
    named = operator.groupingExpressions() if kind_of(operator) == "Aggregate" else below.output()
    return next((each for each in scala_items(named) if each.metadata().contains(_DELAY)), None)
