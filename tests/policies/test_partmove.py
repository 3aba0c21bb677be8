"""How the move of a part goes on, beside an oracle that looks at the whole history of the move at once."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.switching.partmove import MovePhase, PartMove, Step, Terms

LEAVES = Terms(hold_after_s=1.0, follow_most_s=10.0, held_most_s=5.0)
RETURNS = Terms(hold_after_s=1.0, follow_most_s=10.0, held_most_s=60.0)


@dataclass(frozen=True)
class Look:
    """What the caller sees at a time."""

    at_s: float
    lag_runs: int
    wanted: bool = True
    trouble: str = ""


looks = st.lists(
    st.builds(
        Look,
        at_s=st.sampled_from([0.02, 0.5, 1.0, 3.0, 9.0, 31.0]),
        lag_runs=st.sampled_from([0, 1, 1, 1, 2, 3, 50]),
        wanted=st.sampled_from([True] * 20 + [False]),
        trouble=st.sampled_from([""] * 20 + ["it is lost"]),
    ),
    max_size=25,
)


def expected(history: list[Look], opened_at: int, terms: Terms) -> Step:
    """What the rules of decision 0120 say about the last look, from all looks of the move."""
    now = history[-1]
    if now.trouble or not now.wanted:
        return Step.DROP
    if len(history) <= opened_at:
        return Step.WAIT
    if now.lag_runs == 0:
        return Step.SWITCH
    opened_s = history[opened_at - 1].at_s if opened_at else 0.0
    holds = [
        look.at_s
        for look in history[opened_at:]
        if (look.lag_runs == 1 and look.at_s - opened_s >= terms.hold_after_s)
        or look.at_s - opened_s >= terms.follow_most_s
    ]
    if not holds:
        return Step.WAIT
    if holds[0] == now.at_s:
        return Step.HOLD
    lags = [(look.at_s, look.lag_runs) for look in history if look.at_s >= holds[0]]
    least = min(lag_runs for _, lag_runs in lags)
    progress_s = next(at_s for at_s, lag_runs in lags if lag_runs == least)
    return Step.DROP if now.at_s - progress_s > terms.held_most_s else Step.WAIT


@given(looks, st.integers(0, 8), st.sampled_from([LEAVES, RETURNS]))
def test_each_step_is_that_of_the_rules(steps: list[Look], opened_at: int, terms: Terms) -> None:
    move, at_s, history = PartMove(terms), 0.0, list[Look]()
    for number, step in enumerate(steps):
        if number == opened_at:
            move.opened(at_s)
        at_s += step.at_s
        history.append(Look(at_s, step.lag_runs, step.wanted, step.trouble))
        found = move.step(at_s, lag_runs=step.lag_runs, wanted=step.wanted, trouble=step.trouble)
        assert found is expected(history, opened_at, terms)
        assert bool(move.reason) is (found is Step.DROP)
        if found in (Step.SWITCH, Step.DROP):
            with pytest.raises(ValueError, match="has ended"):
                move.step(at_s, lag_runs=0, wanted=True)
            with pytest.raises(ValueError, match="cannot be opened"):
                move.opened(at_s)
            return


@given(
    st.lists(st.tuples(st.floats(0.01, 5.0), st.integers(0, 3)), min_size=1, max_size=40),
    st.sampled_from([LEAVES, RETURNS]),
)
def test_a_part_is_held_only_while_the_next_place_goes_on(steps: list[tuple[float, int]], terms: Terms) -> None:
    move, at_s, held_s, least = PartMove(terms), 0.0, None, 0
    move.opened(at_s)
    for by_s, lag_runs in steps:
        at_s += by_s
        found = move.step(at_s, lag_runs=lag_runs, wanted=True)
        if found is Step.HOLD or (held_s is not None and lag_runs < least):
            held_s, least = at_s, lag_runs
        if found in (Step.SWITCH, Step.DROP):
            return
        assert held_s is None or at_s - held_s <= terms.held_most_s
        assert held_s is not None or at_s < terms.follow_most_s


def test_a_part_that_caught_up_at_once_is_never_held() -> None:
    move = PartMove(LEAVES)
    assert move.step(0.0, lag_runs=0, wanted=True) is Step.WAIT
    move.opened(1.0)
    assert move.step(1.0, lag_runs=0, wanted=True) is Step.SWITCH
    assert move.phase is MovePhase.SWITCHED


def test_a_part_that_is_far_behind_is_held_at_last() -> None:
    move = PartMove(LEAVES)
    move.opened(0.0)
    assert move.step(9.9, lag_runs=9, wanted=True) is Step.WAIT
    assert move.step(10.0, lag_runs=9, wanted=True) is Step.HOLD
    for at_s, lag_runs in ((12.0, 10), (15.0, 8), (19.0, 7), (24.0, 7)):
        assert move.step(at_s, lag_runs=lag_runs, wanted=True) is Step.WAIT
    assert move.step(24.1, lag_runs=7, wanted=True) is Step.DROP
    assert "7 runs behind" in move.reason
