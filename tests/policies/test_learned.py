"""When models are trained (in a quiet moment if there is one), and which models are trusted."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.gaussian.forecaster import TrainingSet, train
from policies.planning.learned import Learned, LearningOptions


def seen(windows: int) -> Learned:
    """Return models that have seen this many windows."""
    learned = Learned(LearningOptions(window_s=1.0, history=500, cycles_s=(), lead=2))
    observe(learned, 0, windows)
    return learned


def observe(learned: Learned, first: int, windows: int) -> None:
    for window in range(first, first + windows):
        learned.observe(1000.0 + window, 10.0 + window % 7, 1, 0.01)


def test_the_first_training_takes_the_first_quiet_moment() -> None:
    assert seen(23).fit_order(quiet=True) is None
    assert seen(24).fit_order(quiet=True) is not None


def test_the_first_training_does_not_wait_for_a_quiet_moment_that_never_comes() -> None:
    assert seen(47).fit_order(quiet=False) is None
    assert "waits for a quiet moment" in seen(47).why
    assert seen(48).fit_order(quiet=False) is not None


def test_a_training_that_failed_is_tried_again_when_a_tenth_of_the_history_is_new() -> None:
    learned = seen(24)
    assert learned.fit_order(quiet=True) is not None
    assert learned.fit_order(quiet=True) is None, "one at a time"
    learned.fitted((), "no memory")
    observe(learned, 24, 49)
    assert learned.fit_order(quiet=True) is None
    observe(learned, 73, 1)
    assert learned.fit_order(quiet=False) is None
    assert learned.fit_order(quiet=True) is not None


def calm(spare_engines: float) -> Learned:
    """Return models that have learned 700 events/s with some noise; an engine does 1,000."""
    rng = np.random.default_rng(1)
    options = LearningOptions(
        window_s=5.0, history=200, cycles_s=(), lead=3, late_factor=19.0, spare_engines=spare_engines
    )
    learned = Learned(options)
    for window in range(120):
        if window == 80:
            order = learned.fit_order(quiet=True)
            assert order is not None
            learned.fitted(tuple(train(each) for each in order.training if isinstance(each, TrainingSet)), "")
        learned.observe(1000.0 + 5 * window, 700.0 + 30 * rng.normal(), 1, 0.001)
    return learned


def test_an_interval_no_wider_than_a_vm_costs_no_trust_in_a_calm() -> None:
    assert calm(spare_engines=1.0).trusted
    assert not calm(spare_engines=0.0).trusted, "as now is exact there, and has nothing to spare"


BUSY_LEAD = 8


def observe_busy(learned: Learned, first: int, times: list[tuple[int, float]]) -> None:
    """Show windows with this many engines, each busy this long with an event, and train whenever requested."""
    for window, (engines, event_s) in enumerate(times, first):
        learned.observe(1e9 + window, 10.0 + window % 7, engines, event_s)
        if (order := learned.fit_order(quiet=True)) is not None:
            learned.fitted(tuple(train(each) for each in order.training if isinstance(each, TrainingSet)), "")


def timed(times: list[tuple[int, float]]) -> Learned:
    learned = Learned(LearningOptions(window_s=1.0, history=500, cycles_s=(), lead=2, busy_lead=BUSY_LEAD))
    observe_busy(learned, 0, times)
    return learned


def busy_s(learned: Learned, window: int, event_s: float) -> list[float]:
    mean, _ = learned.busy_ahead(1e9 + window + BUSY_LEAD, np.array([1.0, 2.0]), event_s)
    return [float(each) for each in mean]


@settings(max_examples=20, deadline=None)
@given(slower=st.floats(20.0, 2000.0), fades=st.floats(0.3, 0.98), slow_windows=st.integers(1, 20))
def test_first_batches_that_took_long_make_no_engine_look_useless_later(
    slower: float, fades: float, slow_windows: int
) -> None:
    """A model that learned these values forecast a multiple of the later times, so no VM seemed worth its price."""
    slow = [(1, 0.01 * (1 + slower * fades**window)) for window in range(slow_windows)]
    learned = timed([*slow, *[(1, 0.01)] * (70 - slow_windows)])
    assert busy_s(learned, 70, 0.01)[0] == pytest.approx(0.01, rel=0.2)


def test_a_time_that_grows_with_the_engines_is_learned() -> None:
    learned = timed([(1, 0.01)] * 12 + [(2, 0.02)] * 24 + [(1, 0.01)] * 24 + [(2, 0.02)] * 24 + [(1, 0.01)] * 24)
    assert busy_s(learned, 108, 0.01) == pytest.approx([0.01, 0.02], rel=0.15)
