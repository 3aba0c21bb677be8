"""The forecast of one quantity of a query, its input rate or its latency: updated point by point, refitted at times.

Observing and forecasting take O(n^2) and run where decisions are made. ``train`` takes O(n^3) a step and is a pure
function of a ``TrainingSet``: it runs elsewhere, and its result is adopted when it is ready. Values observed meanwhile
are then appended.

The process works on square roots (see ``warping``). Its own recent errors calibrate the standard deviations of its
forecasts (see ``calibration``).
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from policies.arrays import Array, finite
from policies.gaussian.calibration import ERRORS, width_factor
from policies.gaussian.features import DAY_OF_WEEK, DAY_S, ENGINES, TIME_OF_DAY, TIMESTAMP, features
from policies.gaussian.kernels import Ard, Kernel, Periodic, Sum, Trend
from policies.gaussian.likelihood import FittedKernel, fit
from policies.gaussian.posterior import Posterior
from policies.gaussian.warping import unwarped, warped

_LEAST_TO_TRAIN = 8
_SIGMA_BOUNDS = (1e-2, 10.0)
_NOISE_BOUNDS = (1e-2, 2.0)
_LENGTH_BOUNDS = {TIME_OF_DAY: (0.25, 200.0), DAY_OF_WEEK: (0.2, 200.0), ENGINES: (0.3, 1000.0)}
_LENGTH_STARTS = {TIME_OF_DAY: 3.0, DAY_OF_WEEK: 5.0, ENGINES: 3.0}
_SMOOTHNESS_BOUNDS = (0.02, 10.0)
_DETAIL_S = 3 * 3600.0
"""The start value for the time within which a cycle's shape changes, however long the cycle is."""

_PERIODS_TO_SEE = 1.5
"""A period is searched for once this many of it were seen."""

_MEMORY_LEAST = 8.0
"""A cycle's shape lasts for at least this many periods.

By likelihood alone one odd week would shorten that, and a forecast of the next week would fall back to the mean.
"""

_LEADS_PART = 3
"""Errors are checked for forecasts up to a third of the window ahead; beyond that there is too little history."""

_FIT_MOST = 400
"""A search takes O(n^3) a step, so it begins with at most this many points, evenly chosen."""

_POLISH_STEPS = 15
"""This many steps follow with all points, which show short-term changes better."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """The forecast of some moments, each normally distributed (equation 3).

    Attributes:
        mean: shape (m,), in the unit observed; never negative, since rates and latencies are not.
        std: shape (m,), of the future observations, with noise; calibrated by recent errors of such forecasts.
    """

    mean: Array
    std: Array


@dataclass(frozen=True, slots=True)
class TrainingSet:
    """The input of ``train``.

    Attributes:
        x: features, shape (n, n_features).
        y: values, shape (n,).
        periods_s: cycles to look for, besides time of day and day of week.
        observed: how many values had been observed in total.
    """

    x: Array
    y: Array
    periods_s: tuple[float, ...]
    observed: int

    def __post_init__(self) -> None:
        _lock(self.x, self.y)


@dataclass(frozen=True, slots=True)
class Trained:
    """A model ready to be adopted, as a plain value.

    Attributes:
        fitted: its hyperparameters, for warped values scaled by ``offset`` and ``scale``.
        x: features of the training set, shape (n, n_features).
        y: its values, warped and scaled, shape (n,).
        offset: mean of the warped training values.
        scale: their standard deviation.
        observed: the training set's ``observed``.
    """

    fitted: FittedKernel
    x: Array
    y: Array
    offset: float
    scale: float
    observed: int

    def __post_init__(self) -> None:
        _lock(self.x, self.y)

    @property
    def posterior(self) -> Posterior:
        """Return a new posterior given the training set; it changes with observations, this value does not."""
        return Posterior(self.fitted.kernel, self.fitted.noise, self.x, self.y)

    def in_units(self, mean: Array, std: Array) -> tuple[Array, Array]:
        """Convert mean and standard deviation from the model's units to the unit observed."""
        return unwarped(mean * self.scale + self.offset, std * self.scale)


def train(training: TrainingSet) -> Trained:
    """Find hyperparameters by maximum likelihood and condition on the training set (Figure 3, steps 1 and 2).

    Raises:
        ValueError: too few observations.
    """
    if len(training.y) < _LEAST_TO_TRAIN:
        raise ValueError(f"{len(training.y)} observations are too few to train with: {_LEAST_TO_TRAIN} are needed")
    y = warped(training.y)
    offset, scale = float(y.mean()), float(y.std()) or 1.0
    y = (y - offset) / scale
    kernel, bounds = _start(training)
    bounds = [*bounds, _NOISE_BOUNDS]
    some = np.unique(np.linspace(0, len(y) - 1, min(len(y), _FIT_MOST)).round().astype(int))
    fitted = fit(kernel, 0.3, training.x[some], y[some], bounds=bounds)
    if len(some) < len(y):
        found, noise = fitted.kernel, fitted.noise
        fitted = fit(found, noise, training.x, y, bounds=bounds, steps_most=_POLISH_STEPS)
    return Trained(fitted, training.x, y, offset, scale, training.observed)


def _lock(*arrays: Array) -> None:
    """Make arrays read-only that are passed on as values."""
    for array in arrays:
        array.flags.writeable = False


class _Adopted(NamedTuple):
    """An adopted model and its current posterior."""

    trained: Trained
    posterior: Posterior


class Forecaster:
    """A sliding window of observations, and the adopted model that explains them, if there is one.

    Args:
        window: at most this many observations are kept; the oldest are dropped.
        periods_s: cycles to look for, besides time of day and day of week.
    """

    def __init__(self, window: int, periods_s: tuple[float, ...] = (DAY_S,)) -> None:
        if window < _LEAST_TO_TRAIN:
            raise ValueError(f"a window of {window} observations is too short: {_LEAST_TO_TRAIN} are needed")
        self._window = window
        self._periods_s = periods_s
        self._points: deque[tuple[Array, float]] = deque(maxlen=window)
        self._observed = 0
        self._adopted: _Adopted | None = None
        self._factors: dict[int, float] = {}

    @property
    def model(self) -> Trained | None:
        """Return the adopted model; None before the first."""
        return None if self._adopted is None else self._adopted.trained

    @property
    def posterior(self) -> Posterior | None:
        """Return that model's posterior with all observations since; None before the first."""
        return None if self._adopted is None else self._adopted.posterior

    @property
    def trainable(self) -> bool:
        """Return whether enough was observed to train."""
        return len(self._points) >= _LEAST_TO_TRAIN

    def observe(self, at_s: float, value: float, engines: float | None = None) -> None:
        """Add a measurement; the model, if there is one, uses it at once (Figure 3, step 2)."""
        point = features([at_s], None if engines is None else [engines])[0]
        self._points.append((point, float(finite("value", value, 0))))
        self._observed += 1
        if self._adopted is not None:
            self._extend(self._adopted, point, value)

    def training_set(self) -> TrainingSet:
        """Return a training set that later observations do not change."""
        x = np.array([point for point, _ in self._points])
        y = np.array([value for _, value in self._points])
        return TrainingSet(x, y, self._periods_s, self._observed)

    def adopt(self, trained: Trained) -> None:
        """Adopt a newly trained model, and add the observations since its training set was taken."""
        adopted = _Adopted(trained, trained.posterior)
        missed = min(self._observed - trained.observed, len(self._points))
        for point, value in islice(self._points, len(self._points) - missed, None):
            self._extend(adopted, point, value)
        self._adopted = adopted
        self._factors.clear()

    def forecast(self, at_s: npt.ArrayLike, engines: npt.ArrayLike | None = None) -> Forecast:
        """Return a forecast (Figure 3, steps 3 and 4).

        Raises:
            ValueError: no model was adopted yet.
        """
        model = self._adopted
        if model is None:
            raise ValueError("nothing can be forecast before a model was adopted")
        x = features(at_s, engines)
        mean, variance = model.posterior.predict(x)
        mean, std = model.trained.in_units(mean, np.sqrt(variance + model.trained.fitted.noise**2))
        return Forecast(mean, std * self._widths(model, x[:, TIMESTAMP]))

    def lately(self, lead: int, last: int) -> tuple[Array, Array, Array]:
        """Return the last values, the model's forecast of each, and the value at the time of that forecast.

        Args:
            lead: this many observations before each, 1 or more; at most a third of those that are kept.
            last: how many; fewer if there are not enough observations before them.

        Raises:
            ValueError: no model was adopted yet.
        """
        model = self._adopted
        if model is None:
            raise ValueError("nothing can be forecast before a model was adopted")
        lead = min(lead, max(len(model.posterior) // _LEADS_PART, 1))
        errors, std = model.posterior.errors_ahead(lead, last)
        y, first = model.posterior.y, len(model.posterior) - len(errors)
        mean, _ = model.trained.in_units(y[first:] - errors, std)
        seen, _ = model.trained.in_units(y, np.zeros_like(y))
        return seen[first:], mean, seen[first - lead : len(y) - lead]

    def _widths(self, model: _Adopted, days: Array) -> Array:
        """Return the factors that widen the interval at some moments, learned at about the same distance ahead."""
        known = model.posterior.x[:, TIMESTAMP]
        step = max(float(known[-1] - known[0]) / len(known), 1e-9)
        most = max(len(known) // _LEADS_PART, 1)
        leads = np.clip((days - known[-1]) / step, 1.0, most)
        octaves = 2 ** np.arange(math.floor(math.log2(leads.max())) + 2)
        factors = [self._factor(model, min(int(lead), most)) for lead in octaves]
        widths: Array = np.interp(np.log2(leads), np.arange(len(octaves)), factors)
        return widths

    def _factor(self, model: _Adopted, lead: int) -> float:
        """Return the factor that recent forecasts this many observations ahead needed; computed once per value."""
        if lead not in self._factors:
            errors, std = model.posterior.errors_ahead(lead, ERRORS)
            truth = model.posterior.y[len(model.posterior) - len(errors) :]
            mean, spread = model.trained.in_units(truth - errors, std)
            seen, _ = model.trained.in_units(truth, np.zeros_like(truth))
            self._factors[lead] = width_factor((seen - mean) / spread)
        return self._factors[lead]

    def _extend(self, model: _Adopted, point: Array, value: float) -> None:
        scaled = (float(warped(np.array(value))) - model.trained.offset) / model.trained.scale
        if len(model.posterior) < self._window:
            model.posterior.append(point, scaled)
        else:
            model.posterior.replace_oldest(point, scaled)
        self._factors.clear()


def _start(training: TrainingSet) -> tuple[Kernel, list[tuple[float, float]]]:
    """Return the start kernel and the bounds of its hyperparameters, for values of unit variance.

    It is equation 8 plus cycles and a trend, since the product of equation 8 cannot separate them.
    """
    days = training.x[:, TIMESTAMP]
    span = max(float(np.ptp(days)), 1e-6)
    step = span / len(days)
    columns = range(1, training.x.shape[1])
    ard = Ard(1.0, (span / 10, *(_LENGTH_STARTS[column] for column in columns)))
    bounds = [_SIGMA_BOUNDS, (2 * step, 10 * span), *(_LENGTH_BOUNDS[column] for column in columns)]
    periods = [period for period_s in training.periods_s if span >= _PERIODS_TO_SEE * (period := period_s / DAY_S)]
    detail = 2 * np.pi * _DETAIL_S / DAY_S
    cycles = [Periodic(TIMESTAMP, period, 1.0, min(1.0, detail / period), 4 * span) for period in periods]
    for period in periods:
        bounds += [_SIGMA_BOUNDS, _SMOOTHNESS_BOUNDS, (_MEMORY_LEAST * period, 100 * span)]
    bounds += [_SIGMA_BOUNDS, (span / 10, 10 * span)]
    return Sum((ard, *cycles, Trend(TIMESTAMP, 0.5, span / 4))), bounds
