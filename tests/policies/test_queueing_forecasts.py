from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.queueing.forecasts import HoltWinters, Smoothing, fit_smoothing, naive, seasonal_naive


def seasonal(n: int, noise: float = 0.0, seed: int = 0) -> np.ndarray:
    at = np.arange(n)
    series = 100 + 0.5 * at + 20 * np.sin(2 * np.pi * at / 12)
    return np.asarray(series + noise * np.random.default_rng(seed).normal(size=n))


values = st.lists(st.floats(-1e6, 1e6), min_size=4, max_size=40)


@given(values, st.integers(1, 9))
def test_naive_forecasts_repeat_the_last_value_or_season(series: list[float], ahead: int) -> None:
    assert naive(series, ahead).tolist() == [series[-1]] * ahead
    assert seasonal_naive(series, ahead, 1).tolist() == naive(series, ahead).tolist()
    assert seasonal_naive(series, ahead, 3).tolist() == [series[-3:][step % 3] for step in range(ahead)]


@pytest.mark.parametrize("smoothing", [Smoothing(0.3, 0.1, 0.2), Smoothing(0.9, 0.02, 0.5), Smoothing(0.0, 0.0, 0.0)])
def test_holt_winters_agrees_with_statsmodels(smoothing: Smoothing) -> None:
    from statsmodels.tsa.holtwinters import ExponentialSmoothing

    series = seasonal(60, noise=5.0)
    first, second = series[:12].mean(), series[12:24].mean()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the parameters being given, which is the point
        theirs = ExponentialSmoothing(
            series,
            trend="add",
            seasonal="add",
            seasonal_periods=12,
            initialization_method="known",
            initial_level=first,
            initial_trend=(second - first) / 12,
            initial_seasonal=series[:12] - first,
        ).fit(
            smoothing_level=smoothing.level,
            smoothing_trend=smoothing.trend,
            smoothing_seasonal=smoothing.seasonal,
            optimized=False,
        )
    ours = HoltWinters(12, smoothing, series)
    # Their twelfth step takes the season as it was before its last update, so only eleven are compared.
    assert ours.forecast(11) == pytest.approx(theirs.forecast(11), rel=1e-6)
    assert np.array(ours.errors) == pytest.approx(theirs.resid, abs=1e-6)


def test_a_trend_with_a_season_is_continued() -> None:
    model = HoltWinters(12, Smoothing(0.5, 0.2, 0.3), seasonal(240))
    assert model.forecast(24) == pytest.approx(seasonal(264)[240:], abs=2.5)


def test_fitted_smoothing_beats_the_naive_forecasts_on_noise() -> None:
    series = seasonal(156, noise=4.0, seed=3)
    past, truth = series[:144], series[144:]
    fitted = HoltWinters(12, fit_smoothing(past, 12), past).forecast(12)
    error = np.abs(fitted - truth).mean()
    assert error < np.abs(naive(past, 12) - truth).mean()
    assert error < np.abs(seasonal_naive(past, 12, 12) - truth).mean()


def test_the_fit_is_at_least_as_good_as_its_starts() -> None:
    series = seasonal(72, noise=8.0, seed=1)
    best = np.square(HoltWinters(12, fit_smoothing(series, 12), series).errors).sum()
    for start in (Smoothing(0.3, 0.05, 0.3), Smoothing(0.8, 0.01, 0.1), Smoothing(0.05, 0.01, 0.1)):
        assert best <= np.square(HoltWinters(12, start, series).errors).sum() * (1 + 1e-9)


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1), st.floats(-100, 100))
def test_a_constant_stays_constant(level: float, trend: float, season: float, value: float) -> None:
    model = HoltWinters(4, Smoothing(level, trend, season), [value] * 20)
    assert model.forecast(9) == pytest.approx([value] * 9, abs=1e-6)


def test_nonsense_is_refused() -> None:
    with pytest.raises(ValueError, match="2 slices are too few"):
        seasonal_naive([1.0, 2.0], 1, 3)
    with pytest.raises(ValueError, match="makes no sense"):
        naive([1.0], 0)
    with pytest.raises(ValueError, match="use two or more"):
        HoltWinters(1, Smoothing(0.1, 0.1, 0.1), [1.0] * 9)
    with pytest.raises(ValueError, match="lie in"):
        Smoothing(1.2, 0, 0)
    with pytest.raises(ValueError, match="not finite"):
        naive([float("inf")], 1)
