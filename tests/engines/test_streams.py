from __future__ import annotations

import dataclasses
import datetime as dt
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from msgspec.structs import replace
from pyspark.sql import DataFrame, SparkSession

from engines.query.known import KnownQuery, RefusedError, understand
from engines.query.plan import with_event_time
from engines.streamable import check_streams
from gateway.config.queries import QueryConfig
from gateway.query.flow.keyed.split import split
from gateway.query.flow.run import Run
from gateway.views.check.checking import opening
from infra.messages import OpenQuery, Predicate, QueryPlan
from infra.payload.predicates import kept_rows
from tests.engines.stream_bench import Bench, Running

AT = {"event_time": {"column": "at", "lateness": "10s"}}
ORDERS = "id BIGINT, customer STRING NOT NULL, amount INT, at TIMESTAMP, note STRING"
PAYMENTS = "id STRING, customer STRING COMMENT 'who', paid INT, at TIMESTAMP"
ON = "o.customer = p.customer AND p.at BETWEEN o.at AND o.at + INTERVAL 1 MINUTE"


def config(
    sql: str, timed: dict[str, Any] | None = None, orders: dict[str, Any] | None = None, **more: Any
) -> QueryConfig:
    source = {"source": {"type": "mqtt", "host": "broker", "topics": ["t"]}}
    sources = {"orders": {**source, "schema": ORDERS}, "payments": {**source, "schema": PAYMENTS}}
    sink = {"type": "file", "path": "out"}
    return QueryConfig.model_validate(
        {
            "sources": {name: {**each, **(AT if timed is None else timed)} for name, each in sources.items()}
            | ({"orders": {**sources["orders"], **orders}} if orders else {}),
            "sql": sql,
            "sink": sink,
            "qos": {"latency": "2s"},
            **more,
        }
    )


def analysed(spark: SparkSession, query: QueryConfig) -> KnownQuery:
    found = understand(spark, opening("q", query, "", Path()))
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


def test_of_a_condition_by_stream_all_stays_that_says_nothing_of_the_event_time() -> None:
    def both(*children: Predicate) -> Predicate:
        return Predicate(op="and", children=children)

    stream = [Predicate(op="eq", column=("_stream",), value=name) for name in ("orders", "payments")]
    paid, timed = Predicate(op="gt", column=("paid",), value=1), Predicate(op="not_null", column=("at",))
    schema = pa.schema([("_stream", pa.string()), ("paid", pa.int32()), ("at", pa.timestamp("us", "UTC"))])

    def left(*children: Predicate) -> tuple[Predicate, ...]:
        found = QueryPlan(
            switch_class="keyed", narrow=False, switchable=False, predicates=(Predicate(op="or", children=children),)
        )
        return with_event_time(found, "at", schema).predicates

    by_stream = left(both(stream[0], timed), both(stream[1], timed, paid))
    assert by_stream == (Predicate(op="or", children=(both(stream[0]), both(stream[1], paid))),)
    assert left(both(paid, timed), both(stream[1])) == (), "Spark evaluates this above the watermark"


BEGIN, EPOCH = (dt.datetime(year, 1, 2, tzinfo=dt.UTC) for year in (2026, 1970))
KEYED = {"switching": {"mode": "keys", "key": "customer", "parts": 2}}
OUTER = (
    "SELECT o.id, p.paid FROM orders o LEFT JOIN payments p ON o.customer = p.customer AND o.amount > 2 AND p.paid > 1 "
    "AND p.at BETWEEN o.at AND o.at + INTERVAL 20 SECONDS"
)


def some_runs(schema: pa.Schema) -> list[pa.RecordBatch]:
    """Runs of one stream each, with some keys that are null and some times in disorder."""
    draw, runs = random.Random(3), []
    for number in range(10):
        stream = draw.choice(["orders", "payments"])
        rows = [
            {
                "_stream": stream,
                f"{stream}.id": at if stream == "orders" else f"p{at}",
                "customer": draw.choice([*"abcde", None]),
                "at": BEGIN + dt.timedelta(seconds=at / 2 - draw.choice([0, 4, 8, 60])),
                ("amount" if stream == "orders" else "paid"): draw.randint(0, 9),
            }
            for at in range(number * 12, number * 12 + 12)
        ]
        runs.append(pa.RecordBatch.from_pylist(rows, schema=schema))
    return runs


def rows_of(running: Running, runs: Sequence[pa.RecordBatch]) -> tuple[list[Counter[str]], list[list[Any]]]:
    """Return the results of each run, and the ids of those of its events that came too late."""
    for number, run in enumerate(runs):
        running.put(number, run.to_pylist(), number, number + 1)
    running.rows_until(len(runs))
    answers = running.collected.answers
    ids = [[row["orders.id"] or row["payments.id"] for row in run.to_pylist()] for run in runs]
    late = [[each[row] for row in answer.late.rows] for each, answer in zip(ids, answers, strict=True)]
    return [Counter(map(repr, answer.rows.to_pylist())) for answer in answers], late


def late_orders_by_hand(runs: Sequence[pa.RecordBatch]) -> list[list[int]]:
    """Return the orders of each run that are behind the newest event of the slower stream, two runs before."""
    newest = [{"orders": EPOCH, "payments": EPOCH}]
    for run in runs:
        counts = [row for row in run.to_pylist() if row["_stream"] == "orders" or (row["paid"] > 1 and row["customer"])]
        newest.append(dict(newest[-1]))
        for row in counts:
            newest[-1][row["_stream"]] = max(row["at"], newest[-1][row["_stream"]])
    marks = [min(each.values()) - dt.timedelta(seconds=10) for each in [newest[0], *newest]]
    return [
        [row["orders.id"] for row in run.to_pylist() if row["_stream"] == "orders" and row["at"] <= mark]
        for run, mark in zip(runs, marks, strict=False)
    ]


def test_parts_of_a_join_of_sources_give_the_rows_of_the_undivided_join_run_by_run(
    spark: SparkSession, bench: Bench, tmp_path: Path
) -> None:
    late = {"event_time": {"column": "at", "lateness": "10s", "late": "dead-letters"}}
    whole = opening("q", config(OUTER, orders=late), "", Path())
    assert whole.keep_late == ("orders",)
    undivided = understand(spark, whole)
    runs = some_runs(undivided.input_schema)
    keyed = config(OUTER, orders=late, **KEYED)
    pieces = [
        split(
            Run(n * 12, n * 12 + 11, run, 0.0, run.nbytes), "customer", 2, keyed.time_columns, undivided.plan.predicates
        )
        for n, run in enumerate(runs)
    ]

    def ran(spec: OpenQuery, each: Sequence[pa.RecordBatch]) -> tuple[list[Counter[str]], list[list[Any]]]:
        name = spec.query if spec.part is None else f"q~{spec.part.index}"
        placed = replace(
            spec, query=name, checkpoint_dir=str(tmp_path / name), analyse_only=False, max_batch_runs=1, epoch=1
        )
        known = understand(spark, placed)

        def build(events: DataFrame) -> DataFrame:
            events.sparkSession.conf.set("spark.sql.shuffle.partitions", "1")
            return known.build(events)

        return rows_of(bench.start(dataclasses.replace(known, build=build, warm=True)), each)

    expected, late_ids = ran(whole, runs)
    assert late_ids == late_orders_by_hand(runs)
    assert sum(map(len, late_ids)) >= 3
    spec = opening("q", keyed, "", Path())
    assert spec.part is not None
    found = [ran(replace(spec, part=replace(spec.part, index=i)), [of[i].batch for of in pieces]) for i in range(2)]
    assert [one + other for one, other in zip(*(rows for rows, _ in found), strict=True)] == expected
    assert [sorted(one + other) for one, other in zip(*(late for _, late in found), strict=True)] == late_ids
    assert any("None" in row for rows in expected for row in rows), "rows without a partner come with the watermark"
    assert sum(map(bool, expected)) >= 3
    beats = [sum(piece.batch.column("_heartbeat").to_pylist()) for of in pieces for piece in of]
    assert max(beats) == 1, "a run is of one stream"


def test_a_watermark_of_a_source_that_has_none_in_the_config_is_in_the_way_of_parts(spark: SparkSession) -> None:
    sql = (
        "SELECT customer, count(*) AS n FROM orders WATERMARK at DELAY OF INTERVAL 1 MINUTE "
        "GROUP BY customer, window(at, '1 minute')"
    )
    keyed = config(sql, {}, **KEYED)
    with pytest.raises(RefusedError, match="give the column and the lateness as event_time"):
        understand(spark, replace(opening("q", keyed, "", Path()), max_batch_runs=1))


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
