"""One forecast quantity of a query, its input rate or its latency: observed point by point, refitted now and then.

Observing and forecasting take O(n^2) and are done where decisions are made. ``train`` takes O(n^3) a step and is a
pure function of a ``TrainingSet``: it is run elsewhere, and its outcome adopted when it is there; what was observed
meanwhile is appended then.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import islice

import numpy as np
import numpy.typing as npt

from policies.arrays import Array, finite
from policies.gaussian.features import DAY_OF_WEEK, DAY_S, ENGINES, TIME_OF_DAY, TIMESTAMP, features
from policies.gaussian.kernels import Ard, Kernel, Periodic, Sum
from policies.gaussian.likelihood import Fitted, fit
from policies.gaussian.posterior import Posterior

_LEAST_TO_TRAIN = 8
_SIGMA_BOUNDS = (1e-2, 10.0)
_NOISE_BOUNDS = (1e-2, 2.0)
_LENGTH_BOUNDS = {TIME_OF_DAY: (0.25, 200.0), DAY_OF_WEEK: (0.2, 200.0), ENGINES: (0.3, 1000.0)}
_LENGTH_STARTS = {TIME_OF_DAY: 3.0, DAY_OF_WEEK: 5.0, ENGINES: 3.0}
_SMOOTHNESS_BOUNDS = (0.05, 10.0)
_PERIODS_TO_SEE = 1.5
"""A period is looked for once so many of it were seen."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """What is expected at some moments, each normally distributed (equation 3).

    Attributes:
        mean: shape (m,), in the unit observed; never negative, as rates and latencies are not.
        std: shape (m,), of what will be observed, noise included.
    """

    mean: Array
    std: Array


@dataclass(frozen=True, slots=True)
class TrainingSet:
    """All that ``train`` needs.

    Attributes:
        x: features, shape (n, n_features).
        y: values, shape (n,).
        periods_s: cycles to look for, besides time of day and day of week.
        observed: how many values had been observed in all.
    """

    x: Array
    y: Array
    periods_s: tuple[float, ...]
    observed: int


@dataclass(frozen=True, slots=True)
class Trained:
    """A model ready to be adopted.

    Attributes:
        fitted: its hyperparameters, for values scaled by ``offset`` and ``scale``.
        posterior: the model given the training set.
        offset: mean of the training values.
        scale: their standard deviation.
        observed: that of the training set.
    """

    fitted: Fitted
    posterior: Posterior
    offset: float
    scale: float
    observed: int


def train(training: TrainingSet, rng: np.random.Generator, *, restarts: int = 1) -> Trained:
    """Find hyperparameters by maximum likelihood and condition on the training set (Figure 3, steps 1 and 2).

    Raises:
        ValueError: too few observations.
    """
    if len(training.y) < _LEAST_TO_TRAIN:
        raise ValueError(f"{len(training.y)} observations are too few to train with: {_LEAST_TO_TRAIN} are needed")
    offset, scale = float(training.y.mean()), float(training.y.std()) or 1.0
    y = (training.y - offset) / scale
    kernel, bounds = _start(training)
    fitted = fit(kernel, 0.3, training.x, y, bounds=[*bounds, _NOISE_BOUNDS], rng=rng, restarts=restarts)
    posterior = Posterior(fitted.kernel, fitted.noise, training.x, y)
    return Trained(fitted, posterior, offset, scale, training.observed)


class Forecaster:
    """A sliding window of observations, and the model that explains them once one was adopted.

    Args:
        window: at most so many observations are kept; the oldest are forgotten.
        periods_s: cycles to look for, besides time of day and day of week.
    """

    def __init__(self, window: int, periods_s: tuple[float, ...] = (DAY_S,)) -> None:
        if window < _LEAST_TO_TRAIN:
            raise ValueError(f"a window of {window} observations is too short: {_LEAST_TO_TRAIN} are needed")
        self._window = window
        self._periods_s = periods_s
        self._points: deque[tuple[Array, float]] = deque(maxlen=window)
        self._observed = 0
        self._model: Trained | None = None

    @property
    def model(self) -> Trained | None:
        """Return the adopted model; None before the first."""
        return self._model

    @property
    def trainable(self) -> bool:
        """Return whether enough was observed to train."""
        return len(self._points) >= _LEAST_TO_TRAIN

    def observe(self, at_s: float, value: float, engines: float | None = None) -> None:
        """Take in what was measured; the model, if there is one, knows it at once (Figure 3, step 2)."""
        point = features([at_s], None if engines is None else [engines])[0]
        self._points.append((point, float(finite("value", value, 0))))
        self._observed += 1
        if self._model is not None:
            self._extend(self._model, point, value)

    def training_set(self) -> TrainingSet:
        """Return what there is to train with, detached from what comes later."""
        x = np.array([point for point, _ in self._points])
        y = np.array([value for _, value in self._points])
        return TrainingSet(x, y, self._periods_s, self._observed)

    def adopt(self, trained: Trained) -> None:
        """Take a newly trained model over and tell it what was observed since its training set was taken."""
        missed = min(self._observed - trained.observed, len(self._points))
        for point, value in islice(self._points, len(self._points) - missed, None):
            self._extend(trained, point, value)
        self._model = trained

    def forecast(self, at_s: npt.ArrayLike, engines: npt.ArrayLike | None = None) -> Forecast:
        """Return what is expected (Figure 3, steps 3 and 4).

        Raises:
            ValueError: no model was adopted yet.
        """
        if self._model is None:
            raise ValueError("nothing can be forecast before a model was adopted")
        mean, variance = self._model.posterior.predict(features(at_s, engines))
        std = np.sqrt(variance + self._model.fitted.noise**2)
        scale, offset = self._model.scale, self._model.offset
        return Forecast(np.maximum(mean * scale + offset, 0.0), std * scale)

    def _extend(self, model: Trained, point: Array, value: float) -> None:
        model.posterior.append(point, (value - model.offset) / model.scale)
        while len(model.posterior) > self._window:
            model.posterior.drop_oldest()


def _start(training: TrainingSet) -> tuple[Kernel, list[tuple[float, float]]]:
    """Return the kernel to start from and the bounds of its hyperparameters, for values of unit variance."""
    days = training.x[:, TIMESTAMP]
    span = max(float(np.ptp(days)), 1e-6)
    step = span / len(days)
    columns = range(1, training.x.shape[1])
    ard = Ard(1.0, (span / 10, *(_LENGTH_STARTS[column] for column in columns)))
    bounds = [_SIGMA_BOUNDS, (2 * step, 10 * span), *(_LENGTH_BOUNDS[column] for column in columns)]
    periods = [period for period_s in training.periods_s if span >= _PERIODS_TO_SEE * (period := period_s / DAY_S)]
    cycles = [Periodic(TIMESTAMP, period, 1.0, 1.0, 4 * span) for period in periods]
    for period in periods:
        bounds += [_SIGMA_BOUNDS, _SMOOTHNESS_BOUNDS, (period, 100 * span)]
    return Sum((ard, *cycles)), bounds
