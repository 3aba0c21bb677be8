"""The warm-up batch of a new host: the first batch of a fresh Spark takes seconds."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import SparkSession

from engines.query.known import RefusedError, understand
from engines.stateless import StatelessStream
from engines.streaming.answers import Reports, RunOutcome
from engines.streaming.feed import pack
from engines.streaming.stream import WARM_S
from infra.clock import Clock
from infra.messages import OpenQuery

_ROWS = 256
_QUERY = OpenQuery(
    query="warm-up",
    epoch=0,
    schema_ddl="id BIGINT, name STRING",
    sql="SELECT id, upper(name) AS name FROM events WHERE name LIKE '%1' AND id >= 0",
)


def warm_up(session: SparkSession, clock: Clock) -> None:
    """Run a small query without state, as a host runs it, and return when its answer has arrived.

    Raises:
        RefusedError: no answer arrived, or a wrong one.
    """
    answered = threading.Event()
    rows: list[int] = []

    def take(answers: Sequence[RunOutcome]) -> None:
        rows.extend(answer.rows.num_rows for answer in answers)
        if answers:
            answered.set()

    stream = StatelessStream(understand(session, _QUERY), clock, Reports.of(take, lambda _: answered.set()))
    stream.open()
    try:
        names = pa.array([f"name {number}" for number in range(_ROWS)])
        batch = pa.RecordBatch.from_arrays([pa.array(range(_ROWS), pa.int64()), names], schema=stream.query.run_schema)
        stream.put(pack(batch), "warm-up")
        answered.wait(WARM_S)
        expected = sum(name.endswith("1") for name in names.to_pylist())
        if rows != [expected]:
            raise RefusedError(f"the warm-up query returned {rows} rows instead of {expected}")
    finally:
        stream.close()
