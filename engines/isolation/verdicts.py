"""Evaluates a query over many slices of rows in one Spark job that never fails.

A task that fails ends its job, and a job for each slice would cost several times as much as a task. So the slices
become partitions; each task catches the error of its partition and returns it. The function that catches must run in
the JVM, around the query's own code. Spark contains a Java compiler, Janino, for generated code; it also compiles these
lines, once for each Spark.
"""

from __future__ import annotations

import threading
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.serializers import FramedSerializer
from pyspark.sql import DataFrame, SparkSession
from pyspark.util import _load_from_socket

from engines.isolation.isolate import Span
from engines.query.known import KnownQuery
from engines.query.reasons import why, why_in
from engines.spark.scratch import scratch_folder

EVALUATION_ERRORS = (PySparkException, Py4JJavaError)
"""What Spark raises when a query fails over some rows. All other errors are the host's and no row's fault."""

_CLASS = "spillway.Verdict"
_SOURCE = """
package spillway;

public final class Verdict implements org.apache.spark.api.java.function.Function2 {
    private static final long serialVersionUID = 1L;

    public Object call(Object partition, Object results) throws Exception {
        String reason = "";
        try {
            java.util.Iterator each = (java.util.Iterator) results;
            while (each.hasNext()) {
                each.next();
            }
        } catch (Exception error) {
            if (org.apache.spark.TaskContext.get().isInterrupted()) {
                throw error;
            }
            reason = error.toString();
        } catch (StackOverflowError error) {
            reason = error.toString();
        } catch (OutOfMemoryError error) {
            reason = error.toString();
        }
        return java.util.Collections.singletonList(reason.getBytes("UTF-8")).iterator();
    }
}
"""

_lock = threading.Lock()
_compiled: tuple[SparkContext, Any] | None = None


class Verdicts:
    """Judges rows for one query.

    Args:
        query: the query.
        session: the caller's session; jobs use the pool and the group of the calling thread.
    """

    def __init__(self, query: KnownQuery, session: SparkSession) -> None:
        self._query = query
        self._session = session

    def results(self, rows: pa.RecordBatch) -> pa.Table:
        """Evaluate the query over rows.

        Raises:
            PySparkException: it fails over them (or Py4JJavaError, for errors that PySpark does not translate).
        """
        return self._frame([rows]).toArrow()

    def of(self, rows: pa.RecordBatch, spans: Sequence[Span]) -> list[str]:
        """Return for each span of the rows why the query fails over it, or an empty text."""
        parts = [rows.slice(first, end - first) for first, end in spans]
        if self._query.plan.narrow:
            return self._together(parts)
        # Any other plan moves rows between partitions, so each slice needs a query of its own.
        return [self._alone(part) for part in parts]

    def _frame(self, parts: Sequence[pa.RecordBatch]) -> DataFrame:
        # Spark makes each batch of the table a partition.
        table = pa.Table.from_batches(parts)
        return self._query.build(self._session.createDataFrame(table, schema=self._query.run_columns))

    def _alone(self, part: pa.RecordBatch) -> str:
        try:
            self.results(part)
        except EVALUATION_ERRORS as error:
            return why(error)
        return ""

    def _together(self, parts: Sequence[pa.RecordBatch]) -> list[str]:
        results = self._frame(parts)._jdf.toArrowBatchRdd().toJavaRDD()  # noqa: SLF001
        return reasons_of(self._session, results, len(parts))


def reasons_of(session: SparkSession, rdd: Any, count: int) -> list[str]:
    """Compute each partition of a Java RDD, and return for each why that fails, or nothing.

    Raises:
        RuntimeError: it has not ``count`` partitions.
    """
    context = session.sparkContext
    jvm: Any = context._jvm  # noqa: SLF001 - PySpark itself runs jobs on some partitions in this way
    verdicts = rdd.mapPartitionsWithIndex(_verdict(context), True)
    if verdicts.getNumPartitions() != count:
        raise RuntimeError(f"Spark made {verdicts.getNumPartitions()} partitions of {count} slices")
    served = jvm.PythonRDD.runJob(context._jsc.sc(), verdicts, list(range(count)))  # noqa: SLF001
    with _load_from_socket(served, _Bytes()) as stream:
        return [why_in(each.decode()) if each else "" for each in stream]


class _Bytes(FramedSerializer):
    """Passes on the bytes from the JVM unchanged."""

    def loads(self, obj: bytes) -> bytes:
        return obj


def _verdict(context: SparkContext) -> Any:
    """Return the catching function, in a form that all executors can load."""
    global _compiled
    with _lock:
        if _compiled is None or _compiled[0] is not context:
            _compiled = context, _compile(context)
        return _compiled[1]


def _compile(context: SparkContext) -> Any:
    jvm: Any = context._jvm  # noqa: SLF001 - only the JVM has the compiler
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.cook(_SOURCE)
    jar: Path = scratch_folder("verdict") / "verdict.jar"
    with zipfile.ZipFile(jar, "w") as file:
        file.writestr(f"{_CLASS.replace('.', '/')}.class", bytes(compiler.getBytecodes()[_CLASS]))
    context._jsc.addJar(str(jar))  # noqa: SLF001 - PySpark has no method for it
    constructor = compiler.getClassLoader().loadClass(_CLASS).getDeclaredConstructors()[0]
    return constructor.newInstance(context._gateway.new_array(jvm.java.lang.Object, 0))  # type: ignore[union-attr]  # noqa: SLF001
