"""What is known of a query that sets watermarks or timers itself, before it runs over a stream."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from engines.query.known import understand
from infra.messages import OpenQuery, QueryPlan
from tests.hybrid.site import USER

pytestmark = pytest.mark.spark

DDL = "id STRING, customer STRING, shop INT, amount INT, ok BOOLEAN, at TIMESTAMP, sent TIMESTAMP, note STRING"
BY_MINUTE = "SELECT window(at, '1 minute').start AS s, count(*) AS n FROM {timed} GROUP BY window(at, '1 minute')"


def plan_of(spark: SparkSession, *, sql: str = "", function: str = "") -> QueryPlan:
    code_path = USER if function else ""
    spec = OpenQuery(query="q", epoch=1, schema_ddl=DDL, sql=sql, function=function, code_path=code_path)
    return understand(spark, spec).plan


def sent_columns(plan: QueryPlan) -> set[str] | None:
    return None if plan.needed_schema is None else set(pa.ipc.read_schema(pa.py_buffer(plan.needed_schema)).names)


def test_a_column_of_which_only_a_watermark_is_computed_is_sent(spark: SparkSession) -> None:
    found = plan_of(spark, function="streaming_functions:joined_by_two_clocks")
    assert sent_columns(found) == {"customer", "ok", "at", "sent"}
    uses = {use.column: use.other for use in found.uses or ()}
    assert uses["sent"] == "the watermark is computed from it"


def test_a_watermark_in_sql_counts_too(spark: SparkSession) -> None:
    timed = "(SELECT at, ok FROM events WATERMARK at DELAY OF INTERVAL 10 SECONDS)"
    assert sent_columns(plan_of(spark, sql=BY_MINUTE.format(timed=timed))) == {"at"}
    ok = f"{timed} WHERE ok OR at IS NULL"
    assert sent_columns(plan_of(spark, sql=BY_MINUTE.format(timed=ok))) == {"at", "ok"}


def test_of_a_watermark_of_an_expression_everything_is_sent(spark: SparkSession) -> None:
    timed = "(SELECT to_timestamp(note) AS at FROM events) WATERMARK at DELAY OF INTERVAL 10 SECONDS"
    found = plan_of(spark, sql=BY_MINUTE.format(timed=timed))
    assert (sent_columns(found), found.predicates, found.uses) == (None, (), None)
    assert found.trim_note.startswith("everything is sent, because it is not known from which columns")


@pytest.mark.parametrize(
    ("function", "mode"),
    [
        ("alarms_in_pandas", "ProcessingTime"),
        ("forgotten_in_pandas", "ProcessingTime"),
        ("counts_until_it_is_late", "ProcessingTimeTimeout"),
    ],
)
def test_state_with_timers_of_the_machines_clock_stays_where_it_is(
    spark: SparkSession, function: str, mode: str
) -> None:
    found = plan_of(spark, function=f"state_functions:{function}")
    assert (found.stateful, found.movable, found.switch_class) == (True, False, "whole")
    assert f"it runs: timers of the machine's clock ({mode})" in found.reason


@pytest.mark.parametrize("function", ["silence_in_pandas", "running_sums", "sessions_by_timeout", "running_counts"])
def test_other_state_moves(spark: SparkSession, function: str) -> None:
    assert plan_of(spark, function=f"state_functions:{function}").movable


def test_the_functions_are_where_hosts_look_for_them() -> None:
    assert {"streaming_functions.py", "state_functions.py"} <= {path.name for path in Path(USER).iterdir()}
