"""The physical plan of a stateless query, made once and kept for all its micro-batches.

Otherwise Spark parses, analyses, optimises and plans a frame for each micro-batch, although only its rows differ.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyspark.serializers import FramedSerializer
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.util import _load_from_socket

from engines.query.conditions import scala_items

_LEAF = "RDDScanExec"
# Adaptive execution would plan joins anew for each micro-batch; they are with tables that do not change.
_ADAPTIVE = "spark.sql.adaptive.enabled"


class KeptPlan:
    """Evaluates a query over the rows of one micro-batch after another.

    Args:
        build: applies the query to rows. Its plan is narrow, and its answer depends on the rows alone.
        rows: of any micro-batch, best without rows, as they live as long as the plan.

    Attributes:
        kept: False if the rows were not found in the plan, so that the query is planned for each micro-batch.
    """

    def __init__(self, build: Callable[[DataFrame], DataFrame], rows: DataFrame) -> None:
        self._build = build
        self._session = rows.sparkSession
        self._session.conf.set(_ADAPTIVE, "false")
        frame = build(rows)
        self._frame: Any = frame._jdf  # noqa: SLF001 - plans are nowhere in the public API
        self._schema = to_arrow_schema(frame.schema, timezone="UTC")
        found = _way(self._frame.queryExecution().executedPlan(), _rdd(rows).id())
        self.kept = found is not None
        self._above: list[tuple[Any, list[Any], list[Any]]]
        self._leaf: Any
        self._above, self._leaf = found or ([], None)

    def evaluate(self, rows: DataFrame) -> pa.Table:
        """Return the results of rows, in the order of their partitions."""
        if not self.kept:
            return self._build(rows).toArrow()
        jvm: Any = self._session._jvm  # noqa: SLF001
        served = jvm.PythonRDD.collectAndServe(self._frame.toArrowBatchRdd(self._plan(jvm, _rdd(rows))))
        with _load_from_socket(served, _Messages()) as messages:
            batches = [pa.ipc.read_record_batch(message, self._schema) for message in messages]
        return pa.Table.from_batches(batches, self._schema)

    def _plan(self, jvm: Any, rdd: Any) -> Any:
        """Return the plan with other rows at its leaf."""
        # New nodes take their settings from the session that is active on this thread.
        jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(self._session._jsparkSession)  # noqa: SLF001
        leaf = self._leaf
        node = jvm.org.apache.spark.sql.execution.RDDScanExec(
            leaf.output(), rdd, leaf.name(), leaf.outputPartitioning(), leaf.outputOrdering(), leaf.stream()
        )
        for parent, before, after in reversed(self._above):
            node = parent.withNewChildren(jvm.PythonUtils.toSeq([*before, node, *after]))
        return node


class _Messages(FramedSerializer):
    """Arrow messages as they are."""

    def loads(self, obj: bytes) -> pa.Buffer:
        """Return a message."""
        return pa.py_buffer(obj)


def _rdd(rows: DataFrame) -> Any:
    return rows._jdf.queryExecution().analyzed().rdd()  # noqa: SLF001


def _way(node: Any, rdd_id: int) -> tuple[list[tuple[Any, list[Any], list[Any]]], Any] | None:
    """Return the nodes from a plan's root to the leaf that scans an RDD, and the leaf; None if there is no such leaf.

    With each node come its children before and after the one on the way.
    """
    if node.getClass().getSimpleName() == _LEAF:
        return ([], node) if node.rdd().id() == rdd_id else None
    children = list(scala_items(node.children()))
    for at, child in enumerate(children):
        if below := _way(child, rdd_id):
            return [(node, children[:at], children[at + 1 :]), *below[0]], below[1]
    return None
