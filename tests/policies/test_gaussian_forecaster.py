from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.gaussian.features import DAY_OF_WEEK, ENGINES, TIME_OF_DAY, TIMESTAMP, features
from policies.gaussian.forecaster import Forecaster, Trained, train
from policies.gaussian.kernels import Periodic
from policies.gaussian.posterior import Posterior

HOUR_S = 3600.0
START_S = 1_700_000_000.0


def daily(at_s: np.ndarray, noise: float = 0.0, seed: int = 0) -> np.ndarray:
    day = 2 * np.pi * at_s / 86_400
    noises = noise * np.random.default_rng(seed).normal(size=len(at_s))
    return np.asarray(500 + 300 * np.sin(day) + 80 * np.sin(3 * day) + noises)


def fed(n: int, window: int, noise: float = 20.0) -> Forecaster:
    forecaster = Forecaster(window)
    at_s = START_S + HOUR_S * np.arange(n)
    for moment, value in zip(at_s, daily(at_s, noise), strict=True):
        forecaster.observe(float(moment), float(value))
    return forecaster


@given(st.datetimes(datetime(1971, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC)))  # noqa: DTZ001
def test_features_agree_with_the_calendar(moment: datetime) -> None:
    row = features([moment.timestamp()])[0]
    assert row[TIMESTAMP] == pytest.approx(moment.timestamp() / 86_400)
    assert row[TIME_OF_DAY] == pytest.approx(
        moment.hour + moment.minute / 60 + (moment.second + moment.microsecond / 1e6) / 3600, abs=1e-4
    )
    assert row[DAY_OF_WEEK] == moment.weekday()


def test_engines_are_a_fourth_feature() -> None:
    rows = features([0.0, 60.0], [1, 3])
    assert rows.shape == (2, 4)
    assert rows[:, ENGINES].tolist() == [1, 3]


def test_a_daily_cycle_is_forecast_a_day_ahead_within_its_noise() -> None:
    forecaster = fed(24 * 8, window=24 * 8)
    forecaster.adopt(train(forecaster.training_set()))
    ahead_s = START_S + HOUR_S * (24 * 8 + np.arange(24))
    forecast = forecaster.forecast(ahead_s)
    truth = daily(ahead_s)
    assert np.sqrt(np.mean((forecast.mean - truth) ** 2)) < 20.0
    assert 12 < np.median(forecast.std) < 35


def wandering_day(at_s: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A day whose height and phase change from day to day."""
    days = (at_s - at_s[0]) / 86_400
    walks = np.zeros((2, int(days[-1]) + 2))
    for day in range(1, walks.shape[1]):
        walks[:, day] = 0.8 * walks[:, day - 1] + 0.6 * rng.normal(size=2)
    up, aside = (np.interp(days, np.arange(len(walk)), walk) for walk in walks)
    angle = 2 * np.pi * at_s / 86_400
    noises = 20 * rng.normal(size=len(at_s))
    return np.asarray(1000 + (500 + 250 * up) * np.sin(angle) + 250 * aside * np.cos(angle) + noises)


def test_a_cycle_that_wandered_is_not_forgotten_within_days() -> None:
    """The likelihood alone finds a memory of two days here, and after four days it forecasts almost no daily cycle."""
    at_s = START_S + 2 * HOUR_S * np.arange(12 * 12)
    forecaster, rng = Forecaster(200), np.random.default_rng(0)
    for moment, value in zip(at_s, np.maximum(wandering_day(at_s, rng), 0.0), strict=True):
        forecaster.observe(float(moment), float(value))
    trained = train(forecaster.training_set())
    cycles = [part for part in trained.fitted.kernel.parts if isinstance(part, Periodic)]  # type: ignore[attr-defined]
    assert [cycle.memory >= 8 * cycle.period * (1 - 1e-9) for cycle in cycles] == [True]
    forecaster.adopt(trained)
    ahead = forecaster.forecast(at_s[-1] + 2 * HOUR_S * np.arange(12 * 4 + 1, 12 * 6 + 1))
    assert np.ptp(ahead.mean) > 150


def test_the_90_percent_interval_covers_about_90_percent() -> None:
    inside = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        at_s = START_S + HOUR_S * np.arange(24 * 9)
        values = daily(at_s) + 40 * rng.normal(size=len(at_s))
        forecaster = Forecaster(24 * 8)
        for moment, value in zip(at_s[:192], values[:192], strict=True):
            forecaster.observe(float(moment), float(value))
        forecaster.adopt(train(forecaster.training_set()))
        forecast = forecaster.forecast(at_s[192:])
        inside += (np.abs(values[192:] - forecast.mean) <= 1.645 * forecast.std).tolist()
    assert 0.82 <= np.mean(inside) <= 0.97


def test_latency_is_learnt_by_number_of_engines() -> None:
    forecaster = Forecaster(120)
    for step in range(120):
        engines = 1 + step % 4
        forecaster.observe(START_S + 60.0 * step, 2.0 / engines, engines)
    forecaster.adopt(train(forecaster.training_set()))
    forecast = forecaster.forecast([START_S + 60.0 * 121] * 4, [1, 2, 3, 4])
    assert forecast.mean == pytest.approx([2.0, 1.0, 2 / 3, 0.5], abs=0.1)


def scratch(forecaster: Forecaster, trained: Trained) -> Posterior:
    data = forecaster.training_set()
    return Posterior(
        trained.fitted.kernel, trained.fitted.noise, data.x, (2 * np.sqrt(data.y) - trained.offset) / trained.scale
    )


@pytest.mark.parametrize("meanwhile", [0, 3, 60])
def test_what_is_observed_while_training_runs_is_not_lost(meanwhile: int) -> None:
    forecaster = fed(50, window=40)
    trained = train(forecaster.training_set())
    for step in range(50, 50 + meanwhile):
        forecaster.observe(START_S + HOUR_S * step, 100.0 + step)
    forecaster.adopt(trained)
    forecaster.observe(START_S + HOUR_S * (50 + meanwhile), 70.0)
    expected = scratch(forecaster, trained)
    at = features(START_S + HOUR_S * np.arange(40, 130))
    assert forecaster.model is trained
    ours_now = forecaster.posterior
    assert ours_now is not None
    assert len(ours_now) == len(expected) == 40
    for ours, theirs in zip(ours_now.predict(at), expected.predict(at), strict=True):
        assert ours == pytest.approx(theirs, abs=1e-7)


def test_a_constant_is_forecast_as_itself() -> None:
    forecaster = Forecaster(20)
    for step in range(20):
        forecaster.observe(START_S + 60 * step, 42.0)
    forecaster.adopt(train(forecaster.training_set()))
    assert forecaster.forecast([START_S + 1500]).mean == pytest.approx([42.0])


def test_a_rate_is_never_forecast_negative() -> None:
    forecaster = Forecaster(30)
    for step in range(30):
        forecaster.observe(START_S + 60 * step, max(0.0, 100.0 - 5 * step))
    forecaster.adopt(train(forecaster.training_set()))
    assert (forecaster.forecast(START_S + 60.0 * np.arange(25, 60)).mean >= 0).all()


def test_what_cannot_be_done_is_refused() -> None:
    forecaster = fed(3, window=10)
    assert not forecaster.trainable
    with pytest.raises(ValueError, match="3 observations are too few"):
        train(forecaster.training_set())
    with pytest.raises(ValueError, match="before a model was adopted"):
        forecaster.forecast([0.0])
    with pytest.raises(ValueError, match="window of 2 observations"):
        Forecaster(2)
    with pytest.raises(ValueError, match="not finite"):
        forecaster.observe(0.0, float("nan"))


@pytest.mark.parametrize("lead", [1, 3, 50])
def test_what_would_have_been_forecast_lately_is_what_was_forecast_without_what_came_later(lead: int) -> None:
    forecaster = fed(60, window=60)
    trained = train(forecaster.training_set())
    forecaster.adopt(trained)
    seen, forecast, before = forecaster.lately(lead, 5)
    values = forecaster.training_set().y
    lead = min(lead, 20)
    assert seen == pytest.approx(values[-5:])
    assert before == pytest.approx(values[-5 - lead : 60 - lead])
    x, y = trained.posterior.x, trained.posterior.y
    for at, mean in zip(range(55, 60), forecast, strict=True):
        known = Posterior(trained.fitted.kernel, trained.fitted.noise, x[: at - lead + 1], y[: at - lead + 1])
        predicted, variance = known.predict(x[at : at + 1])
        expected, _ = trained.in_units(predicted, np.sqrt(variance + trained.fitted.noise**2))
        assert mean == pytest.approx(float(expected[0]))
