"""Which parts of a text are layout; Spark's own parser is the reference."""

from __future__ import annotations

import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from engines.query.sqltext import StatementError, ddl_tokens, sql_tokens, statements

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


@pytest.mark.parametrize(
    ("sql", "views", "query"),
    [
        ("SELECT a FROM events", [], "SELECT a FROM events"),
        (" ; -- nothing\n; SELECT ';' -- a; b\nFROM events; ; /* end; */", [], "SELECT ';' -- a; b\nFROM events"),
        ("(SELECT 1) UNION (SELECT 2)", [], "(SELECT 1) UNION (SELECT 2)"),
        ("TABLE events", [], "TABLE events"),
        (
            "CREATE TEMP VIEW few AS SELECT 'a;b' AS `c;d` FROM events; FROM few",
            [("few", "CREATE OR REPLACE TEMPORARY VIEW few AS SELECT 'a;b' AS `c;d` FROM events")],
            "FROM few",
        ),
        (
            (
                "create or replace temporary view `my ``few` (x, y AS z) comment 'AS' as with a as (select 1) table a;"
                "/* the rest; */ create temp view more as values (1);\nselect 1;"
            ),
            [
                (
                    "my `few",
                    (
                        "CREATE OR REPLACE TEMPORARY VIEW `my ``few` (x, y AS z) comment 'AS' as "
                        "with a as (select 1) table a"
                    ),
                ),
                ("more", "CREATE OR REPLACE TEMPORARY VIEW more as values (1)"),
            ],
            "select 1",
        ),
    ],
)
def test_a_text_has_views_and_then_a_query(sql: str, views: list[tuple[str, str]], query: str) -> None:
    found = statements(sql)
    assert (list(found.views), found.query.strip()) == (views, query)


VIEW = "CREATE TEMPORARY VIEW few AS SELECT 1"


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        (";", "there is no statement: write a SELECT over the view events"),
        ("-- SELECT 1", "there is no statement"),
        (VIEW, "it creates a view and is the last one: add the SELECT that gives the results"),
        (f"{VIEW}; CREATE TEMP VIEW more AS SELECT 2;", "statement 2 creates a view and is the last one"),
        ("SELECT 1; SELECT 2", "statement 1 is a query, but only the last statement gives the results: write CREATE"),
        ("DROP TABLE t", "it begins with DROP: only CREATE TEMPORARY VIEW name AS SELECT … and, at the end, one"),
        ("SET a = b; SELECT 1", "statement 1 begins with SET: only"),
        (f"{VIEW}; INSERT INTO t SELECT 1; SELECT 2", "statement 2 begins with INSERT: only"),
        (f"{VIEW}; FROM few INSERT INTO t SELECT 1", "statement 2 has an INSERT"),
        ("BEGIN SELECT 1; END", "statement 1 begins with BEGIN"),
        (
            "CREATE VIEW few AS SELECT 1; SELECT 1",
            "statement 1: a view is the query's own: write CREATE TEMPORARY VIEW",
        ),
        ("CREATE GLOBAL TEMPORARY VIEW few AS SELECT 1; SELECT 1", "statement 1: a view is the query's own"),
        ("CREATE TABLE few AS SELECT 1; SELECT 1", "statement 1: a view is the query's own"),
        (
            f"{VIEW}; CREATE TEMP VIEW a.b AS SELECT 1; SELECT 1",
            "statement 2: write CREATE TEMPORARY VIEW name AS SELECT",
        ),
        (
            "CREATE TEMP VIEW few USING csv OPTIONS (path 'AS'); SELECT 1",
            "statement 1: write CREATE TEMPORARY VIEW name",
        ),
        ("CREATE TEMP VIEW; SELECT 1", "statement 1: write CREATE TEMPORARY VIEW name"),
        ("CREATE TEMP VIEW few; SELECT 1", "statement 1: write CREATE TEMPORARY VIEW name"),
        ("CREATE TEMP VIEW few AS; SELECT 1", "statement 1: write CREATE TEMPORARY VIEW name"),
        ("CREATE", "statement 1: a view is the query's own"),
        (
            "CREATE TEMP VIEW Events AS SELECT 1; SELECT 1",
            "statement 1 creates the view events, but that has the events",
        ),
        ("CREATE TEMP VIEW `EVENTS` AS SELECT 1; SELECT 1", "creates the view EVENTS, but that has the events"),
        (f"{VIEW}; CREATE OR REPLACE TEMP VIEW FEW AS SELECT 2; SELECT 1", "statement 2 creates the view few a second"),
    ],
)
def test_no_other_statement_is_allowed(sql: str, says: str) -> None:
    with pytest.raises(StatementError) as caught:
        statements(sql)
    assert says in str(caught.value)
