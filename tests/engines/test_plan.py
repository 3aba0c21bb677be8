"""The result of plan analysis for each kind of query."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own habit
from pyspark.sql.types import StringType, StructType

from engines.query import plan, schemas
from engines.spark.session import sibling
from infra.messages import Predicate, QueryPlan
from infra.payload import kept_rows

pytestmark = pytest.mark.spark

DDL = (
    "id STRING, n INT, big BIGINT, ok BOOLEAN, x DOUBLE, sent TIMESTAMP, sender STRING NOT NULL, tos ARRAY<STRING>, "
    "meta STRUCT<a: INT, b: STRING, deep: STRUCT<p: STRING, q: INT>>, items ARRAY<STRUCT<k: STRING, v: INT>>, "
    "m MAP<STRING, STRUCT<u: INT, w: INT>>, body STRING"
)
STATIC = "(VALUES (1, 'a'), (2, 'b')) v(k, s)"


class Analysed:
    def __init__(self, session: SparkSession, columns: StructType, events: DataFrame) -> None:
        self.session = session
        self.columns = columns
        self.events = events

    def __call__(self, query: str | Callable[[DataFrame], DataFrame]) -> QueryPlan:
        frame = self.session.sql(query) if isinstance(query, str) else query(self.events)
        return plan.analyse(frame, self.columns)


@pytest.fixture(scope="module")
def analysed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Analysed:
    session = sibling(spark)
    columns = schemas.struct_of(session, DDL)
    events = plan.empty_events(session, columns, tmp_path_factory.mktemp("plan"))
    events.createOrReplaceTempView("events")
    return Analysed(session, columns, events)


def numbers(events: DataFrame) -> DataFrame:
    return events.sparkSession.range(9).selectExpr("CAST(id AS INT) AS n")


def needed(found: QueryPlan) -> dict[str, str]:
    assert found.needed_schema is not None
    return {field.name: str(field.type) for field in pa.ipc.read_schema(pa.py_buffer(found.needed_schema))}


ALL = {
    "id": "string",
    "n": "int32",
    "big": "int64",
    "ok": "bool",
    "x": "double",
    "sent": "timestamp[us, tz=UTC]",
    "sender": "string",
    "tos": "list<element: string>",
    "meta": "struct<a: int32, b: string, deep: struct<p: string, q: int32>>",
    "items": "list<element: struct<k: string, v: int32>>",
    "m": "map<string, struct<u: int32, w: int32>>",
    "body": "string",
}
text = F.udf(lambda row: str(row), StringType())


@pytest.mark.parametrize(
    ("query", "columns"),
    [
        ("SELECT id, upper(sender) FROM events", {"id": "string", "sender": "string"}),
        ("SELECT ID FROM EVENTS", {"id": "string"}),
        ("SELECT id FROM events WHERE n > 3", {"id": "string", "n": "int32"}),
        ("SELECT meta.deep.p FROM events", {"meta": "struct<deep: struct<p: string>>"}),
        ("SELECT meta.b, meta.a FROM events", {"meta": "struct<a: int32, b: string>"}),
        ("SELECT items.k FROM events", {"items": "list<element: struct<k: string>>"}),
        ("SELECT i.v FROM events LATERAL VIEW explode(items) AS i", {"items": "list<element: struct<v: int32>>"}),
        ("SELECT m['a'].u FROM events", {"m": ALL["m"]}),
        ("SELECT transform(tos, t -> upper(t)) FROM events", {"tos": "list<element: string>"}),
        ("SELECT * FROM events", ALL),
        ("SELECT 1 AS one FROM events", {}),
        (
            "SELECT meta.a FROM events UNION ALL SELECT meta.deep.q FROM events",
            {"meta": "struct<a: int32, deep: struct<q: int32>>"},
        ),
        (f"SELECT id FROM events JOIN {STATIC} ON n = v.k", {"id": "string", "n": "int32"}),
        (lambda events: events.select(text("id")), {"id": "string"}),
        (lambda events: events.select(text(F.struct("*"))), ALL),
        (lambda events: events.where(text("body") == "x").select("id"), {"id": "string", "body": "string"}),
    ],
)
def test_only_needed_columns_are_sent(analysed: Analysed, query: Any, columns: dict[str, str]) -> None:
    assert needed(analysed(query)) == columns


def test_a_trimmed_column_may_be_null_though_the_ddl_says_not(analysed: Analysed) -> None:
    assert all(field.nullable for field in schemas.arrow_of(analysed.columns))


def is_(op: Any, column: str, value: Any = None) -> Predicate:
    return Predicate(op=op, column=tuple(column.split(".")), value=value)


@pytest.mark.parametrize(
    ("condition", "predicates"),
    [
        ("n > 3", [is_("not_null", "n"), is_("gt", "n", 3)]),
        ("3 >= n", [is_("not_null", "n"), is_("le", "n", 3)]),
        ("big = 5000000000", [is_("not_null", "big"), is_("eq", "big", 5_000_000_000)]),
        ("sender LIKE '%@enron.com'", [is_("not_null", "sender"), is_("ends_with", "sender", "@enron.com")]),
        ("sender LIKE 'a%'", [is_("not_null", "sender"), is_("starts_with", "sender", "a")]),
        ("contains(sender, 'ron')", [is_("not_null", "sender"), is_("contains", "sender", "ron")]),
        ("sender IN ('b', 'a')", [is_("in", "sender", ["a", "b"])]),
        ("n IN (9,8,7,6,5,4,3,2,1,0,11,12)", [is_("in", "n", [*range(10), 11, 12])]),
        ("ok", [is_("not_null", "ok"), is_("eq", "ok", True)]),
        ("x > 1.5", [is_("not_null", "x"), is_("gt", "x", 1.5)]),
        ("x <= 3", [is_("not_null", "x"), is_("le", "x", 3.0)]),
        ("id IS NULL", [is_("is_null", "id")]),
        ("tos IS NOT NULL", [is_("not_null", "tos")]),
        ("meta.deep.p = 'x'", [is_("not_null", "meta.deep.p"), is_("eq", "meta.deep.p", "x")]),
        ("n = 1 OR sender = 'x'", [Predicate(op="or", children=(is_("eq", "n", 1), is_("eq", "sender", "x")))]),
        ("NOT (n = 1)", [is_("not_null", "n"), Predicate(op="not", children=(is_("eq", "n", 1),))]),
        ("n <=> 1", [Predicate(op="and", children=(is_("not_null", "n"), is_("eq", "n", 1)))]),
    ],
)
def test_conditions_that_mean_the_same_before_the_wan(
    analysed: Analysed, condition: str, predicates: list[Predicate]
) -> None:
    found = analysed(f"SELECT id FROM events WHERE {condition}")
    assert sorted(map(str, found.predicates)) == sorted(map(str, predicates))
    assert found.trim_note == ""


@pytest.mark.parametrize(
    ("condition", "left"),
    [
        ("x IN (1.5, 2.5)", "IN"),
        ("x > 1.5F * n", "events.x >"),
        ("sent > TIMESTAMP'2020-01-01'", "events.sent >"),
        ("sender RLIKE 'a.b'", "RLIKE"),
        ("CAST(n AS STRING) = '3'", "CAST"),
        ("size(tos) > 1", "size"),
        ("n = 1 OR x > n", "events.x >"),
        ("n IN (1, NULL) OR ok", "IN"),
        ("upper(sender) = 'A'", "upper"),
        ("n = big", "big"),
    ],
)
def test_conditions_that_stay_with_spark_are_named(analysed: Analysed, condition: str, left: str) -> None:
    found = analysed(f"SELECT id FROM events WHERE {condition}")
    assert left in found.trim_note
    assert all(predicate.op == "not_null" for predicate in found.predicates)


@pytest.mark.parametrize(
    "literal", ["0.0D", "-0.0D", "1.5D", "CAST('Infinity' AS DOUBLE)", "CAST('-Infinity' AS DOUBLE)"]
)
def test_doubles_compare_before_the_wan_as_in_spark(analysed: Analysed, spark: SparkSession, literal: str) -> None:
    values = [None, math.nan, -math.inf, -0.0, 0.0, 1.5, 1.5000000000000002, math.inf]
    batch = pa.record_batch([pa.array(values, pa.float64())], names=["x"])
    frame = spark.createDataFrame(list(enumerate(values)), "n INT, x DOUBLE")
    for condition in (f"x {op} {literal}" for op in ("<", "<=", "=", ">=", ">", "<=>", "<>")):
        found = analysed(f"SELECT id FROM events WHERE {condition}")
        assert found.trim_note == "", condition
        kept = [row.n for row in frame.where(condition).orderBy("n").collect()]
        assert kept_rows(batch, found.predicates).tolist() == kept, condition


def test_what_one_branch_drops_the_other_may_need(analysed: Analysed) -> None:
    both = analysed("SELECT id FROM events WHERE n = 1 UNION ALL SELECT body FROM events WHERE ok IS NULL")
    (either,) = both.predicates
    assert either.op == "or"
    assert [[each.op for each in branch.children] for branch in either.children] == [["not_null", "eq"], ["is_null"]]
    assert analysed("SELECT id FROM events WHERE n = 1 UNION ALL SELECT body FROM events").predicates == ()


def test_what_all_branches_drop_no_row_may_lack(analysed: Analysed) -> None:
    joined = analysed("SELECT a.id FROM events a JOIN events b ON a.id = b.id WHERE a.n > 3")
    assert joined.predicates == (is_("not_null", "id"),)
    common, either = analysed(
        "SELECT id FROM events WHERE ok AND sender = 'x' UNION ALL SELECT id FROM events WHERE body = 'y' AND ok"
    ).predicates[-2:]
    assert common == is_("eq", "ok", True)
    assert [[each.column for each in branch.children] for branch in either.children] == [
        [("sender",), ("sender",)],
        [("body",), ("body",)],
    ]


def test_a_query_that_keeps_nothing_is_not_trimmed(analysed: Analysed) -> None:
    found = analysed("SELECT id FROM events WHERE 1 = 0")
    assert found.needed_schema is None
    assert "reads no events" in found.trim_note


@pytest.mark.parametrize(
    ("query", "narrow"),
    [
        ("SELECT id FROM events", True),
        ("SELECT id, t FROM events LATERAL VIEW explode(tos) AS t WHERE n > 1", True),
        (f"SELECT id, v.s FROM events JOIN {STATIC} ON n = v.k", True),
        (f"SELECT id, v.s FROM events LEFT JOIN {STATIC} ON n > v.k", True),
        (f"SELECT id FROM events WHERE id IN (SELECT s FROM {STATIC})", True),
        (f"SELECT v.s FROM {STATIC} JOIN events ON n = v.k", True),
        (lambda events: events.select(text("id")), True),
        ("SELECT id FROM events UNION ALL SELECT body FROM events", False),
        ("SELECT /*+ COALESCE(1) */ id FROM events", False),
        ("SELECT /*+ REPARTITION(3) */ id FROM events", False),
        (lambda events: events.join(F.broadcast(numbers(events)), "n"), True),
        (lambda events: events.join(numbers(events).hint("merge"), "n"), False),
    ],
)
def test_stateless_queries_may_be_split_and_narrow_ones_share_a_batch(
    analysed: Analysed, query: Any, narrow: bool
) -> None:
    found = analysed(query)
    assert (found.switch_class, found.switchable, found.reason) == ("stateless", True, "")
    assert found.narrow is narrow


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("SELECT sender, count(*) FROM events GROUP BY sender", "aggregates"),
        ("SELECT count(*) FROM events", "aggregates"),
        ("SELECT DISTINCT id FROM events", "aggregates"),
        ("SELECT id, row_number() OVER (PARTITION BY sender ORDER BY n) FROM events", "window function"),
        ("SELECT id FROM events ORDER BY id", "sorts"),
        ("SELECT id FROM events LIMIT 3", "LIMIT"),
        ("SELECT id FROM events ORDER BY id LIMIT 3", "sorts and limits"),
        ("SELECT id FROM events TABLESAMPLE (10 PERCENT)", "samples"),
        ("SELECT a.id FROM events a JOIN events b ON a.id = b.id", "events with events"),
        (f"SELECT id FROM events RIGHT JOIN {STATIC} ON n = v.k", "needs all events"),
        (f"SELECT v.s FROM {STATIC} LEFT ANTI JOIN events ON n = v.k", "needs all events"),
        (f"SELECT id, (SELECT max(s) FROM {STATIC}) FROM events", "subquery"),
        (lambda events: events.dropDuplicates(["id"]), "aggregates"),
        (lambda events: events.groupBy("id").applyInPandas(lambda frame: frame, events.schema), "groups"),
        (lambda events: events.mapInArrow(lambda batches: batches, events.schema), "many events at a time"),
    ],
)
def test_queries_over_many_events_are_not_stateless(analysed: Analysed, query: Any, reason: str) -> None:
    found = analysed(query)
    assert (found.stateful, found.switchable, found.narrow) == (True, False, False)
    assert reason in found.reason


nondeterministic = F.udf(lambda value: value, StringType()).asNondeterministic()


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ("SELECT rand() FROM events", "rand"),
        ("SELECT id FROM events WHERE rand() < 0.5", "rand"),
        ("SELECT uuid() FROM events", "uuid"),
        ("SELECT now() FROM events", "now"),
        ("SELECT current_timestamp() FROM events", "current_timestamp"),
        ("SELECT unix_timestamp() FROM events", "current_timestamp"),
        ("SELECT current_date() FROM events", "current_date"),
        ("SELECT id FROM events WHERE sent > now() - INTERVAL 1 DAY", "now"),
        ("SELECT monotonically_increasing_id() FROM events", "monotonically_increasing_id"),
        ("SELECT spark_partition_id() FROM events", "spark_partition_id"),
        ("SELECT input_file_name() FROM events", "input_file_name"),
        ("SELECT shuffle(tos) FROM events", "shuffle"),
        ("SELECT current_user() FROM events", "current_user"),
        (lambda events: events.select(nondeterministic("id")), "Python UDF"),
    ],
)
def test_answers_that_vary_from_place_to_place_are_not_split(analysed: Analysed, query: Any, named: str) -> None:
    found = analysed(query)
    assert (found.switch_class, found.switchable) == ("stateless", False)
    assert named in found.reason


class Files:
    """A folder with one CSV file and one Parquet file, and a saved table of the catalog."""

    def __init__(self, folder: Path) -> None:
        self.csv, self.parquet = folder / "customers.csv", folder / "customers.parquet"
        self.csv.write_text("n,name\n1,Ann\n")
        pq.write_table(pa.table({"n": [1], "name": ["Ann"]}), self.parquet)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(tmp_path_factory.mktemp("static"))


def from_csv(events: DataFrame, files: Files) -> DataFrame:
    static = events.sparkSession.read.csv(str(files.csv), header=True, schema="n INT, name STRING")
    return events.join(F.broadcast(static), "n").select("id", "name")


def from_parquet(events: DataFrame, files: Files) -> DataFrame:
    return events.sparkSession.sql(f"SELECT id FROM events JOIN parquet.`{files.parquet}` USING (n)")


def from_a_view(events: DataFrame, files: Files) -> DataFrame:
    events.sparkSession.sql(f"CREATE OR REPLACE TEMPORARY VIEW c USING csv OPTIONS (path '{files.csv}', header true)")
    return events.sparkSession.sql("WITH b AS (SELECT name FROM c) SELECT id FROM events WHERE id IN (SELECT * FROM b)")


def from_a_subquery(events: DataFrame, files: Files) -> DataFrame:
    inner = f"SELECT name FROM parquet.`{files.parquet}` p WHERE p.n = events.n"
    return events.sparkSession.sql(f"SELECT id FROM events WHERE NOT EXISTS ({inner})")


def from_an_rdd(events: DataFrame, files: Files) -> DataFrame:
    lines = events.sparkSession.sparkContext.textFile(str(files.csv)).map(lambda line: (line,))
    return events.join(F.broadcast(lines.toDF("id STRING")), "id").select("id")


@pytest.mark.parametrize(
    ("query", "named"),
    [
        (from_csv, "customers.csv"),
        (from_parquet, "customers.parquet"),
        (from_a_view, "customers.csv"),
        (from_a_subquery, "customers.parquet"),
        (from_an_rdd, "an RDD"),
    ],
)
def test_a_query_that_reads_more_than_its_events_stays_at_home(
    analysed: Analysed, files: Files, query: Callable[[DataFrame, Files], DataFrame], named: str
) -> None:
    found = analysed(lambda events: query(events, files))
    assert (found.switch_class, found.switchable, found.stateful) == ("whole", False, False)
    assert re.fullmatch(f"it reads .*{re.escape(named)}, not declared in tables: .*", found.reason)


def test_state_over_what_is_read_besides_has_no_keys(analysed: Analysed, files: Files) -> None:
    counted = analysed(lambda events: from_csv(events, files).groupBy("name").count())
    assert (counted.switch_class, counted.switchable, counted.stateful) == ("whole", False, True)
    assert "reads more than the view events" in counted.reason


def test_equal_queries_have_equal_plans(analysed: Analysed) -> None:
    sql = "SELECT id FROM events WHERE n IN (9,8,7,6,5,4,3,2,1,0,11,12) AND meta.b = 'x'"
    assert analysed(sql) == analysed(sql)


def test_a_watermark_needs_the_event_time_of_all_rows_that_other_conditions_admit(analysed: Analysed) -> None:
    sql = "SELECT id, count(*) FROM events WHERE n = 1 AND (sent IS NULL OR ok) GROUP BY id"
    plain = analysed(sql)
    timed = plan.with_event_time(plain, "sent", schemas.arrow_of(analysed.columns))
    assert needed(timed) == {name: ALL[name] for name in ("id", "n", "ok", "sent")}
    assert [each for each in plain.predicates if each.op == "or"], "without a watermark the gateway may evaluate it"
    assert timed.predicates == (is_("not_null", "n"), is_("eq", "n", 1))
    uses = {use.column: use.other for use in timed.uses or ()}
    assert uses["sent"] == "the watermark is computed from it"
    assert uses["ok"] == "a condition reads it together with sent"
    unused = plan.with_event_time(
        analysed("SELECT meta.a, count(*) FROM events GROUP BY 1"), "sent", schemas.arrow_of(analysed.columns)
    )
    assert needed(unused) == {"sent": ALL["sent"], "meta": "struct<a: int32>"}


def test_a_plan_that_cannot_be_read_stays_unread_with_a_watermark(analysed: Analysed) -> None:
    found = plan.unreadable("why")
    assert plan.with_event_time(found, "sent", schemas.arrow_of(analysed.columns)) == found
