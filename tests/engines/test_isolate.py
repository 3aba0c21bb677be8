"""Bisection: few tries, every good row answered, order kept."""

from __future__ import annotations

import math

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.isolate import BrokenError, isolate


class Query:
    """Fails when it meets a bad number, and counts its tries."""

    def __init__(self, bad: set[int]) -> None:
        self.bad = bad
        self.tries = 0

    def __call__(self, rows: pa.RecordBatch) -> pa.Table:
        self.tries += rows.num_rows > 0
        numbers = rows.column("n").to_pylist()
        found = [number for number in numbers if number in self.bad]
        if found:
            raise ValueError(f"bad {found[0]}")
        return pa.table({"n": numbers})


def batch(count: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"n": list(range(count))})


def numbers(tables: list[pa.Table]) -> list[int]:
    return [number for table in tables for number in table.column("n").to_pylist()]


@given(st.integers(1, 2_000), st.data())
def test_each_poison_row_is_found_in_log_tries(count: int, data: st.DataObject) -> None:
    bad = data.draw(st.sets(st.integers(0, count - 1), max_size=5))
    query = Query(bad)
    tables, poison = isolate(batch(count), query, str, max_tries=10_000)
    assert numbers(tables) == [number for number in range(count) if number not in bad]
    assert [(each.row, each.reason) for each in poison] == [(number, f"bad {number}") for number in sorted(bad)]
    assert query.tries <= len(bad) * (math.ceil(math.log2(count)) + 1) + 1


def test_tries_are_bounded_and_what_was_not_tried_is_reported() -> None:
    query = Query(set(range(500, 1_000)))
    tables, poison = isolate(batch(1_000), query, str, max_tries=30)
    assert query.tries == 30
    assert numbers(tables) == list(range(500))
    assert [each.row for each in poison] == list(range(500, 1_000))
    assert poison[0].reason == "bad 500"
    assert "too many rows that fail" in poison[-1].reason


def test_a_query_that_fails_without_rows_is_broken() -> None:
    def broken(rows: pa.RecordBatch) -> pa.Table:
        raise RuntimeError(f"no engine for {rows.num_rows} rows")

    with pytest.raises(BrokenError, match="no engine for 0 rows"):
        isolate(batch(10), broken, str)
