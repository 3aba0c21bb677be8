from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.gaussian.calibration import ERRORS, Z_COVERED, width_factor
from policies.gaussian.forecaster import Forecaster, train
from policies.gaussian.warping import unwarped, warped

SHAPES = ("normal", "laplace", "student", "uniform", "mixture")


def errors_of(shape: str, rng: np.random.Generator, n: int) -> np.ndarray:
    match shape:
        case "normal":
            return rng.normal(size=n)
        case "laplace":
            return rng.laplace(size=n)
        case "student":
            return rng.standard_t(2, size=n)
        case "uniform":
            return rng.uniform(-1, 1, size=n)
    return np.where(rng.uniform(size=n) < 0.95, 0.2, 5.0) * rng.normal(size=n)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("scale", [1.0, 6.0])
def test_nine_of_ten_are_held_whatever_the_errors_are_like(shape: str, scale: float) -> None:
    rng = np.random.default_rng(3)
    z = scale * errors_of(shape, rng, 3000)
    held = [abs(z[at]) <= Z_COVERED * width_factor(z[at - ERRORS : at]) for at in range(ERRORS, len(z))]
    assert 0.88 <= np.mean(held) <= 0.93


def test_errors_that_grow_are_followed() -> None:
    z = np.random.default_rng(4).normal(size=3000) * np.linspace(1.0, 6.0, 3000)
    held = [abs(z[at]) <= Z_COVERED * width_factor(z[at - ERRORS : at]) for at in range(ERRORS, len(z))]
    assert 0.87 <= np.mean(held) <= 0.93


@given(st.lists(st.floats(-50, 50), min_size=30, max_size=100), st.floats(1.0, 5.0))
def test_greater_errors_never_make_a_narrower_interval(z: list[float], factor: float) -> None:
    assert width_factor(np.array(z) * factor) >= width_factor(np.array(z))


def test_too_few_errors_change_nothing_and_perfect_ones_not_all() -> None:
    assert width_factor(np.full(29, 100.0)) == 1.0
    assert width_factor(np.zeros(100)) == 0.1


@given(st.floats(0.0, 60.0), st.floats(0.01, 8.0))
def test_moments_are_those_of_a_squared_normal_variable(mean: float, std: float) -> None:
    drawn = (mean + std * np.random.default_rng(1).normal(size=200_000)) ** 2 / 4
    found = unwarped(np.array([mean]), np.array([std]))
    assert found[0][0] == pytest.approx(drawn.mean(), rel=0.02)
    assert found[1][0] == pytest.approx(drawn.std(), rel=0.03)


@given(st.lists(st.floats(0, 1e9), min_size=1))
def test_a_value_without_noise_comes_back(values: list[float]) -> None:
    y = np.array(values)
    assert unwarped(warped(y), np.zeros_like(y))[0] == pytest.approx(y, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("lead", [1, 4])
def test_an_interval_is_right_where_noise_grows_with_the_rate_and_has_outliers(lead: int) -> None:
    rng = np.random.default_rng(5)
    at_s = 1_700_000_000.0 + 3600.0 * np.arange(24 * 14)
    rate = 400 + 350 * np.sin(2 * np.pi * at_s / 86_400)
    outliers = np.where(rng.uniform(size=len(at_s)) < 0.05, 6.0, 1.0)
    values = np.maximum(rate * (1 + 0.1 * outliers * rng.normal(size=len(at_s))), 0.0)
    forecaster, n = Forecaster(24 * 7), 24 * 7
    for moment, value in zip(at_s[:n], values[:n], strict=True):
        forecaster.observe(float(moment), float(value))
    forecaster.adopt(train(forecaster.training_set()))
    inside = []
    for at in range(n, len(at_s) - lead + 1):
        forecast = forecaster.forecast(at_s[at + lead - 1 : at + lead])
        inside.append(abs(values[at + lead - 1] - forecast.mean[0]) <= Z_COVERED * forecast.std[0])
        forecaster.observe(float(at_s[at]), float(values[at]))
    assert 0.83 <= np.mean(inside) <= 0.96
