"""What a plan does with each column; and that a query gives the same results over sealed events, once unsealed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own habit
from pyspark.sql.types import StringType, StructType

from engines.query import plan, schemas
from engines.spark.session import sibling
from gateway.config.models import PayloadConfig
from gateway.query.crossing import crossing_of
from infra.messages import ColumnUse, QueryPlan
from infra.payload import CodecPolicy, Decoder, Encoder
from infra.payload.sealing import FieldKeys, unsealed

pytestmark = pytest.mark.spark

DDL = "id BIGINT, a STRING, b STRING, n INT, raw BINARY, tags ARRAY<STRING>, deep STRUCT<x: STRING, y: INT>, ok BOOLEAN"
STATIC = "(VALUES (1, 'a'), (2, 'b'), (4, 'me@x.org')) v(k, s)"
Query = str | Callable[[DataFrame], DataFrame]
text = F.udf(lambda value: str(value), StringType())


class Analysed:
    def __init__(self, session: SparkSession, columns: StructType, empty: DataFrame) -> None:
        self.session = session
        self.columns = columns
        self.schema = schemas.arrow_of(columns)
        self._empty = empty

    def frame(self, query: Query, events: DataFrame | None = None) -> DataFrame:
        events = self._empty if events is None else events
        events.createOrReplaceTempView("events")
        return self.session.sql(query) if isinstance(query, str) else query(events)

    def plan(self, query: Query) -> QueryPlan:
        return plan.analyse(self.frame(query), self.columns)

    def use(self, query: Query, column: str) -> ColumnUse:
        uses = self.plan(query).uses
        assert uses is not None
        return next((use for use in uses if use.column == column), ColumnUse(column=column))

    def rows(self, query: Query, events: pa.RecordBatch) -> list[dict[str, Any]]:
        frame = self.session.createDataFrame(pa.Table.from_batches([events]), schema=self.columns)
        rows: list[dict[str, Any]] = self.frame(query, frame).toArrow().to_pylist()
        return rows


@pytest.fixture(scope="module")
def analysed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Analysed:
    session = sibling(spark)
    columns = schemas.struct_of(session, DDL)
    return Analysed(session, columns, plan.empty_events(session, columns, tmp_path_factory.mktemp("plan")))


@pytest.mark.parametrize(
    ("query", "copies"),
    [
        ("SELECT a FROM events", ("a",)),
        ("SELECT A FROM events", ("A",)),
        ("SELECT a AS one, id, a AS two FROM events", ("one", "two")),
        ("SELECT x AS z FROM (SELECT a AS x, n FROM events) WHERE n > 3", ("z",)),
        ("SELECT * FROM events WHERE a LIKE '%@x.org'", ("a",)),
        ("SELECT a, t FROM events LATERAL VIEW explode(tags) AS t", ("a",)),
        ("SELECT a FROM events UNION ALL SELECT a FROM events WHERE n > 3", ("a",)),
        (f"SELECT a, v.s FROM events JOIN {STATIC} ON n = v.k", ("a",)),
        (f"SELECT a, v.s FROM events LEFT JOIN {STATIC} ON n > v.k", ("a",)),
        ("SELECT /*+ REPARTITION(3) */ a FROM events", ("a",)),
        (lambda events: events.select("a", text("b").alias("b")), ("a",)),
        (lambda events: events.withColumnRenamed("a", "z").where("n > 3"), ("z",)),
        ("SELECT id, n FROM events WHERE a = 'x'", ()),
        ("SELECT id FROM events", ()),
        ("SELECT id FROM events WHERE 1 = 0", ()),
    ],
)
def test_a_column_that_is_only_copied(analysed: Analysed, query: Query, copies: tuple[str, ...]) -> None:
    assert analysed.use(query, "a") == ColumnUse(column="a", copies=copies)


@pytest.mark.parametrize(
    ("query", "other"),
    [
        ("SELECT upper(a) AS u FROM events", "upper(a)"),
        ("SELECT a, length(a) FROM events", "length(a)"),
        ("SELECT coalesce(a, b) FROM events", "coalesce(a, b)"),
        ("SELECT a || b FROM events", "concat(a, b)"),
        ("SELECT array(a) FROM events", "array(a)"),
        ("SELECT struct(a) FROM events", "struct"),
        ("SELECT a FROM events WHERE upper(a) = 'X'", "upper(a) = X"),
        ("SELECT a FROM events WHERE a RLIKE 'x.y'", "RLIKE"),
        ("SELECT a FROM (SELECT a, explode(tags) AS t FROM events) WHERE a = t", "a = t"),
        ("SELECT a = 'x' AS same FROM events", "a = x"),
        ("SELECT a < b AS less FROM events", "a < b"),
        ("SELECT if(ok, a, 'none') FROM events", "if"),
        ("SELECT e FROM events LATERAL VIEW explode(array(a, b)) AS e", "explode"),
        ("SELECT a FROM events UNION ALL SELECT b FROM events", "UNION"),
        ("SELECT b FROM events UNION ALL SELECT a FROM events", "UNION"),
        ("SELECT a FROM events UNION ALL SELECT 'clear'", "UNION"),
        ("SELECT a FROM events WHERE a LIKE 'x%' UNION ALL SELECT a FROM events WHERE n > 3", "StartsWith"),
        (f"SELECT a FROM events JOIN {STATIC} ON a = v.s", "a"),
        (f"SELECT a FROM events JOIN {STATIC} ON contains(a, v.s)", "Contains(a, s)"),
        (f"SELECT a FROM events WHERE a IN (SELECT s FROM {STATIC})", "a"),
        (lambda events: events.select(text("a")), "a"),
        (lambda events: events.select(text(F.struct("*"))), "a"),
        (lambda events: events.repartition(3, "a"), "a"),
        (lambda events: events.where(text("a") == "x").select("id"), "a"),
        ("SELECT count(*) FROM events", "HashAggregate"),
    ],
)
def test_a_column_whose_values_are_read(analysed: Analysed, query: Query, other: str) -> None:
    assert other in analysed.use(query, "a").other


def test_nothing_is_known_of_a_cached_table(analysed: Analysed) -> None:
    cached = analysed.frame("SELECT id FROM events").cache()
    try:
        assert "InMemoryTableScan" in analysed.use("SELECT id FROM events", "a").other
    finally:
        cached.unpersist(blocking=True)


def test_comparisons_and_tests_for_null(analysed: Analysed) -> None:
    found = analysed.use("SELECT a, a = b AS same FROM events WHERE NOT a <=> b OR n > 3", "a")
    assert found == ColumnUse(column="a", copies=("a",), compared_with=("b",))
    assert analysed.use("SELECT a IS NULL AS gone FROM events", "a") == ColumnUse(column="a", tested_for_null=True)
    assert analysed.use("SELECT deep.x FROM events", "deep").other == "deep.x AS x"


# --------------------------------------------------------------------- Spark's answer over sealed events is the oracle

TEXTS = ["", "me@x.org", "you@x.org", "Grüße", None, "a", "A" * 3000, "x", "\U0001f600"]


def events(schema: pa.Schema) -> pa.RecordBatch:
    rows = [
        {
            "id": number,
            "a": TEXTS[number % 9],
            "b": TEXTS[number * number % 9],
            "n": None if number % 7 == 0 else number % 6,
            "raw": None if number % 5 == 0 else bytes(range(number % 200)),
            "tags": ["t", TEXTS[number % 9]],
            "deep": {"x": TEXTS[number % 9], "y": number},
            "ok": number % 2 == 0,
        }
        for number in range(120)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=schema)


FORMS: Sequence[dict[str, list[str]]] = [
    {"encrypt": ["a", "b", "raw"]},
    {"tokenize": ["a", "b", "raw"]},
    {"private": ["a", "n"], "encrypt": ["raw"]},
    {"encrypt": ["a"], "private": ["ok", "raw", "deep", "tags"]},
]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("query", "leaves"),
    [
        ("SELECT id, a, raw FROM events", (0, 1)),
        ("SELECT id, a AS one, a AS two FROM events WHERE a LIKE '%@x.org'", (0, 1, 3)),
        ("SELECT id, a FROM events WHERE a LIKE 'y%' AND a LIKE '%.org' AND a LIKE '%@x%'", (0, 1, 3)),
        ("SELECT id, b FROM events WHERE n > 3 AND a IS NOT NULL", (0, 1, 2, 3)),
        ("SELECT id, b FROM events WHERE a = 'x' AND n IN (1, 3, 5)", (2,)),
        ("SELECT id, b FROM events WHERE a > 'a' AND NOT a = 'x' AND n <> 2", (2,)),
        ("SELECT id, a, a = b AS same, a <=> b AS equal FROM events WHERE a = b OR n > 2", (1,)),
        ("SELECT id, a IS NULL AS gone, raw FROM events WHERE raw IS NOT NULL", (0, 1)),
        ("SELECT id FROM events WHERE ok AND deep IS NOT NULL AND tags IS NOT NULL AND a IS NULL", (0, 1, 2, 3)),
        ("SELECT id, a, t FROM events LATERAL VIEW explode(array(id, n)) AS t", (0, 1, 3)),
        (f"SELECT id, a, v.s FROM events LEFT JOIN {STATIC} ON n = v.k AND id > 20", (0, 1, 3)),
        ("SELECT id, a FROM events WHERE n > 3 UNION ALL SELECT n, a FROM events WHERE id < 9", (0, 1, 3)),
        ("SELECT id, a FROM events UNION ALL SELECT id, b FROM events", ()),
        ("SELECT id, upper(a) FROM events", ()),
        ("SELECT id, a FROM events WHERE a = 'x'", ()),
    ],
)
def test_results_over_sealed_events_are_the_same(
    analysed: Analysed, form: dict[str, list[str]], query: str, leaves: tuple[int, ...]
) -> None:
    payload = PayloadConfig.model_validate(form)
    found = analysed.plan(query)
    crossing = crossing_of(payload, found, analysed.schema)
    assert (crossing.reason == "") == (FORMS.index(form) in leaves), crossing.reason
    if crossing.reason:
        return
    of_columns, of_results = crossing.seals(FieldKeys(bytes(32), "q"))
    batch = events(analysed.schema)
    codecs = CodecPolicy.parse("none")
    needed, predicates = crossing.sent, found.predicates
    encoder = Encoder(analysed.schema, needed=needed, predicates=predicates, codecs=codecs, seals=of_columns)
    encoded = encoder.encode(batch)
    hidden = [name for names in form.values() for name in names]
    clear = {value for name in hidden for value in batch[name].to_pylist() if isinstance(value, str) and len(value) > 8}
    left = {name for name in crossing.forms if crossing.forms[name] == "clear"}
    if not left & {"tags", "deep", "a", "b"}:
        assert not any(value.encode() in encoded.payload for value in clear)
    answers = analysed.rows(query, Decoder(analysed.schema).decode(encoded.payload))
    results = schemas.arrow_of(schemas.struct_nullable(analysed.frame(query).schema))
    opened = unsealed(pa.RecordBatch.from_pylist(answers, schema=results), of_results).to_pylist()
    assert sorted(map(repr, opened)) == sorted(map(repr, analysed.rows(query, batch)))
    assert opened
