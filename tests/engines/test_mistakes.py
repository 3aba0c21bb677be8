"""A mistake in a query gives one sentence that says what to write; each mistake is found by Spark."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from engines.query.known import RefusedError, understand
from engines.streamable import check_streams
from infra.messages import EventTime, OpenQuery

DDL = "id BIGINT, sender STRING, sent TIMESTAMP"
COLUMNS = "its columns are id, sender, sent"

FEW = "CREATE TEMP VIEW few AS SELECT id AS number, sender FROM events"


def refused(spark: SparkSession, sql: str, event_time: EventTime | None = None) -> str:
    with pytest.raises(RefusedError) as caught:
        check_streams(understand(spark, OpenQuery(query="q", epoch=0, schema_ddl=DDL, sql=sql, event_time=event_time)))
    return str(caught.value)


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        (
            "SELECT sendr FROM events",
            f'query q: there is no column "sendr" in the view events; the nearest is "sender" ({COLUMNS})',
        ),
        (
            "SELECT e.Sendr FROM events e",
            f'query q: there is no column "Sendr" in the view events; the nearest is "sender" ({COLUMNS})',
        ),
        (
            "SELECT id FROM events WHERE qqqqqq > 1",
            f'query q: there is no column "qqqqqq" in the view events ({COLUMNS})',
        ),
        (
            "WITH few AS (SELECT id AS number FROM events) SELECT sender FROM few",
            'query q: there is no column "sender" where it is used; there is "number"',
        ),
        (
            "SELECT id FROM event",
            'query q: there is no table or view "event": the query\'s events are in the view "events"; write "events"',
        ),
        (
            f"{FEW}; SELECT sendr FROM few",
            'query q: statement 2: there is no column "sendr" where it is used; there is "sender", "number"',
        ),
        (
            f"{FEW}; CREATE TEMP VIEW more AS SELECT * FROM fews; SELECT 1",
            (
                'query q: statement 2 (view more): there is no table or view "fews": the query\'s events are in the '
                'view "events"; write "few"'
            ),
        ),
        (
            "SELECT id FROM customers",
            'query q: there is no table or view "customers": the query\'s events are in the view "events"',
        ),
    ],
)
def test_a_wrong_name_is_said_with_the_nearest_right_one(spark: SparkSession, sql: str, says: str) -> None:
    assert refused(spark, sql) == says


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        ("SELECT count(*) n FROM events", "without a watermark"),
        ("SELECT DISTINCT sender FROM events", "without a watermark"),
        ("SELECT sender FROM events ORDER BY id", "Sorting is not supported"),
        ("SELECT row_number() OVER (PARTITION BY sender ORDER BY id) n FROM events", "has no end over a stream"),
        ("SELECT id FROM events WHERE id > (SELECT max(id) FROM events)", "a subquery reads the stream"),
        ("SELECT 1 AS one", "does not read the view events"),
    ],
)
def test_what_cannot_run_over_a_stream_is_said_without_starting_it(spark: SparkSession, sql: str, says: str) -> None:
    assert says in refused(spark, sql)


SENT = EventTime(column="sent", lateness_ms=10_000)


def test_two_watermarks_are_refused(spark: SparkSession) -> None:
    sql = (
        "SELECT window(sent, '1 minute') AS minute, count(*) AS n FROM events "
        "WATERMARK sent DELAY OF INTERVAL 10 MINUTES GROUP BY window(sent, '1 minute')"
    )
    assert "event_time sets the watermark of its events, and its sql" in refused(spark, sql, SENT)


def test_an_event_time_that_is_no_timestamp_of_the_schema_is_refused(spark: SparkSession) -> None:
    says = "query q: event_time: the schema has no TIMESTAMP column 'sender'; its columns are id, sender, sent"
    assert refused(spark, "SELECT id FROM events", EventTime(column="sender", lateness_ms=0)) == says


def test_what_the_advice_says_runs(spark: SparkSession) -> None:
    sql = (
        "SELECT window(sent, '1 minute') AS minute, count(*) AS n FROM events "
        "WATERMARK sent DELAY OF INTERVAL 10 MINUTES GROUP BY window(sent, '1 minute')"
    )
    understood = understand(spark, OpenQuery(query="q", epoch=0, schema_ddl=DDL, sql=sql))
    check_streams(understood)
    assert understood.plan.switch_class == "whole"
    unmarked = "SELECT window(sent, '1 minute') AS minute, count(*) AS n FROM events GROUP BY window(sent, '1 minute')"
    check_streams(understand(spark, OpenQuery(query="q", epoch=0, schema_ddl=DDL, sql=unmarked, event_time=SENT)))
