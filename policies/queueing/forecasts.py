"""Short forecasts of a series of equally long time slices: naive, seasonal naive, and Holt-Winters (section V-A).

A series has the shape (n,), oldest first; a forecast has the shape (ahead,), beginning with the next slice.
Holt-Winters is implemented here: its three equations are shorter than the load time of a library would justify.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize

from policies.arrays import Array, finite


def naive(series: npt.ArrayLike, ahead: int) -> Array:
    """Return the last value, repeated."""
    return np.full(_steps(ahead), _series(series, 1)[-1])


def seasonal_naive(series: npt.ArrayLike, ahead: int, season: int) -> Array:
    """Return the values of a season before.

    Args:
        series: at least one season long.
        ahead: how many slices to forecast.
        season: slices per season.
    """
    if season < 1:
        raise ValueError(f"a season of {season} slices makes no sense")
    return np.resize(_series(series, season)[-season:], _steps(ahead))


@dataclass(frozen=True, slots=True)
class Smoothing:
    """How fast Holt-Winters adapts; each value is in [0, 1].

    Attributes:
        level: alpha.
        trend: beta, of the change of the level.
        seasonal: gamma.
    """

    level: float
    trend: float
    seasonal: float

    def __post_init__(self) -> None:
        if not all(0 <= value <= 1 for value in (self.level, self.trend, self.seasonal)):
            raise ValueError(f"smoothing parameters lie in [0, 1]: {self}")


class HoltWinters:
    """Additive Holt-Winters: a level, a trend and a season, each smoothed exponentially.

    Level and trend start from the means of the first two seasons, the season from the first season's differences to its
    mean.

    Args:
        season: slices per season.
        smoothing: how fast it adapts; ``fit_smoothing`` finds it.
        series: at least two seasons long.

    Raises:
        ValueError: the series is too short.
    """

    def __init__(self, season: int, smoothing: Smoothing, series: npt.ArrayLike) -> None:
        if season < 2:
            raise ValueError(f"a season of {season} slices has no shape: use two or more")
        values = _series(series, 2 * season)
        self._smoothing = smoothing
        first, second = float(values[:season].mean()), float(values[season : 2 * season].mean())
        self._level, self._trend = first, (second - first) / season
        self._season: list[float] = (values[:season] - first).tolist()
        self.errors: list[float] = []
        for value in values.tolist():
            self.observe(value)

    def observe(self, value: float) -> None:
        """Add the next slice's value."""
        expected = self._level + self._trend + self._season[0]
        self.errors.append(value - expected)
        before, smooth = self._level, self._smoothing
        season = self._season.pop(0)
        self._level = smooth.level * (value - season) + (1 - smooth.level) * (before + self._trend)
        self._season.append(smooth.seasonal * (value - before - self._trend) + (1 - smooth.seasonal) * season)
        self._trend = smooth.trend * (self._level - before) + (1 - smooth.trend) * self._trend

    def forecast(self, ahead: int) -> Array:
        """Return the level, extended by the trend, plus the season."""
        steps = np.arange(1, _steps(ahead) + 1)
        return np.asarray(self._level + self._trend * steps + np.resize(self._season, ahead), dtype=np.float64)


def fit_smoothing(series: npt.ArrayLike, season: int) -> Smoothing:
    """Return the smoothing parameters with the least squared one-step errors (L-BFGS-B from three starts)."""
    values = _series(series, 2 * season)

    def squared_error(parameters: Array) -> float:
        model = HoltWinters(season, Smoothing(*np.clip(parameters, 0.0, 1.0).tolist()), values)
        return float(np.square(model.errors).sum())

    scale = max(squared_error(np.array([0.3, 0.05, 0.3])), 1e-300)
    starts = ([0.3, 0.05, 0.3], [0.8, 0.01, 0.1], [0.05, 0.01, 0.1])
    runs = [
        minimize(lambda x: squared_error(x) / scale, start, method="L-BFGS-B", bounds=[(0.0, 1.0)] * 3)
        for start in starts
    ]
    best = min(runs, key=lambda run: float(run.fun))
    return Smoothing(*np.clip(best.x, 0.0, 1.0).tolist())


def _series(series: npt.ArrayLike, least: int) -> Array:
    values = finite("series", series, 1)
    if len(values) < least:
        raise ValueError(f"{len(values)} slices are too few to forecast from: {least} are needed")
    return values


def _steps(ahead: int) -> int:
    if ahead < 1:
        raise ValueError(f"a forecast of {ahead} slices makes no sense")
    return ahead
