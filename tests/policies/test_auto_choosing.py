"""Which rule is followed: the bound on what is paid beyond the best one, on any costs, and how rarely it changes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.auto.choosing import Choosing

NAMES = 4
PRIOR = (0.7, 0.1, 0.1, 0.1)

costs = st.lists(st.tuples(*(st.one_of(st.just(0.0), st.floats(0, 1e4)) for _ in range(NAMES))), max_size=60)


def paid(choosing: Choosing, sequence: Sequence[Sequence[float]], switch_usd: float) -> tuple[float, float]:
    """Return the expected cost and the expected number of switches, computed from the weights alone."""
    usd, switches = 0.0, 0.0
    for each in sequence:
        usd += float(choosing.weights @ np.array(each))
        before = choosing.weights
        choosing.pay(each)
        switches += float(np.abs(choosing.weights - before).sum()) / 2
    return usd + switch_usd * switches, switches


@given(costs, st.floats(0, 100))
@settings(max_examples=200, deadline=None)
def test_no_sequence_of_costs_is_dearer_than_the_bound(sequence: list[tuple[float, ...]], switch_usd: float) -> None:
    choosing = Choosing(PRIOR, switch_usd, np.random.default_rng(0))
    usd, switches = paid(choosing, sequence, switch_usd)
    best = float(choosing.usd.min())
    assert usd <= best + 2 * choosing.doubt_usd + 1e-6 * max(1.0, usd)
    assert switch_usd * switches <= choosing.doubt_usd + 1e-6 * max(1.0, usd)
    assert choosing.weights.sum() == pytest.approx(1.0)


@pytest.mark.parametrize("switch_usd", [0.0, 1.0, 10.0])
def test_the_doubt_grows_like_the_square_root_of_time_when_costs_alternate(switch_usd: float) -> None:
    """The worst case: whoever is followed has just been the cheaper one."""
    doubts = []
    for slots in (1_000, 4_000):
        choosing = Choosing((0.5, 0.5), switch_usd, np.random.default_rng(0))
        for slot in range(slots):
            choosing.pay((1.0, 0.0) if slot % 2 else (0.0, 1.0))
        doubts.append(choosing.doubt_usd)
    assert doubts[1] < 2.2 * doubts[0]
    assert 2 * doubts[1] < 0.25 * 2_000 * (1 + switch_usd)


def test_what_is_drawn_costs_what_the_weights_say() -> None:
    rng = np.random.default_rng(3)
    sequence = rng.exponential(size=(60, NAMES)) * np.array([1.0, 1.2, 0.9, 3.0])
    expected, switches = paid(Choosing(PRIOR, 2.0, np.random.default_rng(0)), sequence, 2.0)
    drawn, changed = [], []
    for seed in range(400):
        choosing, usd = Choosing(PRIOR, 2.0, np.random.default_rng(seed)), 0.0
        for each in sequence:
            usd += each[choosing.followed]
            choosing.pay(each)
        drawn.append(usd + 2.0 * choosing.switches)
        changed.append(choosing.switches)
    assert np.mean(drawn) == pytest.approx(expected, rel=0.03)
    assert np.mean(changed) == pytest.approx(switches, rel=0.15)


@pytest.mark.parametrize("seed", range(5))
def test_the_rule_that_is_always_cheaper_is_soon_followed_and_never_left(seed: int) -> None:
    choosing = Choosing(PRIOR, 5.0, np.random.default_rng(seed))
    followed = [choosing.pay((1.0, 0.5, 2.0, 3.0)) for _ in range(300)]
    assert set(followed[100:]) == {1}
    assert choosing.switches <= 5
    assert choosing.doubt_usd < 20


def test_equal_costs_change_nothing() -> None:
    choosing = Choosing(PRIOR, 1.0, np.random.default_rng(2))
    first = choosing.followed
    for _ in range(50):
        assert choosing.pay((2.0,) * NAMES) == first
    assert choosing.doubt_usd == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("costs", [(-1.0, 0.0, 0.0, 0.0), (float("inf"), 0.0, 0.0, 0.0)])
def test_impossible_costs_are_refused(costs: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="no costs"):
        Choosing(PRIOR, 1.0, np.random.default_rng(0)).pay(costs)
    with pytest.raises(ValueError, match="no prior"):
        Choosing((0.5, 0.6), 1.0, np.random.default_rng(0))
