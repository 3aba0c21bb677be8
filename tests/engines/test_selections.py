"""Queries with selections in real Spark: which are refused, and what they give of runs with selections."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from engines.isolation.verdicts import Verdicts
from engines.query.known import KnownQuery, RefusedError, understand
from engines.query.selections.expansion import expanded
from infra.messages import SELECTIONS, OpenQuery, SelectionRule
from infra.payload.errors import PayloadError
from infra.payload.marks import MARK, with_marks

RULE = SelectionRule(
    column="", each_ms=0, each_events=1, after_ms=0, events=3, most_events=1_000_000, most_open=1_000_000
)
SCHEMA = pa.schema([("n", pa.int64()), ("kind", pa.string())])


def known(spark: SparkSession, sql: str) -> KnownQuery:
    spec = OpenQuery(query="q", epoch=0, schema_ddl="n BIGINT, kind STRING", sql=sql, selections=RULE)
    return understand(spark, spec)


def run_of(rows: int, marks: dict[int, tuple[int, int]]) -> pa.RecordBatch:
    """Return a run: ``marks`` has number and length of the selection that begins with a row."""
    column = pa.array(
        [None if n not in marks else dict(zip(MARK.names, marks[n], strict=True)) for n in range(rows)], MARK
    )
    kinds = pa.array(["even" if n % 2 == 0 else "odd" for n in range(rows)])
    return pa.RecordBatch.from_arrays([pa.array(range(rows), pa.int64()), kinds, column], schema=with_marks(SCHEMA))


@given(st.integers(1, 30), st.randoms(use_true_random=False))
def test_an_event_is_there_once_for_each_of_its_selections(rows: int, chance: random.Random) -> None:
    begins = sorted(chance.sample(range(rows), chance.randint(1, rows)))
    marks = {at: (100 + number, chance.randint(1, rows - at)) for number, at in enumerate(begins)}
    seen, copied = expanded(run_of(rows, marks), RULE)
    wanted = [(number, at + n) for at, (number, length) in sorted(marks.items()) for n in range(length)]
    assert list(zip(seen.column("selection").to_pylist(), seen.column("n").to_pylist(), strict=True)) == wanted
    assert copied.tolist() == [row for _, row in wanted]
    assert SELECTIONS not in seen.schema.names


@pytest.mark.parametrize("length", [0, -1, 4, 1 << 40])
def test_a_selection_that_does_not_fit_into_its_run_is_refused(length: int) -> None:
    with pytest.raises(PayloadError, match="longer than its run of 5 events"):
        expanded(run_of(5, {2: (0, length)}), RULE)


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("SELECT kind, count(*) FROM events GROUP BY kind", "add selection to each GROUP BY"),
        (
            "SELECT selection, rank() OVER (PARTITION BY kind ORDER BY n) AS r FROM events",
            "add selection to each GROUP BY",
        ),
        ("SELECT max(selection) AS selection FROM events", "add selection to each GROUP BY"),
        ("SELECT kind, count(*) AS c FROM events GROUP BY selection, kind", "must have the column selection"),
        ("SELECT n FROM events", "must have the column selection"),
    ],
)
def test_a_query_that_mixes_selections_is_refused(spark: SparkSession, sql: str, why: str) -> None:
    with pytest.raises(RefusedError, match=why):
        known(spark, sql)


def test_events_may_have_no_column_of_that_name(spark: SparkSession) -> None:
    spec = OpenQuery(query="q", epoch=0, schema_ddl="Selection INT", sql="SELECT 1", selections=RULE)
    with pytest.raises(RefusedError, match="its schema has a column selection"):
        understand(spark, spec)


@pytest.mark.parametrize(
    ("sql", "results"),
    [
        (
            "SELECT selection, kind, sum(n) AS total FROM events GROUP BY selection, kind",
            [(7, "even", 2), (7, "odd", 1), (8, "even", 2), (8, "odd", 4)],
        ),
        ("SELECT selection, n FROM events WHERE kind = 'odd'", [(7, 1), (8, 1), (8, 3)]),
        (
            "SELECT selection, n FROM events QUALIFY rank() OVER (PARTITION BY selection ORDER BY n DESC) = 1",
            [(7, 2), (8, 3)],
        ),
    ],
)
def test_each_selection_is_processed_by_itself_and_in_order(
    spark: SparkSession, sql: str, results: list[tuple[Any, ...]]
) -> None:
    query = known(spark, sql)
    rows, _ = expanded(run_of(5, {0: (7, 3), 1: (8, 3)}), RULE)
    found = Verdicts(query, spark).results(rows)
    assert [tuple(row.values()) for row in found.to_pylist()] == results
    plan = query.plan
    assert (plan.switch_class, plan.switchable, plan.stateful, plan.predicates) == ("stateless", True, False, ())


def test_an_answer_that_varies_keeps_it_at_home(spark: SparkSession) -> None:
    plan = known(spark, "SELECT selection, rand() AS r FROM events").plan
    assert not plan.switchable
    assert "rand" in plan.reason


def test_only_the_columns_that_it_reads_are_sent(spark: SparkSession) -> None:
    needed = known(
        spark, "SELECT selection, count(*) AS c FROM events WHERE n > 1 GROUP BY selection"
    ).plan.needed_schema
    assert needed is not None
    assert pa.ipc.read_schema(pa.py_buffer(needed)).names == ["n"]
