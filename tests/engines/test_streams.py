from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from engines.query.known import KnownQuery, RefusedError, understand
from engines.streamable import check_streams
from gateway.config.queries import QueryConfig
from gateway.views.check.checking import opening
from infra.payload.predicates import kept_rows

AT = {"event_time": {"column": "at", "lateness": "10s"}}
ORDERS = "id BIGINT, customer STRING NOT NULL, amount INT, at TIMESTAMP, note STRING"
PAYMENTS = "id STRING, customer STRING COMMENT 'who', paid INT, at TIMESTAMP"
ON = "o.customer = p.customer AND p.at BETWEEN o.at AND o.at + INTERVAL 1 MINUTE"


def config(sql: str, timed: dict[str, Any] | None = None, **more: Any) -> QueryConfig:
    source = {"source": {"type": "mqtt", "host": "broker", "topics": ["t"]}}
    sources = {"orders": {**source, "schema": ORDERS}, "payments": {**source, "schema": PAYMENTS}}
    sink = {"type": "file", "path": "out"}
    return QueryConfig.model_validate(
        {
            "sources": {name: {**each, **(AT if timed is None else timed)} for name, each in sources.items()},
            "sql": sql,
            "sink": sink,
            "qos": {"latency": "2s"},
            **more,
        }
    )


def analysed(spark: SparkSession, query: QueryConfig) -> KnownQuery:
    found = understand(spark, opening("q", query, ""))
    check_streams(found)
    return found


def sent(query: KnownQuery) -> list[str]:
    assert query.plan.needed_schema is not None
    return list(pa.ipc.read_schema(pa.py_buffer(query.plan.needed_schema)).names)


def test_columns_of_one_name_and_type_are_one_column() -> None:
    query = config("SELECT 1 FROM orders")
    assert query.schema_ddl == (
        "`_stream` STRING, `orders.id` BIGINT, `customer` STRING, `amount` INT, `at` TIMESTAMP, `note` STRING, "
        "`payments.id` STRING, `paid` INT"
    )
    orders, payments = query.streams
    assert dict(orders.columns) == {"id": "orders.id", **{n: n for n in ("customer", "amount", "at", "note")}}
    assert dict(payments.columns) == {"id": "payments.id", **{n: n for n in ("customer", "paid", "at")}}


def test_a_join_of_sources_is_keyed_by_the_column_that_it_joins_on(spark: SparkSession) -> None:
    found = analysed(spark, config(f"SELECT o.id, p.paid FROM orders o JOIN payments p ON {ON} WHERE o.amount > 5"))
    assert (found.plan.switch_class, found.plan.keys, found.plan.movable) == ("keyed", ("customer",), True)
    assert sent(found) == ["_stream", "orders.id", "customer", "amount", "at", "paid"]
    assert found.result_schema.names == ["id", "paid"]


def test_sources_put_together_have_no_state_and_only_the_rows_of_their_conditions_are_sent(
    spark: SparkSession,
) -> None:
    sql = "SELECT id, at FROM orders WHERE amount > 5 UNION ALL SELECT CAST(id AS BIGINT), at FROM payments"
    found = analysed(spark, config(sql))
    assert (found.plan.switch_class, found.plan.switchable) == ("stateless", True)
    rows = pa.RecordBatch.from_pylist(
        [
            {"_stream": "orders", "amount": 6},
            {"_stream": "orders", "amount": 5},
            {"_stream": "payments", "amount": None},
        ],
        schema=found.input_schema,
    )
    assert kept_rows(rows, found.plan.predicates).tolist() == [0, 2]


def test_a_watermark_of_one_view_alone_is_enough_for_its_windows(spark: SparkSession) -> None:
    sql = "SELECT window.start AS s, count(*) AS n FROM payments GROUP BY window(at, '1 minute')"
    assert sent(analysed(spark, config(sql))) == ["_stream", "at"]
    with pytest.raises(RefusedError, match="aggregates without a watermark"):
        analysed(spark, config(sql, {}))


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        ("SELECT * FROM odrers", r'events are in the views "orders", "payments"; write "orders"'),
        ("SELECT nope FROM orders", 'there is no column "nope" where it is used; there is "note"'),
        (
            "SELECT count(*) AS n FROM orders WATERMARK at DELAY OF INTERVAL 1 MINUTE GROUP BY window(at, '1 minute')",
            "event_time sets the watermark of its events, and its sql",
        ),
    ],
)
def test_mistakes_are_told_in_the_words_of_the_sources(spark: SparkSession, sql: str, says: str) -> None:
    with pytest.raises(RefusedError, match=says):
        analysed(spark, config(sql))
