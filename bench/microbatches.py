"""``python bench/microbatches.py``: micro-batches with a plan that is kept beside such that are planned anew, in turns.

Both are in one Spark on one core, over the same rows; the table has the median time of a micro-batch.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
from planning.document import table
from pyspark.sql import DataFrame, SparkSession
from suite.tax.load import WORKS

from engines.query.known import KnownQuery, understand
from engines.spark.proxies import free_dropped
from engines.spark.session import build_session, sibling, stop_session
from engines.streaming.batches import frame_of
from engines.streaming.feed import pack
from engines.streaming.keptplan import KeptPlan
from infra.messages import OpenQuery
from infra.rows.jsonlines import LineDecoder

CASES = (("light", 100), ("light", 1_000), ("light", 10_000), ("heavy", 100), ("heavy", 1_000))
WARM_UP, MEASURED = 100, 60


def main() -> None:
    """Print the table."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    with tempfile.TemporaryDirectory(prefix="spillway-bench-") as name:
        session = build_session("local[1]", Path(name) / "spark", 1)
        try:
            rows = [_row(session, kind, count, Path(name)) for kind, count in CASES]
        finally:
            stop_session(session)
    print(table(("query", "rows", "planned anew, ms", "kept, ms", "kept / anew"), rows))


def _row(session: SparkSession, kind: str, count: int, folder: Path) -> tuple[str, ...]:
    work = WORKS[kind]()
    query = understand(session, OpenQuery(query=kind, epoch=0, schema_ddl=work.schema, sql=work.sql))
    events = LineDecoder(query.input_schema).decode([work.event(at, at) for at in range(count)])[0]
    make = _frames(query, events, folder / "rows")
    kept = KeptPlan(query.build, make())
    assert kept.kept
    ways: dict[str, Callable[[DataFrame], pa.Table]] = {
        "anew": lambda frame: query.build(frame).toArrow(),
        "kept": kept.evaluate,
    }
    took_ms: dict[str, list[float]] = {way: [] for way in ways}
    for number in range(WARM_UP + MEASURED):
        for way in ways if number % 2 else reversed(ways):
            begun_s = time.perf_counter()
            ways[way](make())
            took_ms[way].append(1e3 * (time.perf_counter() - begun_s))
        free_dropped()
    anew, with_plan = (statistics.median(took_ms[way][WARM_UP:]) for way in ("anew", "kept"))
    print(f"{kind}, {count:,} rows: done", file=sys.stderr, flush=True)
    return kind, f"{count:,}", f"{anew:.1f}", f"{with_plan:.1f}", f"{with_plan / anew:.2f}"


def _frames(query: KnownQuery, events: pa.RecordBatch, path: Path) -> Callable[[], DataFrame]:
    session, columns, parts = sibling(query.base), query.run_columns.json(), pack(events)
    return lambda: frame_of(session, columns, parts, path)


if __name__ == "__main__":
    main()
