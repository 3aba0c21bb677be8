"""Isolation by slices finds every bad row and no other, in few evaluations."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.isolation.isolate import (
    JOB_SPANS,
    JOB_SPANS_LEAST,
    OUT_OF_MEMORY_MOST,
    WINDOW_ROWS,
    OutOfMemoryRowsError,
    Span,
    TooManyBadError,
    isolate,
)

ROWS = 2000


class Query:
    """Fails over each slice that holds a bad row, and counts the slices and jobs."""

    def __init__(self, bad: set[int], said: str = "bad {}") -> None:
        self.bad = bad
        self.said = said
        self.failures = 0
        self.spans = 0
        self.jobs = 0
        self.alone: set[int] = set()

    def __call__(self, spans: Sequence[Span]) -> list[str]:
        assert 0 < len(spans) <= JOB_SPANS
        self.jobs += 1
        self.spans += len(spans)
        self.alone |= {first for first, end in spans if end - first == 1}
        said = [next((self.said.format(row) for row in range(*span) if row in self.bad), "") for span in spans]
        self.failures += sum(map(bool, said))
        return said


@given(st.integers(0, ROWS), st.data())
def test_exactly_the_rows_that_fail_alone_are_found(count: int, data: st.DataObject) -> None:
    bad = data.draw(st.sets(st.integers(0, count - 1), max_size=40)) if count else set()
    query = Query(bad)
    assert list(isolate(count, query).items()) == [(row, f"bad {row}") for row in sorted(bad)]
    assert bad <= query.alone


@pytest.mark.parametrize(("bad", "spans_most"), [(0, 63), (1, 75), (6, 150), (20, 310), (500, 2063), (ROWS, 2063)])
def test_few_bad_rows_take_few_looks_and_many_at_most_one_a_row(bad: int, spans_most: int) -> None:
    rows = set(random.Random(bad).sample(range(ROWS), bad))
    query = Query(rows)
    assert set(isolate(ROWS, query)) == rows
    assert query.spans <= spans_most
    assert query.jobs <= 12


@given(st.integers(0, ROWS), st.data(), st.booleans())
def test_rows_that_exhaust_memory_are_evaluated_rarely(count: int, data: st.DataObject, exhausts: bool) -> None:
    bad = data.draw(st.sets(st.integers(0, count - 1), max_size=40)) if count else set()
    query = Query(bad, "java.lang.OutOfMemoryError: Java heap space")
    if len(bad) > OUT_OF_MEMORY_MOST:
        with pytest.raises(OutOfMemoryRowsError, match=r"^java\.lang\.OutOfMemoryError"):
            isolate(count, query, exhausts=exhausts)
    else:
        assert list(isolate(count, query, exhausts=exhausts)) == sorted(bad)
    if exhausts:
        assert query.failures <= 2 * (OUT_OF_MEMORY_MOST + 1)


@pytest.mark.parametrize("exhausts", [False, True])
def test_rows_whose_data_names_the_error_do_not_exhaust_memory(exhausts: bool) -> None:
    bad = set(range(0, 200, 9))
    query = Query(bad, "[CAST_INVALID_INPUT] The value 'java.lang.OutOfMemoryError' cannot be cast")
    assert set(isolate(200, query, exhausts=exhausts)) == bad


def test_a_slice_that_fails_only_once_blames_no_row() -> None:
    query = Query({40})

    def flaky(spans: Sequence[Span]) -> list[str]:
        verdicts = query(spans)
        query.bad = set()
        return verdicts

    assert isolate(ROWS, flaky) == {}


@given(st.sets(st.integers(0, 3 * WINDOW_ROWS - 1), max_size=60), st.integers(1, 40))
def test_it_stops_where_too_many_of_consecutive_rows_fail(bad: set[int], most: int) -> None:
    worst = max((sum(row <= other < row + WINDOW_ROWS for other in bad) for row in bad), default=0)
    if worst > most:
        with pytest.raises(TooManyBadError, match=rf"^bad {min(bad)}$"):
            isolate(3 * WINDOW_ROWS, Query(bad), most)
    else:
        assert set(isolate(3 * WINDOW_ROWS, Query(bad), most)) == bad


def test_a_run_of_which_all_rows_fail_is_given_up_early() -> None:
    query = Query(set(range(ROWS)))
    with pytest.raises(TooManyBadError):
        isolate(ROWS, query, 200)
    assert query.spans <= 63 + 2 * JOB_SPANS


@given(st.integers(1, ROWS // 10))
def test_a_search_that_a_few_failures_end_evaluates_only_these(most: int) -> None:
    query = Query(set(range(ROWS)))
    with pytest.raises(TooManyBadError):
        isolate(ROWS, query, most)
    assert len(query.alone) <= most + JOB_SPANS_LEAST
