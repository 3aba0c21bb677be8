"""Micro-batches of a real query on real Spark, timed."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from engines.query.known import understand
from engines.streaming.feed import FeedServer
from engines.timing import Timed, time_batches
from infra.clock import SystemClock
from infra.messages import OpenQuery

pytestmark = pytest.mark.spark


def test_larger_batches_take_longer(spark: SparkSession, feeds: FeedServer) -> None:
    sql = "SELECT id, sha2(repeat(cast(id AS STRING), 200), 512) AS digest FROM events"
    query = understand(spark, OpenQuery(query="timed", epoch=0, schema_ddl="id BIGINT", sql=sql))
    events = pa.RecordBatch.from_arrays([pa.array(range(40_000), pa.int64())], schema=query.input_schema)
    told: list[Timed] = []
    timed = time_batches(
        query, feeds, events, (1, 10, 40_000), repeats=3, clock=SystemClock(), runs=(1, 4), tell=told.append
    )
    assert timed == told
    shapes = [(1, 1)] * 3 + [(10, 1)] * 3 + [(10, 4)] * 3 + [(40_000, 1)] * 3 + [(40_000, 4)] * 3
    assert sorted((one.events, one.runs) for one in timed) == sorted(shapes)
    small, large = (min(one.batch_s for one in timed if one.events == n) for n in (10, 40_000))
    assert 0 < small < large
