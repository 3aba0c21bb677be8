"""The class of each query of the corpus, and an independent oracle: Spark's answers over events divided by key."""

from __future__ import annotations

import datetime as dt
import decimal
import hashlib
import random
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from engines.query import plan, schemas
from engines.spark.session import sibling
from infra.messages import QueryPlan
from tests.engines.query_corpus import CORPUS, DDL, Case, words

pytestmark = pytest.mark.spark

PARTS = 2
# Columns that are wrongly claimed to be keys: the oracle must notice.
WRONG = (
    Case("SELECT customer, count(*) AS n FROM events GROUP BY customer", "keyed", ("shop",)),
    Case("SELECT DISTINCT customer, shop FROM events", "keyed", ("id",)),
    Case("SELECT id, row_number() OVER (ORDER BY at, id) AS r FROM events", "keyed", ("customer",)),
    Case("SELECT a.id, b.id AS other FROM events a JOIN events b ON a.amount > b.amount", "keyed", ("customer",)),
    Case(
        "SELECT max(n) AS m FROM (SELECT customer, count(*) AS n FROM events GROUP BY customer)", "keyed", ("customer",)
    ),
)


def some_events(count: int, seed: int) -> pa.Table:
    """Events in which each value comes often, with NULLs."""
    draw = random.Random(seed)
    start = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)

    def event(number: int) -> dict[str, object]:
        drawn = {
            "customer": draw.choice(["c1", "c2", "c3", "C1", "", None]),
            "shop": draw.choice([1, 2, 3, None]),
            "amount": draw.randint(0, 9),
            "price": draw.choice([0.0, -0.0, 1.5, None]),
            "total": draw.choice([None, "1.00", "2.50"]),
            "ok": draw.choice([True, False, None]),
            "note": draw.choice(["c1", "n", None]),
            "tags": draw.choice([[], ["x"], ["x", "y"], None]),
            "meta": draw.choice([None, {"a": 1, "b": "x"}, {"a": 2, "b": None}]),
        }
        total = drawn["total"]
        return {
            **drawn,
            "id": f"e{number}" if draw.random() < 0.9 else "e0",
            "at": start + dt.timedelta(seconds=draw.randint(0, 240)),
            "total": None if total is None else decimal.Decimal(str(total)),
        }

    return pa.Table.from_pylist([event(number) for number in range(count)])


@pytest.fixture(scope="module")
def events(spark: SparkSession) -> DataFrame:
    session = sibling(spark)
    # The answers are the same, and these jobs are small.
    session.conf.set("spark.sql.shuffle.partitions", "1")
    session.conf.set("spark.sql.adaptive.enabled", "false")
    columns = schemas.struct_of(session, DDL)
    table = some_events(80, 7).select(columns.fieldNames()).cast(schemas.arrow_of(columns))
    return session.createDataFrame(table, columns).coalesce(1).cache()


@pytest.fixture(scope="module")
def found(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Case, QueryPlan]]:
    """Each query with its plan's properties."""
    session = sibling(spark)
    columns = schemas.struct_of(session, DDL)
    empty = plan.empty_events(session, columns, Path(tmp_path_factory.mktemp("classes")))
    empty.createOrReplaceTempView("events")
    each = []
    for case in CORPUS:
        frame = session.sql(case.query) if isinstance(case.query, str) else case.query(empty)
        each.append((case, plan.analyse(frame, columns)))
    return each


def test_the_corpus_is_large() -> None:
    assert len(CORPUS) >= 100
    assert len({case.query for case in CORPUS}) == len(CORPUS)


def test_each_query_has_its_class_and_its_keys(found: list[tuple[Case, QueryPlan]]) -> None:
    wrong = [
        f"{words(case)}: {seen.switch_class} {seen.keys} ({seen.reason}), not {case.kind} {case.keys}"
        for case, seen in found
        if (seen.switch_class, seen.keys) != (case.kind, case.keys)
    ]
    assert not wrong, "\n".join(wrong)


def test_what_is_not_split_says_why(found: list[tuple[Case, QueryPlan]]) -> None:
    silent = [words(case) for case, seen in found if seen.switch_class == "whole" and not seen.reason]
    assert not silent


def part_of(value: object) -> int:
    return hashlib.sha256(repr(value).encode()).digest()[0] % PARTS


def answer(events: DataFrame, case: Case) -> Counter[str]:
    """The rows that Spark returns for a batch of events."""
    if isinstance(case.query, str):
        events.createOrReplaceTempView("events")
        frame = events.sparkSession.sql(case.query)
    else:
        frame = case.query(events)
    return Counter(repr(sorted(row.items())) for row in frame.toArrow().to_pylist())


def divided(events: DataFrame, column: str) -> list[DataFrame]:
    """The events in parts, all with one value of the column in the same part."""
    values = {row[column] for row in events.select(column).distinct().collect()}
    parts = []
    for part in range(PARTS):
        here = [value for value in values if part_of(value) == part]
        named = [value for value in here if value is not None]
        condition = events[column].isin(named) if named else events[column].isNull() & events[column].isNotNull()
        parts.append(events.where(condition | events[column].isNull() if None in here else condition))
    return parts


def differs(events: DataFrame, case: Case) -> str:
    """How the answers over parts differ from the answer over all events, for one of its keys; "" if they do not."""
    whole = answer(events, case)
    key = random.Random(words(case)).choice(case.keys)
    parts = sum((answer(part, case) for part in divided(events, key)), Counter[str]())
    return (
        "" if parts == whole else f"{words(case)} divided by {key}: {whole - parts} are missing, {parts - whole} more"
    )


def test_events_divided_by_a_key_give_the_same_rows(events: DataFrame) -> None:
    keyed = [case for case in CORPUS if case.kind == "keyed" and case.runs]
    assert len(keyed) >= 40
    wrong = [text for case in keyed if (text := differs(events, case))]
    assert not wrong, "\n".join(wrong)


def test_the_oracle_notices_a_wrong_key(events: DataFrame) -> None:
    assert all(differs(events, case) for case in WRONG)
