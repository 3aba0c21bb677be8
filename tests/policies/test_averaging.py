"""Which forecaster is trusted, and how certain the average is."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.arrays import Array
from policies.gaussian.forecaster import Forecast
from policies.planning.averaging import Averaged

LEAD = 2


def says(mean: float, std: float, windows: int = LEAD) -> Forecast:
    return Forecast(np.full(windows, mean), np.full(windows, std))


def lived(values: Array, model: Forecast | None, cycles: tuple[int, ...] = ()) -> Averaged:
    """Return forecasters that have seen the values; the model always forecast the same."""
    averaged = Averaged(history=500, cycles=cycles, lead=LEAD)
    for value in values:
        averaged.observe(float(value), model)
    return averaged


def noisy(values: Array, seed: int = 1) -> Array:
    return np.asarray(values + np.random.default_rng(seed).normal(0.0, 1.0, len(values)), dtype=np.float64)


def test_the_model_is_all_there_is_until_enough_was_seen() -> None:
    averaged = lived(np.full(20, 100.0), says(7.0, 1.0))
    found = averaged.forecast(says(70.0, 3.0, windows=4))
    assert found.mean == pytest.approx(np.full(4, 70.0))
    assert found.std == pytest.approx(np.full(4, 3.0))


def test_a_model_that_is_right_is_believed_where_values_jump() -> None:
    jumping = noisy(np.where(np.random.default_rng(0).random(120) < 0.5, 100.0, 300.0))
    averaged = Averaged(history=500, cycles=(), lead=LEAD)
    for at, value in enumerate(jumping):
        ahead = np.resize(jumping[at + 1 : at + 1 + LEAD], LEAD) if at + LEAD < len(jumping) else np.full(LEAD, 300.0)
        averaged.observe(float(value), Forecast(ahead, np.full(LEAD, 3.0)))
    found = averaged.forecast(says(300.0, 3.0))
    assert found.mean == pytest.approx(np.full(LEAD, 300.0), rel=0.01)


def test_a_model_that_is_wrong_is_left_for_what_is_now() -> None:
    averaged = lived(noisy(np.full(120, 400.0)), says(100.0, 3.0))
    found = averaged.forecast(says(100.0, 3.0))
    assert found.mean == pytest.approx(np.full(LEAD, 400.0), rel=0.02)
    assert (found.std < 20.0).all()


def test_a_cycle_that_has_grown_is_foreseen_although_the_model_knows_nothing_of_it() -> None:
    """A burst each 24 windows, at a level that rises: as a cycle ago, plus the change since then."""
    at = np.arange(24 * 8)
    load = np.asarray(400.0 + 1.0 * at + np.where(at % 24 >= 20, 900.0, 0.0), dtype=np.float64)
    before_burst = noisy(load)[: 24 * 8 - 5]
    averaged = lived(before_burst, says(400.0, 400.0), cycles=(24,))
    found = averaged.forecast(says(400.0, 400.0))
    assert found.mean[1] == pytest.approx(load[24 * 8 - 4], rel=0.1)
    without = lived(before_burst, says(400.0, 400.0)).forecast(says(400.0, 400.0))
    assert without.mean[1] < 0.6 * load[24 * 8 - 4]


def test_who_was_right_long_ago_is_forgotten() -> None:
    rng = np.random.default_rng(3)
    averaged = Averaged(history=500, cycles=(), lead=LEAD)
    for _ in range(200):
        averaged.observe(float(rng.choice([100.0, 300.0])), says(200.0, 100.0))
    for value in noisy(np.full(120, 600.0)):
        averaged.observe(float(value), says(200.0, 100.0))
    assert averaged.forecast(says(200.0, 100.0)).mean == pytest.approx(np.full(LEAD, 600.0), rel=0.05)


def test_forecasters_that_disagree_make_the_average_less_sure() -> None:
    averaged = lived(noisy(np.full(31, 400.0)), None)  # too few to have been judged, enough to be asked
    averaged.observe(400.0, None)
    found = averaged.forecast(says(100.0, 3.0))
    assert 200.0 < found.mean[0] < 300.0, "as likely as each other"
    assert found.std[0] > 100.0


def test_what_never_varied_is_no_reason_for_certainty() -> None:
    averaged = lived(np.full(200, 100.0), says(100.0, 5.0))
    assert 0.5 < averaged.forecast(says(100.0, 5.0)).std[0] < 5.0


def test_nothing_at_all_is_forecast_without_a_warning() -> None:
    averaged = lived(np.zeros(200), says(0.0, 0.0), cycles=(24,))
    found = averaged.forecast(says(0.0, 0.0))
    assert np.isfinite(found.mean).all()
    assert np.isfinite(found.std).all()


def test_a_horizon_longer_than_a_cycle_repeats_it() -> None:
    at = np.arange(10 * 40)
    load = np.where(at % 10 >= 7, 900.0, 100.0)
    model = says(300.0, 1000.0, windows=25)
    averaged = lived(load[:-25], model, cycles=(10,))
    assert averaged.forecast(model).mean == pytest.approx(load[-25:], rel=0.05)


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=80), st.floats(0, 1e6), st.floats(0, 1e5), st.integers(1, 30))
def test_the_average_is_a_distribution_whatever_came(values: list[float], mean: float, std: float, cycle: int) -> None:
    averaged = Averaged(history=60, cycles=(cycle,), lead=LEAD)
    for value in values:
        averaged.observe(value, says(mean, std))
    found = averaged.forecast(says(mean, std, windows=12))
    assert np.isfinite(found.mean).all()
    assert (found.mean >= 0).all()
    assert np.isfinite(found.std).all()
    assert (found.std >= 0).all()
