"""The cost of finding the bad rows of 2,000, in three ways (docs/decisions/0079).

Run: python bench/isolation.py [BAD ...]
"""

# ruff: noqa: SLF001 - the ways that were not taken need the insides of Spark
from __future__ import annotations

import random
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.util import _load_from_socket

from engines.isolation.isolate import Span, isolate
from engines.isolation.verdicts import EVALUATION_ERRORS, Verdicts, _Bytes
from engines.query.known import KnownQuery, understand
from engines.spark.session import build_session, sibling, stop_session
from infra.messages import OpenQuery

ROWS = 2000
SCHEMA = "id INT, name STRING"
USER = str(Path(__file__).parents[1] / "tests" / "engines" / "user")
QUERIES = {
    "SQL": {"sql": "SELECT id, CAST(name AS INT) AS n FROM events"},
    "Python": {"function": "user_functions:whole_numbers", "code_path": USER},
}
Fails = Callable[[Span], bool]


def bisected(fails: Fails, spans: Sequence[Span]) -> list[int]:
    """Return the bad rows, one try per half; the second half of a failed span is not tried if the first is good."""
    bad: list[int] = []

    def look(span: Span, *, known: bool) -> None:
        if not known and not fails(span):
            return
        first, end = span
        if end - first == 1:
            bad.append(first)
            return
        middle = (first + end) // 2
        left_fails = fails((first, middle))
        if left_fails:
            look((first, middle), known=True)
        look((middle, end), known=not left_fails)

    for span in spans:
        look(span, known=False)
    return bad


def a_frame_a_try(verdicts: Verdicts, rows: pa.RecordBatch) -> list[int]:
    """Plan each try separately, as the first version did."""
    return bisected(lambda span: bool(verdicts._alone(rows.slice(span[0], span[1] - span[0]))), [(0, ROWS)])


def a_job_a_try(verdicts: Verdicts, rows: pa.RecordBatch) -> list[int]:
    """Plan once, with every node of a binary tree of slices as a partition; each try is a job of one task."""
    nodes: list[Span] = [(0, ROWS)]
    for first, end in nodes:
        if end - first > 1:
            nodes += [(first, (first + end) // 2), ((first + end) // 2, end)]
    frame = verdicts._frame([rows.slice(first, end - first) for first, end in nodes])
    batches = frame._jdf.toArrowBatchRdd().toJavaRDD()
    context, places = frame.sparkSession.sparkContext, {node: place for place, node in enumerate(nodes)}

    def fails(span: Span) -> bool:
        try:
            served = context._jvm.PythonRDD.runJob(context._jsc.sc(), batches, [places[span]])  # type: ignore[union-attr]
            with _load_from_socket(served, _Bytes()) as stream:
                list(stream)
        except EVALUATION_ERRORS:
            return True
        return False

    return bisected(fails, [(0, ROWS)])


def caught_in_tasks(verdicts: Verdicts, rows: pa.RecordBatch) -> list[int]:
    """Evaluate many slices in one job whose tasks catch errors, as Spillway does."""
    return list(isolate(ROWS, lambda spans: verdicts.of(rows, spans)))


WAYS: dict[str, tuple[Callable[[Verdicts, pa.RecordBatch], list[int]], int]] = {
    "a frame a try": (a_frame_a_try, 20),
    "a job a try": (a_job_a_try, 500),
    "caught in tasks": (caught_in_tasks, ROWS),
}


def main(bads: Sequence[int]) -> None:
    """Print seconds for each query, number of bad rows and method; leave out a method that takes minutes."""
    session: SparkSession = build_session("local[1]", Path(tempfile.mkdtemp()), 1)
    session.sparkContext.setLogLevel("OFF")
    for kind, spec in QUERIES.items():
        asked: Any = OpenQuery(query="q", epoch=1, schema_ddl=SCHEMA, **spec)
        query: KnownQuery = understand(session, asked)
        verdicts = Verdicts(query, sibling(session))
        caught_in_tasks(verdicts, rows_with(query, set(range(3))))  # warm up
        for count in bads:
            bad = set(random.Random(count).sample(range(ROWS), count))
            rows = rows_with(query, bad)
            for name, (way, most) in WAYS.items():
                if count <= (most if kind == "SQL" else min(most, 20) if way is not caught_in_tasks else most):
                    began_s = time.perf_counter()
                    assert set(way(verdicts, rows)) == bad
                    print(f"{kind:8}{count:6} bad  {name:16}{time.perf_counter() - began_s:8.2f} s", flush=True)
    stop_session(session)


def rows_with(query: KnownQuery, bad: set[int]) -> pa.RecordBatch:
    """Return the rows of a run."""
    names = [f"x{row}" if row in bad else str(row) for row in range(ROWS)]
    return pa.RecordBatch.from_arrays([pa.array(range(ROWS), pa.int32()), pa.array(names)], schema=query.input_schema)


if __name__ == "__main__":
    main([int(each) for each in sys.argv[1:]] or [1, 20, 500, ROWS])
