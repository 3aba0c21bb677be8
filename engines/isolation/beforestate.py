"""Which rows fail in the part of a stateful plan that looks at one row at a time, before the first shuffle.

State, and the order of rows, mean nothing there: a row that fails there alone fails always. All rows are judged in a
few Spark jobs, while each try over a copy of the state is a Spark stream of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from engines.isolation.isolate import Span, isolate
from engines.isolation.verdicts import EVALUATION_ERRORS, reasons_of
from engines.query.conditions import scala_items
from engines.query.known import KnownQuery

_SHUFFLE = "ShuffleExchangeExec"
_EVENTS = "RDDScanExec"


def rows_that_fail_alone(
    query: KnownQuery, session: SparkSession, rows: pa.RecordBatch, check: Callable[[], None], *, exhausts: bool
) -> dict[int, str]:
    """Return the rows that fail before any state is involved; none where the plan does not show that part.

    Args:
        query: what runs.
        session: of the caller; its settings are changed.
        rows: of a micro-batch.
        check: called before each Spark job; raises an error when the rows are not wanted any more.
        exhausts: see ``isolate``.

    Raises:
        TooManyBadError: more rows fail than the query allows.
        OutOfMemoryRowsError: see ``isolate``.
        Exception: what ``check`` raises.
    """
    session.conf.set("spark.sql.adaptive.enabled", "false")  # an adaptive plan has no operators before it runs
    # Of pools with equal shares Spark serves the first by name: other queries' tasks go first.
    session.sparkContext.setLocalProperty("spark.scheduler.pool", f"~{query.spec.query}")

    def judge(spans: Sequence[Span]) -> Sequence[str]:
        check()
        verdicts = [reasons_of(session, part, len(spans)) for part in _parts(query, session, rows, spans)]
        return [next(filter(None, each), "") for each in zip(*verdicts, strict=True)] if verdicts else [""] * len(spans)

    try:
        return isolate(rows.num_rows, judge, query.spec.bad_rows_most, exhausts=exhausts)
    except EVALUATION_ERRORS:  # Spark refuses it as a batch query, for instance dropDuplicatesWithinWatermark
        return {}


def _parts(query: KnownQuery, session: SparkSession, rows: pa.RecordBatch, spans: Sequence[Span]) -> list[Any]:
    """Return the parts of the plan that read events and end in a shuffle, as RDDs with a partition for each span."""
    table = pa.Table.from_batches([rows.slice(first, end - first) for first, end in spans])
    frame = query.build(session.createDataFrame(table, schema=query.run_columns))
    plan = frame._jdf.queryExecution().executedPlan()  # noqa: SLF001 - plans are nowhere in the public API
    below = [node.child() for node in _walk(plan) if _kind(node) == _SHUFFLE]
    parts = [part.execute().toJavaRDD() for part in below if _reads_only_events(part, query)]
    return [part for part in parts if part.getNumPartitions() == len(spans)]


def _reads_only_events(part: Any, query: KnownQuery) -> bool:
    nodes = list(_walk(part))
    leaves = [node for node in nodes if node.children().isEmpty()]
    if len(leaves) != 1 or _kind(leaves[0]) != _EVENTS or any(_kind(node) == _SHUFFLE for node in nodes):
        return False
    return [str(each.name()) for each in scala_items(leaves[0].output())] == query.run_columns.names


def _walk(node: Any) -> Iterator[Any]:
    yield node
    for child in scala_items(node.children()):
        yield from _walk(child)


def _kind(node: Any) -> str:
    return str(node.getClass().getSimpleName())
