"""A plan that is kept gives the results of one that is made anew, whatever the rows are."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import spark_partition_id, udf

from engines.query import schemas
from engines.spark.session import sibling
from engines.streaming.batches import frame_of
from engines.streaming.feed import stream_of
from engines.streaming.keptplan import KeptPlan
from tests.engines.stream_bench import Bench

pytestmark = pytest.mark.spark

DDL = "id BIGINT, name STRING, at TIMESTAMP, price DECIMAL(10, 2), tags ARRAY<STRING>, place STRUCT<x: INT, y: DOUBLE>"
QUERIES = {
    "all": "SELECT * FROM events",
    "filter and arithmetic": "SELECT id * 2 AS double, price * 3 AS price FROM events WHERE name LIKE '%1%'",
    "explode": "SELECT id, tag, place.y FROM events LATERAL VIEW explode(tags) AS tag",
    "outer explode": "SELECT id, tag FROM events LATERAL VIEW OUTER explode(tags) AS tag",
    "times": "SELECT date_trunc('HOUR', at) AS hour, date_format(at, 'yyyy-MM-dd') AS day FROM events",
    "nested": "SELECT named_struct('id', id, 'tags', tags) AS both, array(id, id + 1) AS ids FROM events",
    "join": "SELECT id, v.s FROM events JOIN (VALUES (1, 'a'), (2, 'b'), (2, 'c')) v(k, s) ON id % 5 = v.k",
    "two joins": "SELECT id, a.s, b.s AS t FROM events LEFT JOIN (VALUES (1, 'a')) a(k, s) ON id % 5 = a.k "
    "JOIN (VALUES (1, 'b'), (0, 'c')) b(k, s) ON id % 2 = b.k",
    "nothing left": "SELECT id FROM events WHERE name = 'nobody'",
}


class Rows:
    """Makes rows at random, as micro-batches have them."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.session = sibling(spark)
        columns = schemas.struct_of(spark, DDL)
        self._columns, self._schema, self._path = columns.json(), schemas.arrow_of(columns), folder / "rows"

    def frame(self, draw: random.Random) -> DataFrame:
        return self.of([[row(draw) for _ in range(draw.randint(0, 9))] for _ in range(draw.randint(1, 4))])

    def of(self, parts: Sequence[Sequence[dict[str, Any]]]) -> DataFrame:
        streams = [stream_of(pa.RecordBatch.from_pylist(list(part), self._schema)) for part in parts]
        return frame_of(self.session, self._columns, streams, self._path)

    def query(self, sql: str) -> Callable[[DataFrame], DataFrame]:
        def build(events: DataFrame) -> DataFrame:
            events.createOrReplaceTempView("events")
            return self.session.sql(sql).select("*", spark_partition_id().alias("part"))

        return build


def row(draw: random.Random) -> dict[str, Any]:
    made = {
        "id": draw.randint(0, 99),
        "name": f"name {draw.randint(0, 20)}",
        "at": datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=draw.randint(0, 10**7)),
        "price": Decimal(draw.randint(0, 10**6)) / 100,
        "tags": [f"t{draw.randint(0, 9)}" for _ in range(draw.randint(0, 3))],
        "place": {"x": draw.randint(0, 9), "y": draw.random()},
    }
    return {name: None if draw.random() < 0.1 and name != "id" else value for name, value in made.items()}


@pytest.fixture
def made(spark: SparkSession, tmp_path: Path) -> Rows:
    return Rows(spark, tmp_path)


@pytest.mark.parametrize("sql", QUERIES.values(), ids=QUERIES.keys())
def test_results_are_those_of_a_new_plan(made: Rows, sql: str) -> None:
    build, draw = made.query(sql), random.Random(sql)
    kept = KeptPlan(build, made.frame(draw))
    assert kept.kept
    for _ in range(4):
        rows = made.frame(draw)
        expected, found = build(rows).toArrow(), kept.evaluate(rows)
        assert found.schema.types == expected.schema.types
        assert found.to_pylist() == expected.to_pylist()


def test_python_functions_are_evaluated_for_each_row(made: Rows) -> None:
    shout = udf(lambda text: None if text is None else text.upper() + "!", "STRING")

    def build(events: DataFrame) -> DataFrame:
        return events.where("id % 2 = 0").select("id", shout("name").alias("loud"))

    draw = random.Random(1)
    kept = KeptPlan(build, made.frame(draw))
    for _ in range(3):
        rows = made.frame(draw)
        wanted = [
            {"id": row["id"], "loud": None if row["name"] is None else row["name"].upper() + "!"}
            for row in rows.toArrow().to_pylist()
            if row["id"] % 2 == 0
        ]
        assert kept.evaluate(rows).to_pylist() == wanted


def test_a_query_is_built_once(made: Rows) -> None:
    built = 0

    def build(events: DataFrame) -> DataFrame:
        nonlocal built
        built += 1
        return events.select("id")

    draw = random.Random(2)
    kept = KeptPlan(build, made.frame(draw))
    for _ in range(3):
        rows = made.frame(draw)
        assert kept.evaluate(rows).to_pylist() == rows.select("id").toArrow().to_pylist()
    assert built == 1


def test_a_plan_without_the_rows_is_made_for_each_micro_batch(made: Rows) -> None:
    build = made.query("SELECT id, count(*) AS n FROM events GROUP BY id ORDER BY id")
    kept = KeptPlan(lambda events: build(events.cache()), made.of([[]]))
    assert not kept.kept
    rows = made.of([[{"id": 1}, {"id": 2}], [{"id": 1}]])
    assert [(row["id"], row["n"]) for row in kept.evaluate(rows).to_pylist()] == [(1, 2), (2, 1)]


def test_a_row_that_fails_leaves_the_plan_usable(made: Rows) -> None:
    kept = KeptPlan(made.query("SELECT CAST(name AS INT) AS n FROM events"), made.of([[]]))
    for text in ("1", "x", "2"):
        rows = made.of([[{"id": 1, "name": text}]])
        if text == "x":
            with pytest.raises(Exception, match="CAST_INVALID_INPUT"):
                kept.evaluate(rows)
        else:
            assert kept.evaluate(rows).column("n").to_pylist() == [int(text)]


def test_a_time_is_that_of_each_micro_batch(bench: Bench) -> None:
    running = bench.open("SELECT id, current_timestamp() AS now FROM events")
    times = []
    for number in range(3):
        running.put(number, [{"id": number}])
        (found,) = running.results(number + 1)[number]
        times.append(found["now"])
    assert times == sorted(set(times))
