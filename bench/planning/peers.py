"""The regressions of scikit-learn from the paper's comparison, and its Gaussian process."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.model_selection import GridSearchCV
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVR

from planning.traces import PERIODS_S, SEED, STEPS_AHEAD, WEEK_S, Trace
from policies.arrays import Array
from policies.gaussian.features import features


@dataclass(frozen=True, slots=True)
class Result:
    """The quality of some forecasts."""

    protocol: str
    model: str
    forecast: Array
    truth: Array
    fit_s: float
    covered: float | None = None

    @property
    def rmse(self) -> float:
        """Return the root of the mean squared error."""
        return float(np.sqrt(np.square(self.forecast - self.truth).mean()))


def lagged(trace: Trace) -> Array:
    """Return the features and the values known three steps before: the last three, a day ago, a week ago."""
    steps = [STEPS_AHEAD, STEPS_AHEAD + 1, STEPS_AHEAD + 2, *(round(p / trace.bin_s) for p in PERIODS_S)]
    values = [np.concatenate([np.full(step, trace.values[0]), trace.values[:-step]]) for step in steps]
    return np.column_stack([features(trace.at_s), *values])


def regressions(trace: Trace, n: int) -> Iterator[Result]:
    """Fit those of scikit-learn, with parameters chosen by cross-validation within the training part."""
    sizes = {"hidden_layer_sizes": [(16,), (64,), (32, 32)]}
    models: dict[str, Callable[[], object]] = {
        "SVR": lambda: GridSearchCV(SVR(), {"C": [1.0, 10.0, 100.0], "gamma": ["scale", 1.0, 5.0]}, cv=3),
        "MLP": lambda: GridSearchCV(MLPRegressor(max_iter=1000, random_state=SEED, early_stopping=True), sizes, cv=3),
    }
    values = trace.values
    offset, scale = values[:n].mean(), values[:n].std()
    season = round(WEEK_S / trace.bin_s)
    for protocol, x, first in (("ahead", features(trace.at_s), 0), ("online", lagged(trace), season)):
        for name, make in models.items():
            model = make_pipeline(StandardScaler(), make())
            began = time.process_time()
            model.fit(x[first:n], (values[first:n] - offset) / scale)
            fit_s = time.process_time() - began
            yield Result(protocol, name, model.predict(x[n:]) * scale + offset, values[n:], fit_s)


def sklearn_fit(x: Array, y: Array) -> None:
    """Fit a Gaussian process with the kernel of equation 8."""
    kernel = ConstantKernel(1.0) * RBF(start_lengths(x)) + WhiteKernel(0.09)
    GaussianProcessRegressor(kernel, random_state=SEED).fit(x, y)


def start_lengths(x: Array) -> list[float]:
    """Return where both searches begin."""
    return [float(np.ptp(x[:, 0])) / 10, 3.0, 5.0]
