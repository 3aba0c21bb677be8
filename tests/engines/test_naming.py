"""Results name their events, and are the same otherwise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 -- Spark's own habit

from engines.query.outputs.naming import naming
from engines.spark.session import sibling
from infra.messages import NAMES, NAMES_DDL

pytestmark = pytest.mark.spark

Query = str | Callable[[DataFrame], DataFrame]
DDL = f"id BIGINT, shop INT, note STRING, tags ARRAY<STRING>, {NAMES_DDL}"
STATIC = "(VALUES (1, 'a'), (2, 'b'), (2, 'c')) v(shop, name)"
ROWS = [
    (number, number % 4 or None, f"n{number}", [str(each) for each in range(number % 3)], "t", number % 2, 100 + number)
    for number in range(24)
]
PASSING: tuple[Query, ...] = (
    "SELECT * FROM events",
    "SELECT note FROM events WHERE id % 3 = 0",
    "SELECT 1 AS one FROM events",
    "SELECT id, tag FROM events LATERAL VIEW OUTER explode(tags) t AS tag",
    "SELECT id, explode(tags) AS tag FROM events",
    f"SELECT id, name FROM events JOIN {STATIC} USING (shop)",
    f"SELECT id, name FROM {STATIC} JOIN events USING (shop)",
    f"SELECT id, name FROM events LEFT JOIN {STATIC} USING (shop)",
    f"SELECT id FROM events LEFT SEMI JOIN {STATIC} USING (shop)",
    f"SELECT id FROM events LEFT ANTI JOIN {STATIC} USING (shop)",
    "WITH t AS (SELECT id, shop FROM events), u AS (SELECT * FROM t WHERE shop > 1) SELECT id * 2 AS twice FROM u",
    "SELECT e.id FROM (SELECT id, note FROM events WHERE shop IS NOT NULL) e WHERE e.note <> 'n7'",
    lambda events: events.withColumn("tag", F.explode("tags")).drop("tags").where("id > 3"),
    lambda events: events.select(F.udf(lambda n: n + 1, "bigint")("id").alias("next")),
)
DROPPING: tuple[Query, ...] = (
    "SELECT count(*) AS n FROM events",
    "SELECT DISTINCT note FROM events",
    "SELECT id FROM events UNION ALL SELECT shop FROM events",
    "SELECT id, row_number() OVER (PARTITION BY shop ORDER BY id) AS n FROM events",
    "SELECT 1 AS one",
    lambda events: events.mapInPandas(lambda batches: batches, events.schema),
)


def built(query: Query) -> Callable[[DataFrame], DataFrame]:
    def build(events: DataFrame) -> DataFrame:
        if not isinstance(query, str):
            return query(events)
        events.createOrReplaceTempView("events")
        return events.sparkSession.sql(query)

    return build


def rows_of(spark: SparkSession) -> DataFrame:
    return sibling(spark).createDataFrame(ROWS, DDL)


def told(frame: DataFrame) -> list[dict[str, Any]]:
    return sorted((row.asDict(recursive=True) for row in frame.collect()), key=str)


@pytest.mark.parametrize("query", PASSING, ids=range(len(PASSING)))
def test_each_result_names_its_event(spark: SparkSession, query: Query) -> None:
    build, events = built(query), rows_of(spark)
    plain = build(events.drop(*NAMES))
    named = naming(build)(events)
    assert named.columns == [*plain.columns, *NAMES]
    assert told(named.drop(*NAMES)) == told(plain)
    # The oracle: the query over each event alone.
    alone: list[dict[str, Any]] = []
    for row in ROWS[::11]:
        event = events.sparkSession.createDataFrame([row], DDL)
        names = dict(zip(NAMES, row[-len(NAMES) :], strict=True))
        alone += [{**result, **names} for result in told(build(event.drop(*NAMES)))]
    offsets = {row[-1] for row in ROWS[::11]}
    assert [row for row in told(named) if row[NAMES[-1]] in offsets] == sorted(alone, key=str)


@pytest.mark.parametrize("query", DROPPING, ids=range(len(DROPPING)))
def test_a_plan_in_which_events_meet_has_no_names(spark: SparkSession, query: Query) -> None:
    build, events = built(query), rows_of(spark)
    named = naming(build)(events)
    assert named.columns == build(events.drop(*NAMES)).columns
