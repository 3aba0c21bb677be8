"""The search for rows at fault of a micro-batch, against rows whose faults are known."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, log2

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.isolation.isolate import BrokenError, OutOfMemoryRowsError, TooManyBadError
from engines.isolation.search import rows_at_fault


@given(st.integers(1, 300), st.sets(st.integers(0, 299), max_size=6), st.data())
def test_exactly_the_rows_that_fail_are_found_in_few_tries(count: int, bad: set[int], data: st.DataObject) -> None:
    bad = {row for row in bad if row < count}
    known = data.draw(st.sets(st.sampled_from(sorted(bad)))) if bad else set()
    tries = 0

    def try_rows(rows: Sequence[int]) -> str:
        nonlocal tries
        tries += 1
        return next((f"row {row}" for row in rows if row in bad), "")

    found = rows_at_fault(count, try_rows, {row: f"row {row}" for row in known})
    assert found == {row: f"row {row}" for row in sorted(bad)}
    assert tries <= 1 + (len(bad) - len(known)) * (2 + ceil(log2(count + 1)))


@given(st.integers(0, 60), st.sets(st.integers(0, 59), max_size=3), st.integers(0, 30))
def test_a_failure_that_does_not_recur_makes_no_row_bad(count: int, bad: set[int], at: int) -> None:
    bad = {row for row in bad if row < count}
    tries = 0

    def try_rows(rows: Sequence[int]) -> str:
        nonlocal tries
        tries += 1
        return "a worker was killed" if tries == at else next((f"row {row}" for row in rows if row in bad), "")

    assert set(rows_at_fault(count, try_rows, {})) == bad


@given(st.lists(st.integers(0, 9), min_size=1, max_size=60), st.integers(0, 40))
def test_a_row_that_fails_because_of_those_before_it_is_at_fault(amounts: list[int], most: int) -> None:
    """A sum that overflows: the oracle takes row after row and leaves out each that would overflow it."""

    def try_rows(rows: Sequence[int]) -> str:
        return "overflow" if sum(amounts[row] for row in rows) > most else ""

    total, expected = 0, []
    for row, amount in enumerate(amounts):
        if total + amount > most:
            expected.append(row)
        else:
            total += amount
    assert list(rows_at_fault(len(amounts), try_rows, {})) == expected


def test_what_fails_without_rows_is_broken() -> None:
    with pytest.raises(BrokenError, match="even without rows: no table"):
        rows_at_fault(3, lambda _: "no table", {})


def test_more_than_the_allowed_share_is_too_many() -> None:
    def try_rows(rows: Sequence[int]) -> str:
        return "bad" if any(row % 2 for row in rows) else ""

    with pytest.raises(TooManyBadError, match="bad"):
        rows_at_fault(100, try_rows, {}, most_bad=10)
    known = dict.fromkeys(range(0, 5000, 500), "bad")
    assert rows_at_fault(5000, lambda _: "", known, most_bad=2) == known
    with pytest.raises(TooManyBadError):
        rows_at_fault(5000, lambda _: "", known, most_bad=1)


def test_more_than_three_rows_that_exhaust_the_memory_are_too_many() -> None:
    bad = {3, 9, 20}

    def try_rows(rows: Sequence[int]) -> str:
        return "java.lang.OutOfMemoryError: Java heap space" if bad & set(rows) else ""

    assert set(rows_at_fault(40, try_rows, {})) == bad
    bad.add(30)
    with pytest.raises(OutOfMemoryRowsError, match="Java heap space"):
        rows_at_fault(40, try_rows, {})
