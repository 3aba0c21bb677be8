"""Which parts of a text are layout; Spark's own parser is the reference."""

from __future__ import annotations

import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from engines.query.sqltext import ddl_tokens, sql_tokens

SAME = [
    ("SELECT a FROM events", "select  A\n\tfrom EVENTS"),
    ("SELECT a FROM events", "SELECT a -- the column\nFROM events"),
    ("SELECT a FROM events", "SELECT a -- goes on \\\n to here\nFROM events"),
    ("SELECT a FROM events", "/* one /* two */ */SELECT a FROM events /* end */"),
    ("SELECT a+b*2 FROM events", "SELECT a + b\n* 2 FROM events"),
    ("SELECT a.b FROM events WHERE x>=1", "SELECT a . b FROM events WHERE x >= 1"),
    ("SELECT '--', a FROM events", "SELECT '--' , a FROM events --"),
    ("SELECT 1e5, 1.5 FROM events", "SELECT 1E5 ,1.5 FROM events"),
]
OTHER = [
    ("SELECT 'a' FROM events", "SELECT 'A' FROM events"),
    ("SELECT 'a b' FROM events", "SELECT 'a  b' FROM events"),
    ("SELECT 'a -- b' FROM events", "SELECT 'a' FROM events"),
    ("SELECT 'it\\'s -- x' FROM events", "SELECT 'it\\'s ' FROM events"),
    ("SELECT 'a /* b */ c' FROM events", "SELECT 'a  c' FROM events"),
    ('SELECT "A" FROM events', 'SELECT "a" FROM events'),
    ("SELECT `A` FROM events", "SELECT `a` FROM events"),
    ("SELECT `a``-- b` FROM events", "SELECT `a``` FROM events"),
    ("SELECT /*+ COALESCE(1) */ a FROM events", "SELECT a FROM events"),
    ("SELECT /*+ COALESCE(1) */ a FROM events", "SELECT /*+ COALESCE(2) */ a FROM events"),
    ("SELECT a - -1 FROM events", "SELECT a --1 FROM events\nFROM events"),
    ("SELECT 1e+5 FROM events", "SELECT 1e + 5 FROM events"),
    ("SELECT r'a\\' , 'b' FROM events", "SELECT 'a\\' , ''b' FROM events"),
    ("SELECT a FROM events WHERE b > 2", "SELECT a FROM events WHERE b > 20"),
    ("SELECT a b FROM events", "SELECT ab FROM events"),
]


@pytest.mark.parametrize(("one", "two"), SAME)
def test_layout_is_no_change(one: str, two: str) -> None:
    assert list(sql_tokens(one)) == list(sql_tokens(two))


@pytest.mark.parametrize(("one", "two"), OTHER)
def test_what_is_said_counts(one: str, two: str) -> None:
    assert list(sql_tokens(one)) != list(sql_tokens(two))


@pytest.mark.parametrize("text", ["SELECT 'never closed", "SELECT /* never closed", "`", "/*+", "a ${B} c", "☃ é"])
def test_whatever_is_no_sql_is_taken_as_it_is(text: str) -> None:
    assert list(sql_tokens(text)) != list(sql_tokens(text + "x"))
    assert list(sql_tokens(text)) == list(sql_tokens(text))


def test_variables_are_told_apart_by_their_case() -> None:
    assert list(sql_tokens("SELECT ${A}")) != list(sql_tokens("SELECT ${a}"))


def test_a_schemas_columns_keep_their_case() -> None:
    assert list(ddl_tokens("id BIGINT,text STRING")) == list(ddl_tokens("id  BIGINT, text\n STRING"))
    assert list(ddl_tokens("id BIGINT")) != list(ddl_tokens("ID BIGINT"))
    assert list(ddl_tokens("`a b` INT")) != list(ddl_tokens("`a  b` INT"))


def parsed(spark: SparkSession, sql: str) -> str | None:
    """Spark's parse of a text, without the letter case of names; None if it is not SQL."""
    session = spark._jsparkSession  # noqa: SLF001 -- PySpark has no other way to the parser
    try:
        plan = session.sessionState().sqlParser().parsePlan(sql).toString()
    except Exception:
        return None
    return re.sub(r"#\d+", "#", plan)


@pytest.mark.parametrize(("one", "two"), SAME)
def test_spark_reads_the_same(spark: SparkSession, one: str, two: str) -> None:
    plan = parsed(spark, one)
    assert plan is not None
    assert plan.lower() == (parsed(spark, two) or "").lower()


PIECES = [
    *("a", "b1", "1", "1.5", "1e", "1e5", "e5", ".5", "''", "'x--y'", "'/*'", '"q\\"--"', "`n`", "r'\\'", "x'1F'"),
    *("+", "-", "*", "/", ".", ",", "(", ")", "<", "=", ">", "|", "[", "]", ":", "?", "CASE", "upper"),
]
GAPS = ["", "", " ", "\n", "--c\n", "/*c*/", "/* a /* b */ */", "/*+ x */"]


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.sampled_from(PIECES), st.sampled_from(GAPS), st.sampled_from(GAPS)), max_size=6))
def test_texts_with_the_same_tokens_are_one_query_to_spark(
    spark: SparkSession, pieces: list[tuple[str, str, str]]
) -> None:
    one = "SELECT " + "".join(piece + gap for piece, gap, _ in pieces)
    two = "SELECT " + "".join(piece + gap for piece, _, gap in pieces)
    if list(sql_tokens(one)) != list(sql_tokens(two)):
        return
    first, second = parsed(spark, one), parsed(spark, two)
    assert first is None or second is None or first == second
