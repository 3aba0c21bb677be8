"""Micro-batches of a real query on real Spark, timed."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from engines.query.known import understand
from engines.streaming.feed import FeedServer
from engines.timing import Timed, time_batches, time_in_order
from infra.clock import SystemClock
from infra.messages import OpenQuery

pytestmark = pytest.mark.spark


def test_larger_batches_take_longer(spark: SparkSession) -> None:
    sql = "SELECT id, sha2(repeat(cast(id AS STRING), 200), 512) AS digest FROM events"
    query = understand(spark, OpenQuery(query="timed", epoch=0, schema_ddl="id BIGINT", sql=sql))
    events = pa.RecordBatch.from_arrays([pa.array(range(40_000), pa.int64())], schema=query.input_schema)
    told: list[Timed] = []

    def cut(first: int, end: int) -> pa.RecordBatch:
        return events.slice(first, end - first)

    timed = time_batches(query, cut, (1, 10, 40_000), repeats=3, clock=SystemClock(), runs=(1, 4), tell=told.append)
    assert timed == told
    shapes = [(1, 1)] * 3 + [(10, 1)] * 3 + [(10, 4)] * 3 + [(40_000, 1)] * 3 + [(40_000, 4)] * 3
    assert sorted((one.events, one.runs) for one in timed) == sorted(shapes)
    small, large = (min(one.batch_s for one in timed if one.events == n) for n in (10, 40_000))
    assert 0 < small < large


def test_a_query_with_state_gets_each_event_once_and_in_order(
    spark: SparkSession, feeds: FeedServer, tmp_path: Path
) -> None:
    sql = """
        SELECT DISTINCT id, at, sha2(repeat(cast(id AS STRING), 200), 512) AS digest
        FROM events WATERMARK at DELAY OF INTERVAL 1 HOUR
    """
    query = understand(spark, OpenQuery(query="timed", epoch=0, schema_ddl="id BIGINT, at TIMESTAMP", sql=sql))
    assert query.plan.stateful
    ids = pa.array(range(40_020), pa.int64())
    events = pa.RecordBatch.from_arrays([ids, ids.cast(query.input_schema.field("at").type)], schema=query.input_schema)
    told: list[Timed] = []
    timed = time_in_order(
        query, feeds, events, (10, 20_000), repeats=2, clock=SystemClock(), folder=tmp_path, tell=told.append
    )
    assert timed == told
    assert sorted(one.events for one in timed) == [10, 10, 20_000, 20_000]
    small, large = (min(one.batch_s for one in timed if one.events == n) for n in (10, 20_000))
    assert 0 < small < large
