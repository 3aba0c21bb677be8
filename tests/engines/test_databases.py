"""Tables of a real database become Parquet files: all types, the same file for the same rows, and clear errors."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from engines.databases.reading import UnreadableError, write_table
from engines.databases.request import DatabaseTable
from engines.query.reasons import why
from tests.support.derby import Derby

TYPED = (
    "CREATE TABLE typed (id INT, name VARCHAR(40), born DATE, paid DECIMAL(10, 2), since TIMESTAMP, half DOUBLE)",
    "INSERT INTO typed VALUES (2, 'Bo', NULL, -1.5, '2026-01-02 03:04:05.000006', 0.5)",
    "INSERT INTO typed VALUES (1, 'Ångström', '1814-08-13', 12345678.9, NULL, NULL)",
)
NAMES = ("ID", "NAME", "BORN", "PAID", "SINCE", "HALF")
ROWS = [
    (1, "Ångström", date(1814, 8, 13), Decimal("12345678.90"), None, None),
    (2, "Bo", None, Decimal("-1.50"), datetime(2026, 1, 2, 3, 4, 5, 6), 0.5),  # noqa: DTZ001 - as Spark returns it
]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    derby = Derby(tmp_path_factory.mktemp("derby") / "shop")
    numbers = "CREATE TABLE numbers (n INT)", *(f"INSERT INTO numbers VALUES ({n})" for n in (5, 3, 4, 1, 2))
    derby.run((*TYPED, *numbers))
    return derby.url


def test_a_table_is_one_sorted_file_with_the_types_of_the_database(
    spark: SparkSession, url: str, tmp_path: Path
) -> None:
    table = DatabaseTable(name="typed", url=url, table="typed")
    file = write_table(spark, table, tmp_path)
    rows = spark.read.parquet(file.as_uri())
    assert (tuple(rows.columns), [tuple(row) for row in rows.collect()]) == (NAMES, ROWS)
    first = file.read_bytes()
    assert write_table(spark, table, tmp_path).read_bytes() == first, "the same rows give the same file"
    assert [path.name for path in tmp_path.iterdir()] == ["typed.parquet"]


def test_a_query_of_the_database_selects_the_rows(spark: SparkSession, url: str, tmp_path: Path) -> None:
    table = DatabaseTable(name="t", url=url, query="SELECT n * 10 AS tens FROM numbers WHERE n > 2")
    assert pq.read_table(write_table(spark, table, tmp_path)).to_pylist() == [{"TENS": n} for n in (30, 40, 50)]


def test_too_many_rows_are_refused(spark: SparkSession, url: str, tmp_path: Path) -> None:
    table = DatabaseTable(name="numbers", url=url, table="numbers")
    write_table(spark, table, tmp_path, rows_most=5)
    with pytest.raises(UnreadableError, match="more than 4 rows"):
        write_table(spark, table, tmp_path, rows_most=4)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"table": "nothing"}, "'NOTHING' does not exist"),
        ({"table": "", "query": "SELECT name FROM numbers"}, "'NAME'"),
        ({"table": "numbers", "driver": "org.gone.Driver"}, "org.gone.Driver"),
    ],
)
def test_what_the_database_refuses_is_said(
    spark: SparkSession, url: str, tmp_path: Path, change: dict[str, str], says: str
) -> None:
    with pytest.raises(Exception) as caught:
        write_table(spark, DatabaseTable(name="t", url=url, **change), tmp_path)
    assert says in why(caught.value)
