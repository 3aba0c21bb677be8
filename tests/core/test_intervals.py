from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.intervals import IntervalSet

INTERVALS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 8)).map(lambda p: (p[0], p[0] + p[1])), max_size=30)
PAIR = st.tuples(st.integers(0, 50), st.integers(0, 12)).map(lambda p: (p[0], p[0] + p[1]))


def members(intervals: list[tuple[int, int]]) -> set[int]:
    return {number for first, last in intervals for number in range(first, last + 1)}


@given(INTERVALS)
def test_holds_the_members_of_a_set_in_as_few_intervals_as_possible(intervals: list[tuple[int, int]]) -> None:
    kept = list(IntervalSet(intervals))
    assert members(kept) == members(intervals)
    assert all(first <= last for first, last in kept)
    assert all(after[0] > before[1] + 1 for before, after in pairwise(kept))
    assert len(IntervalSet(intervals)) == len(kept)


@given(INTERVALS, PAIR)
def test_answers_like_a_set(intervals: list[tuple[int, int]], asked: tuple[int, int]) -> None:
    model, wanted = members(intervals), set(range(asked[0], asked[1] + 1))
    numbers = IntervalSet(intervals)
    assert numbers.covers(*asked) == (wanted <= model)
    assert numbers.overlaps(*asked) == bool(wanted & model)
    assert numbers.watermark(asked[0]) == next(n for n in range(asked[0], 200) if n not in model)


@given(INTERVALS, st.randoms(use_true_random=False))
def test_order_of_adding_does_not_matter(intervals: list[tuple[int, int]], random: object) -> None:
    shuffled = list(intervals)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert IntervalSet(shuffled) == IntervalSet(intervals)


def test_a_copy_does_not_change_with_its_original() -> None:
    original = IntervalSet([(0, 3)])
    copy = IntervalSet(original)
    original.add(4, 9)
    assert list(copy) == [(0, 3)]


def test_an_interval_that_ends_before_it_starts_is_refused() -> None:
    with pytest.raises(ValueError, match=r"\[5, 4\]"):
        IntervalSet().add(5, 4)
