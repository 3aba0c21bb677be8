"""Behaviour of PySpark 4.3 on which the host relies and which is not documented."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import spark_partition_id

from engines.query.known import KnownQuery, understand
from engines.spark.scratch import scratch_folder
from engines.spark.session import runtime_ahead, runtime_of, sibling
from engines.streaming.feed import Feed, FeedServer, pack, stream_of
from engines.streaming.stream import Stream
from infra.clock import SystemClock
from infra.messages import OpenQuery
from tests.engines.stream_bench import DEADLINE_S, Bench

pytestmark = pytest.mark.spark


class Watched:
    """A bare stream whose batches the test sees itself."""

    def __init__(self, spark: SparkSession, feeds: FeedServer, sql: str) -> None:
        spec = OpenQuery(query="facts", epoch=1, schema_ddl="n INT", sql=sql)
        self.query: KnownQuery = understand(spark, spec)
        self.feed = Feed(0, 8, 1 << 20, SystemClock())
        self.planned_before_use: list[int] = []
        self.partitions: list[list[int]] = []
        self.deaths: list[str] = []
        self.changed = threading.Event()
        folder = scratch_folder("facts")
        self.stream = Stream(self.query, feeds, self.feed, folder, self._batch, self._died)

    def batch_of(self, *numbers: int) -> pa.RecordBatch:
        return pa.RecordBatch.from_pydict({"n": pa.array(numbers, pa.int32())}, self.query.input_schema)

    def _batch(self, frame: DataFrame, _: int) -> None:
        self.planned_before_use.append(len(self.feed.planned))
        self.partitions.append(frame.select(spark_partition_id().alias("p")).toArrow().column("p").to_pylist())
        self.changed.set()

    def _died(self, reason: str) -> None:
        self.deaths.append(reason)
        self.changed.set()


@pytest.fixture
def watched(spark: SparkSession, feeds: FeedServer) -> Iterator[Watched]:
    watched = Watched(spark, feeds, "SELECT n FROM events")
    yield watched
    watched.stream.stop()


def test_partitions_are_planned_before_foreach_batch_is_called(watched: Watched) -> None:
    watched.feed.put(pack(watched.batch_of(1, 2)))
    watched.feed.put([])
    watched.feed.put(pack(watched.batch_of(3)))
    watched.stream.start()
    assert watched.changed.wait(DEADLINE_S)
    assert watched.planned_before_use == [3]
    assert watched.partitions == [[0, 0, 1]]


def test_a_batch_of_no_partitions_still_comes(watched: Watched) -> None:
    watched.feed.put([])
    watched.stream.start()
    assert watched.changed.wait(DEADLINE_S)
    assert (watched.planned_before_use, watched.partitions) == ([1], [[]])


def test_the_source_refuses_other_arrow_types(watched: Watched) -> None:
    watched.feed.put([stream_of(pa.RecordBatch.from_pydict({"n": pa.array([1], pa.int64())}))])
    watched.stream.start()
    assert watched.changed.wait(DEADLINE_S)
    assert "DATA_SOURCE_RETURN_SCHEMA_MISMATCH" in watched.deaths[0]


def test_a_sibling_has_views_of_its_own_and_every_setting(spark: SparkSession) -> None:
    one, other = sibling(spark), sibling(spark)
    one.range(1).createOrReplaceTempView("events")
    assert not other.catalog.tableExists("events")
    assert other.conf.get("spark.sql.streaming.noDataMicroBatches.enabled") == "false"


def test_what_is_announced_is_what_runs(spark: SparkSession) -> None:
    assert runtime_ahead().differences(runtime_of(sibling(spark))) == []


def test_types_come_back_as_announced(bench: Bench) -> None:
    schema = (
        "s STRING, i INT, b BIGINT, ok BOOLEAN, d DOUBLE, f FLOAT, t TIMESTAMP, day DATE, amount DECIMAL(10, 2), "
        "raw BINARY, tags ARRAY<STRING>, inner STRUCT<a: INT, t: TIMESTAMP>, m MAP<STRING, INT>, small SMALLINT, "
        "tiny TINYINT"
    )
    running = bench.open("SELECT * FROM events", schema=schema)
    full = {"s": "ä", "i": -1, "tags": ["x", None], "inner": {"a": 1}, "m": [("k", 1)], "raw": b"\0"}
    one = running.batch_of([full, {}])
    running.stream.put(pack(one), "types", 0, 0)
    (answer,) = running.collected.wait(1)
    assert answer.rows.schema.equals(running.stream.query.result_schema)
    assert answer.rows == one
