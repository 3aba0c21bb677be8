from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.exchange.reorder import Released, Reorderer
from gateway.core.intervals import IntervalSet

FLUSH_S = 30.0


def cut(sizes: list[int]) -> list[tuple[int, int]]:
    """Consecutive runs of these sizes."""
    runs, first = [], 0
    for size in sizes:
        runs.append((first, first + size - 1))
        first += size
    return runs


@st.composite
def shuffled_runs(draw: st.DrawFn) -> list[tuple[int, int]]:
    runs = cut(draw(st.lists(st.integers(1, 5), min_size=1, max_size=25)))
    return draw(st.permutations(runs))


def marked_inversions(releases: list[Released[str]]) -> None:
    """Fail on a release that comes after a later one and is not marked, or is marked without need."""
    highest = -1
    for release in releases:
        assert release.late == (release.first_seq < highest)
        highest = max(highest, release.last_seq)


@given(shuffled_runs(), st.lists(st.floats(0, 20), min_size=25, max_size=25), st.data())
def test_each_run_goes_out_once_and_an_inversion_is_marked(
    runs: list[tuple[int, int]], waits: list[float], data: st.DataObject
) -> None:
    reorderer: Reorderer[str] = Reorderer(flush_s=FLUSH_S)
    out: list[Released[str]] = []
    now_s = 0.0
    for (first, last), wait_s in zip(runs, waits, strict=False):
        now_s += wait_s
        if data.draw(st.booleans()):
            out += reorderer.flush(now_s)
        out += reorderer.complete(first, last, f"{first}", now_s)
        deadline_s = reorderer.next_deadline_s()
        assert (deadline_s is None) == (reorderer.held_count == 0)
    out += reorderer.flush(now_s + FLUSH_S)
    assert reorderer.held_count == 0
    assert sorted((r.first_seq, r.last_seq, r.item) for r in out) == sorted((f, t, f"{f}") for f, t in runs)
    marked_inversions(out)
    assert reorderer.late_count == sum(r.late for r in out)


@given(shuffled_runs(), st.floats(0, 1e9))
def test_strict_order_never_inverts_however_long_it_waits(runs: list[tuple[int, int]], wait_s: float) -> None:
    reorderer: Reorderer[str] = Reorderer(flush_s=None)
    out: list[Released[str]] = []
    for first, last in runs:
        out += reorderer.complete(first, last, "", 0.0)
        out += reorderer.flush(wait_s)
    assert [r.first_seq for r in out] == sorted(first for first, _ in runs)
    assert not any(r.late for r in out)
    assert reorderer.next_deadline_s() is None


@given(shuffled_runs())
def test_order_off_releases_on_completion(runs: list[tuple[int, int]]) -> None:
    reorderer: Reorderer[str] = Reorderer(flush_s=None, ordered=False)
    for first, last in runs:
        assert reorderer.complete(first, last, "x", 0.0) == [Released(first, last, "x", late=False)]
    assert reorderer.held_count == 0


@given(shuffled_runs(), st.data())
def test_a_restart_goes_on_from_what_was_released_with_its_holes(
    runs: list[tuple[int, int]], data: st.DataObject
) -> None:
    released_before = data.draw(st.sets(st.sampled_from(runs)))
    reorderer: Reorderer[str] = Reorderer(flush_s=FLUSH_S, released=IntervalSet(released_before))
    rest = [run for run in runs if run not in released_before]
    out: list[Released[str]] = []
    for first, last in rest:
        out += reorderer.complete(first, last, "", 0.0)
    out += reorderer.flush(FLUSH_S)
    assert sorted((r.first_seq, r.last_seq) for r in out) == sorted(rest)
    highest = max((last for _, last in released_before), default=-1)
    for release in out:
        assert release.late == (release.first_seq < highest)
        highest = max(highest, release.last_seq)


def test_a_gap_is_waited_for_from_its_first_later_completion() -> None:
    reorderer: Reorderer[str] = Reorderer(flush_s=30.0)
    assert reorderer.complete(10, 19, "b", 5.0) == []
    assert reorderer.complete(20, 29, "c", 25.0) == []
    assert reorderer.next_deadline_s() == 35.0
    assert reorderer.flush(34.9) == []
    assert [r.item for r in reorderer.flush(35.0)] == ["b", "c"]
    assert reorderer.complete(0, 9, "a", 36.0) == [Released(0, 9, "a", late=True)]


def test_a_second_gap_has_its_own_deadline() -> None:
    reorderer: Reorderer[str] = Reorderer(flush_s=30.0)
    reorderer.complete(10, 19, "b", 0.0)
    reorderer.complete(30, 39, "d", 20.0)
    assert [r.item for r in reorderer.flush(30.0)] == ["b"]
    assert reorderer.next_seq == 20
    assert reorderer.next_deadline_s() == 50.0
    assert [r.item for r in reorderer.complete(20, 29, "c", 31.0)] == ["c", "d"]
    assert reorderer.late_count == 0


def test_what_was_released_before_is_refused() -> None:
    reorderer: Reorderer[str] = Reorderer(flush_s=30.0, released=IntervalSet([(0, 9)]))
    with pytest.raises(ValueError, match="released before"):
        reorderer.complete(5, 12, "x", 0.0)


def test_releases_of_one_call_are_in_order() -> None:
    reorderer: Reorderer[int] = Reorderer(flush_s=30.0)
    for first in (40, 30, 20, 10):
        assert reorderer.complete(first, first + 9, first, 0.0) == []
    out = reorderer.complete(0, 9, 0, 0.0)
    assert [r.item for r in out] == [0, 10, 20, 30, 40]
    assert all(a.last_seq + 1 == b.first_seq for a, b in pairwise(out))


def test_what_is_held_is_refused_a_second_time() -> None:
    reorderer: Reorderer[object] = Reorderer(flush_s=30.0)
    reorderer.complete(10, 19, object(), 0.0)
    with pytest.raises(ValueError, match="is held"):
        reorderer.complete(10, 19, object(), 0.0)
    assert [(first, last) for first, last, _ in reorderer.held] == [(10, 19)]
