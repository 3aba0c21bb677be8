"""The results of the parts of a keyed query, joined."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.exchange.instructions import Release
from gateway.core.exchange.joint import Joint


def joint(parts: int) -> Joint[list[str]]:
    return Joint(parts, lambda each: [row for rows in each for row in rows])


def release(
    first: int, last: int, rows: list[str], events: int, arrival_s: float = 1.0, *, late: bool = False
) -> Release[list[str]]:
    return Release(first, last, rows, events, arrival_s, late)


@given(st.integers(1, 5), st.integers(1, 6), st.randoms(use_true_random=False))
def test_a_run_is_released_when_its_last_part_is_there(parts: int, runs: int, chance: random.Random) -> None:
    joining = joint(parts)
    left = [list(range(runs)) for _ in range(parts)]
    seen: dict[int, int] = dict.fromkeys(range(runs), 0)
    while any(left):
        part = chance.choice([at for at, of_part in enumerate(left) if of_part])
        number = left[part].pop(0)
        found = joining.add(part, release(10 * number, 10 * number + 9, [f"{part} of {number}"], part))
        seen[number] += 1
        assert (found is not None) is (seen[number] == parts)
        if found is not None:
            assert found.results == [f"{each} of {number}" for each in range(parts)]
            assert (found.first_seq, found.last_seq) == (10 * number, 10 * number + 9)
            assert found.events == sum(range(parts))
    assert not joining.waiting


def test_the_arrival_is_the_mean_of_all_events() -> None:
    joining = joint(3)
    joining.add(0, release(0, 9, [], 4, 1.0))
    joining.add(1, release(0, 9, [], 0, 99.0))
    found = joining.add(2, release(0, 9, [], 6, 2.0, late=True))
    assert found is not None
    assert found.arrival_s == pytest.approx(1.6)
    assert found.late


def test_parts_with_other_micro_batches_are_refused_and_nothing_changes() -> None:
    joining = joint(2)
    joining.add(0, release(0, 9, ["a"], 5))
    with pytest.raises(ValueError, match="part 1 releases 0-4"):
        joining.add(1, release(0, 4, ["b"], 5))
    with pytest.raises(ValueError, match="part 0 releases 0-9"):
        joining.add(0, release(0, 9, ["a"], 5))
    found = joining.add(1, release(0, 9, ["b"], 5))
    assert found is not None
    assert found.results == ["a", "b"]
