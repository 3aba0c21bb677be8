from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.planning.elasticity import PathWalker, RejectionSettings, Trust, relative_error
from policies.planning.stategraph import Path


def path(states: tuple[int, ...], std: float = 0.1) -> Path:
    n = len(states)
    return Path(states, float(n), (1.0,) * n, (std,) * n, (0.0,))


def walker(uncertainty: float = 0.5, error: float = 0.2) -> PathWalker:
    return PathWalker(RejectionSettings(most_uncertainty=uncertainty, most_error=error, unit_usd=0.5))


def test_a_good_path_is_walked_to_its_end() -> None:
    walk = walker()
    assert walk.needs_path
    walk.adopt(path((1, 2, 0)), np.array([100.0, 200.0, 50.0]))
    for state, seen in ((1, 90.0), (2, 230.0), (0, 50.0)):
        assert not walk.needs_path
        move = walk.advance()
        assert (move.state, move.rejected) == (state, "")
        assert walk.observe(seen) == ""
    assert walk.needs_path


def test_an_uncertain_cost_rejects_what_comes_after_it() -> None:
    walk = walker(uncertainty=0.05)
    walk.adopt(path((1, 2)), np.array([100.0, 200.0]))
    move = walk.advance()
    assert move.state == 1
    assert "10% of it, more than 5%" in move.rejected
    assert walk.needs_path


def test_a_cheap_window_is_not_rejected_for_its_small_change() -> None:
    cheap = Path((0,), 0.0, (1e-9,), (1e-6,), (0.0,))
    walk = walker(uncertainty=0.01)
    walk.adopt(cheap, np.array([1.0]))
    assert walk.advance().rejected == ""


def test_a_wrong_forecast_rejects_the_path() -> None:
    walk = walker(error=0.2)
    walk.adopt(path((1, 2)), np.array([100.0, 200.0]))
    walk.advance()
    assert "the input was 130, forecast 100: 30% off, more than 20%" in walk.observe(130.0)
    assert walk.needs_path
    with pytest.raises(ValueError, match="adopt one first"):
        walk.advance()


def test_nothing_expected_and_nothing_seen_is_no_error() -> None:
    assert relative_error(0.0, 0.0) == 0.0
    assert relative_error(1.0, 0.0) == float("inf")


def test_a_model_must_prove_itself_before_it_decides() -> None:
    trust = Trust(window=4)
    for seen in range(3):
        trust.observe(100.0, 99.0, 90.0)
        assert not trust.trusted
        assert f"{seen + 1} of 4 forecasts were checked" in trust.why
    trust.observe(100.0, 99.0, 90.0)
    assert trust.trusted
    assert trust.why == "the model decides: over the last 4 forecasts its mean error was 1, the plain rule's 10"


def test_a_model_worse_than_the_plain_rule_steps_back_and_says_so() -> None:
    trust = Trust(window=4)
    for _ in range(4):
        trust.observe(100.0, 100.0, 95.0)
    while trust.trusted:
        trust.observe(100.0, 160.0, 95.0)
    assert "the model steps back" in trust.why
    for _ in range(4):
        trust.observe(100.0, 95.4, 95.0)
    assert not trust.trusted, "8% better is within the margin"
    for _ in range(4):
        trust.observe(100.0, 99.0, 95.0)
    assert trust.trusted


def test_too_little_counts_as_often_as_late_events_cost_more() -> None:
    """A model that keeps a fifth too much ready loses less than a plain rule that is a tenth too low."""
    symmetric, judged = Trust(window=4), Trust(window=4, late_factor=19.0)
    for _ in range(4):
        for trust in (symmetric, judged):
            trust.observe(100.0, 120.0, 90.0)
    assert not symmetric.trusted
    assert judged.trusted
    assert "its mean error was 20 (too little counts 19 times), the plain rule's 190" in judged.why


errors = st.lists(st.tuples(st.floats(0, 100), st.floats(0, 100)), min_size=1, max_size=60)


@given(errors, st.integers(1, 12), st.floats(0, 0.9))
def test_a_model_that_is_worse_is_never_trusted(pairs: list[tuple[float, float]], window: int, margin: float) -> None:
    trust = Trust(window, margin)
    for at, (model, plain) in enumerate(pairs, start=1):
        trust.observe(0.0, model, plain)
        recent = pairs[max(0, at - window) : at]
        if at < window or sum(m for m, _ in recent) > sum(p for _, p in recent) * (1 + 1e-9):
            assert not trust.trusted


def test_nonsense_is_refused() -> None:
    with pytest.raises(ValueError, match="must not be negative"):
        RejectionSettings(-1.0, 0.1, 1.0)
    with pytest.raises(ValueError, match="as many forecasts"):
        walker().adopt(path((1, 2)), np.array([1.0]))
    with pytest.raises(ValueError, match="makes no sense"):
        Trust(window=0)
    with pytest.raises(ValueError, match="makes no sense"):
        Trust(late_factor=0.0)
