"""Spark itself is the reference for early predicates, and the reader of decoded batches."""

import random
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from infra.messages import Predicate, PredicateOp
from infra.payload import CodecPolicy, Decoder, Encoder, kept_rows

TEXTS = ["", "a", "A", "ab", "é", "aé", "\uffff", "\U0001f600", "x@enron.com", "x@ENRON.com", "a b", "%", "_", "\\"]
NUMBERS = [0, 1, -1, 127, -128, 2**31 - 1, -(2**31)]
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("text", pa.string()),
        ("n", pa.int32()),
        ("flag", pa.bool_()),
        ("deep", pa.struct([("text", pa.string()), ("n", pa.int64())])),
        ("tags", pa.list_(pa.struct([("k", pa.string()), ("v", pa.int32())]))),
    ]
)
COMPARE: dict[PredicateOp, str] = {"eq": "=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
TEXT_TESTS: dict[PredicateOp, str] = {"starts_with": "startswith", "ends_with": "endswith", "contains": "contains"}


def table(rng: random.Random) -> pa.RecordBatch:
    def maybe(value: Any) -> Any:
        return None if rng.random() < 0.2 else value

    rows = [
        {
            "id": i,
            "text": maybe(rng.choice(TEXTS)),
            "n": maybe(rng.choice(NUMBERS)),
            "flag": maybe(rng.random() < 0.5),
            "deep": maybe({"text": maybe(rng.choice(TEXTS)), "n": maybe(rng.choice(NUMBERS))}),
            "tags": maybe([maybe({"k": rng.choice(TEXTS), "v": maybe(i)}) for _ in range(rng.randrange(3))]),
        }
        for i in range(200)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


def literal(value: str | int | bool) -> str:
    if isinstance(value, str):
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    return str(value).lower() if isinstance(value, bool) else f"{value}L"


def draw(rng: random.Random, depth: int = 2) -> tuple[Predicate, str]:
    """A random predicate, and the same in SQL."""
    if depth and rng.random() < 0.5:
        op: PredicateOp = rng.choice(["and", "or", "not"])
        children = [draw(rng, depth - 1) for _ in range(1 if op == "not" else 2)]
        texts = [f"({sql})" for _, sql in children]
        sql = f"NOT {texts[0]}" if op == "not" else f" {op.upper()} ".join(texts)
        return Predicate(op=op, children=tuple(child for child, _ in children)), sql
    columns: list[tuple[tuple[str, ...], Sequence[Any]]] = [
        (("text",), TEXTS),
        (("deep", "text"), TEXTS),
        (("n",), NUMBERS),
        (("deep", "n"), NUMBERS),
        (("flag",), [True, False]),
    ]
    column, values = rng.choice(columns)
    path, value = ".".join(column), rng.choice(values)
    op = rng.choice([*COMPARE, "in", "is_null", "not_null", *(TEXT_TESTS if values is TEXTS else ())])
    if op in ("is_null", "not_null"):
        return Predicate(op=op, column=column), f"{path} IS {'NOT ' if op == 'not_null' else ''}NULL"
    if op == "in":
        several = [value, rng.choice(values)]
        return Predicate(op=op, column=column, value=several), f"{path} IN ({', '.join(map(literal, several))})"
    if op in TEXT_TESTS:
        return Predicate(op=op, column=column, value=value), f"{TEXT_TESTS[op]}({path}, {literal(value)})"
    return Predicate(op=op, column=column, value=value), f"{path} {COMPARE[op]} {literal(value)}"


@pytest.mark.spark
def test_spark_keeps_the_same_rows(spark: SparkSession) -> None:
    rng = random.Random(11)
    batch = table(rng)
    drawn = [draw(rng) for _ in range(250)]
    frame = spark.createDataFrame(pa.Table.from_batches([batch]))
    answers = frame.selectExpr("id", *(f"({sql}) AS p{i}" for i, (_, sql) in enumerate(drawn))).toArrow()
    answers = answers.sort_by("id")
    decisive = 0
    for i, (predicate, sql) in enumerate(drawn):
        spark_keeps = [row for row, kept in enumerate(answers.column(f"p{i}").to_pylist()) if kept is True]
        assert kept_rows(batch, [predicate]).tolist() == spark_keeps, sql
        decisive += 0 < len(spark_keeps) < batch.num_rows
    assert decisive > 200


@pytest.mark.spark
def test_spark_gives_the_same_answer_on_trimmed_and_filtered_rows(spark: SparkSession) -> None:
    batch = table(random.Random(12))
    deep, tag = pa.struct([("n", pa.int64())]), pa.struct([("k", pa.string())])
    needed = pa.schema([("id", pa.int64()), ("deep", deep), ("tags", pa.list_(tag))])
    early = (Predicate(op="ge", column=("deep", "n"), value=0), Predicate(op="not_null", column=("tags",)))
    encoded = Encoder(SCHEMA, needed=needed, predicates=early, codecs=CodecPolicy.parse("zstd")).encode(batch)
    decoded = Decoder(SCHEMA).decode(encoded.payload)
    assert encoded.rows < batch.num_rows
    query = (
        "SELECT id, deep.n + 1 AS n, transform(tags, t -> t.k) AS ks, transform(tags, t -> t IS NULL) AS gaps "
        "FROM {events} WHERE deep.n >= 0 AND tags IS NOT NULL ORDER BY id"
    )
    whole, sent = (
        spark.sql(query, events=spark.createDataFrame(pa.Table.from_batches([rows]))).toArrow().to_pylist()
        for rows in (batch, decoded)
    )
    assert whole == sent
    assert len(whole) == encoded.rows
