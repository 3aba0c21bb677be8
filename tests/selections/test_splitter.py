from __future__ import annotations

from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.selections.closing import ClosingRule
from policies.selections.opening import EachCount, EachMatch, EachTime, OpeningRule
from policies.selections.splitter import ClosedSelections, SelectionSplitter, needed
from tests.selections.sequential import Event, Sequential


@st.composite
def streams(draw: st.DrawFn) -> list[Event]:
    """Events close to each other in time, some of them older than the one before."""
    keys = st.sampled_from((None, "a", "b", "c"))
    steps = draw(st.lists(st.tuples(st.integers(-2, 4), st.booleans(), st.booleans(), keys), max_size=40))
    times_ms = accumulate(step for step, *_ in steps)
    return [Event(at_ms, matches, ends, key) for at_ms, (_, matches, ends, key) in zip(times_ms, steps, strict=True)]


EVENTS = streams()
SIZE = st.integers(1, 9)


@st.composite
def operators(draw: st.DrawFn) -> tuple[OpeningRule, ClosingRule, Sequential]:
    """A splitter's predicates, and the sequential operator with the same settings."""
    kind = draw(st.sampled_from(["time", "tuple", "match"]))
    slide = draw(SIZE)
    openings: dict[str, OpeningRule] = {"time": EachTime(slide), "tuple": EachCount(slide), "match": EachMatch()}
    window_ms, count = draw(st.none() | SIZE), draw(st.none() | SIZE)
    on_match = draw(st.booleans()) or (window_ms is None and count is None)
    most = draw(st.just(1_000_000) | SIZE)
    sequential = Sequential(
        slide_ms=slide if kind == "time" else None,
        slide=slide if kind == "tuple" else None,
        window_ms=window_ms,
        count=count,
        on_match=on_match,
        most=most,
        disjoint=draw(st.booleans()),
    )
    sequential.same = on_match and not sequential.disjoint and draw(st.booleans())
    return (
        openings[kind],
        ClosingRule(after_ms=window_ms, events=count, on_match=on_match, most_events=most),
        sequential,
    )


def runs_of(events: list[Event], cuts: list[int]) -> list[list[Event]]:
    borders = [0, *sorted(cut for cut in cuts if cut <= len(events)), len(events)]
    return [events[at:to] for at, to in pairwise(borders)]


def split(splitter: SelectionSplitter, run: list[Event], *, same: bool = False) -> ClosedSelections:
    numbers = {None: -1, "a": 7, "b": 2, "c": 1_000_000_000}
    return splitter.split(
        np.array([event.time_ms for event in run], dtype=np.int64),
        np.array([event.matches for event in run], dtype=np.bool_),
        np.array([event.ends for event in run], dtype=np.bool_),
        np.array([numbers[event.key] for event in run], dtype=np.int64) if same else None,
    )


def told(closed: ClosedSelections) -> list[tuple[int, list[int], bool]]:
    rows = zip(*(column.tolist() for column in closed[:4]), strict=True)
    return [(number, list(range(first, end)), bounded) for number, first, end, bounded in rows]


@given(EVENTS, operators(), st.lists(st.integers(0, 40), max_size=6))
def test_runs_of_any_length_close_what_the_sequential_operator_closes(
    events: list[Event], operator: tuple[OpeningRule, ClosingRule, Sequential], cuts: list[int]
) -> None:
    opening, closing, sequential = operator
    splitter = SelectionSplitter(opening, closing, disjoint=sequential.disjoint)
    found = [each for run in runs_of(events, cuts) for each in told(split(splitter, run, same=sequential.same))]
    assert found == list(sequential.run(events))
    assert splitter.next_event == len(events)
    assert splitter.next_selection == len(found)


@given(EVENTS, operators(), st.integers(0, 40))
def test_what_comes_later_needs_no_event_before_the_oldest_open_selection(
    events: list[Event], operator: tuple[OpeningRule, ClosingRule, Sequential], cut: int
) -> None:
    opening, closing, sequential = operator
    splitter = SelectionSplitter(opening, closing, disjoint=sequential.disjoint)
    before, *after = runs_of(events, [min(cut, len(events))])
    split(splitter, before, same=sequential.same)
    needed_from = splitter.needed_from
    for run in after:
        assert all(first >= needed_from for first in split(splitter, run, same=sequential.same).first)


@given(EVENTS, operators(), st.integers(-3, 3), st.integers(0, 50))
def test_an_event_is_needed_once_if_any_selection_has_it(
    events: list[Event], operator: tuple[OpeningRule, ClosingRule, Sequential], first: int, count: int
) -> None:
    opening, closing, sequential = operator
    closed = split(SelectionSplitter(opening, closing, disjoint=sequential.disjoint), events, same=sequential.same)
    wanted = {number for _, numbers, _ in sequential.run(events) for number in numbers}
    assert needed(closed, first, count).tolist() == [number in wanted for number in range(first, first + count)]


def test_the_selections_that_opened_first_are_dropped_when_too_many_are_open() -> None:
    splitter = SelectionSplitter(EachCount(1), ClosingRule(events=5), most_open=3)
    run = [Event(0, False, False)] * 4
    assert split(splitter, run[:3]).dropped.tolist() == []
    assert split(splitter, run[:2]).dropped.tolist() == [1]
    # The first one closed in the second run; the second one never does.
    found = split(splitter, run)
    assert (told(found), found.dropped.tolist()) == (
        [(1, [2, 3, 4, 5, 6], False), (2, [3, 4, 5, 6, 7], False), (3, [4, 5, 6, 7, 8], False)],
        [5],
    )
    assert splitter.needed_from == 6


def test_a_pattern_without_its_condition_is_refused() -> None:
    with pytest.raises(ValueError, match="meet its first condition"):
        SelectionSplitter(EachMatch(), ClosingRule(events=1)).split(np.array([1], dtype=np.int64))


def test_a_pattern_without_its_closing_condition_is_refused() -> None:
    splitter = SelectionSplitter(EachCount(1), ClosingRule(on_match=True))
    with pytest.raises(ValueError, match="meet its closing condition"):
        splitter.split(np.array([1], dtype=np.int64))
    assert splitter.next_event == 0


@pytest.mark.parametrize(
    "wrong", [{}, {"events": 0}, {"after_ms": 0}, {"after_ms": -1}, {"events": 1, "most_events": 0}]
)
def test_a_selection_without_end_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="end"):
        ClosingRule(**wrong)


@pytest.mark.parametrize("slides", [EachTime, EachCount])
def test_a_window_that_does_not_slide_is_refused(slides: type[EachTime] | type[EachCount]) -> None:
    with pytest.raises(ValueError, match="slides by more than 0"):
        slides(0)
