"""What ``spillway profile`` lets Spark work on for a query with selections, and what it measures of Spark's plan."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from msgspec import structs
from pyspark.sql import SparkSession

from engines.email.queries import EMAIL_SQL, SCHEMA_DDL
from engines.query.known import KnownQuery, understand
from engines.timing import time_batches
from gateway.config.queries import QueryConfig
from gateway.simulate.parameters.profilingruns import ProfileError, RunsOfSelections
from gateway.simulate.parameters.sentpart import sent_part
from infra.clock import SystemClock
from infra.messages import OpenQuery, SelectionRule
from tests.simulated.mail_events import mails

pytestmark = pytest.mark.spark

FIVE = SelectionRule(column="", each_ms=0, each_events=1, after_ms=0, events=5, most_events=100, most_open=100)
SQL = "SELECT selection, sum(id) AS total FROM events GROUP BY selection"


def known(spark: SparkSession, rule: SelectionRule) -> KnownQuery:
    return understand(spark, OpenQuery(query="sums", epoch=0, schema_ddl="id BIGINT", sql=SQL, selections=rule))


def some(count: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"id": pa.array(range(count), pa.int64())})


def test_a_run_has_each_event_once_for_each_selection_that_it_closes(spark: SparkSession) -> None:
    query = known(spark, FIVE)
    runs = RunsOfSelections("sums", query, some(800))
    assert runs.most_events == 400
    for size in (1, 10, 400):
        rows = runs.rows(0, size)
        assert rows.num_rows == 5 * size
        assert len(set(rows.column("selection").to_pylist())) == size
    timed = time_batches(query, runs.rows, (1, 400), repeats=2, clock=SystemClock())
    assert sorted(one.events for one in timed) == [1, 1, 400, 400]


def test_a_typical_run_counts(spark: SparkSession) -> None:
    each_fourth = structs.replace(FIVE, each_events=4)
    runs = RunsOfSelections("sums", known(spark, each_fourth), some(800))
    assert [runs.rows(0, size).num_rows for size in (1, 4, 40)] == [0, 5, 50]


def test_without_a_selection_that_closes_nothing_can_be_measured(spark: SparkSession) -> None:
    never = structs.replace(FIVE, events=1_000, most_events=1_000)
    with pytest.raises(ProfileError, match=r"query sums: its first 800 events close no selection.*a longer file"):
        RunsOfSelections("sums", known(spark, never), some(800)).rows(0, 10)


def test_what_crosses_the_wan_follows_from_sparks_plan(spark: SparkSession, tmp_path: Path) -> None:
    plan = understand(spark, OpenQuery(query="mail", epoch=0, schema_ddl=SCHEMA_DDL, sql=EMAIL_SQL))
    said = {
        "source": {"type": "file", "path": str(tmp_path), "follow": True},
        "schema": SCHEMA_DDL,
        "sql": EMAIL_SQL,
        "sink": {"type": "file", "path": "out"},
        "qos": {"latency": "2s"},
        "runs": {"max_events": 50},
    }
    events = mails().cast(plan.input_schema)
    for codecs, least, most in (("none", 0.7, 0.95), ({"body": "zstd-dict"}, 0.25, 0.5)):
        query = QueryConfig.model_validate(said | {"payload": {"compress": codecs}})
        found = sent_part("mail", query, plan.plan, events)
        assert found is not None
        assert least < found.part < most
