"""Forecasts on real traces beside the regressions that the paper compared with (Zacheilas et al., Table II).

To beat: the paper's Gaussian process had the best CC, MAE and RMSE of three at 1,400 training points of 2,000, and took
11.6 s to fit. Run as ``python bench/reproduce_planning.py FOLDER``, where FOLDER holds ``nyc_taxi.csv``,
``nasa_http_per_second.txt.gz`` and ``worldcup98_per_minute.csv.gz``; those that are missing are left out and named.
Prints a table in Markdown. Seeded; fit times are CPU time, so that other load matters less; set OMP_NUM_THREADS=1.

Ahead: all of the test part is forecast from the end of the training part, from the features alone, as in the paper.
Online: each value is forecast a few steps before it is there, from all that was seen until then, as planning does.
"""

from __future__ import annotations

import argparse
import gzip
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from policies.arrays import Array
from policies.gaussian.features import DAY_S, features
from policies.gaussian.forecaster import Forecaster, Trained, train
from policies.queueing.forecasts import naive, seasonal_naive

SEED = 7
POINTS = 2000
TRAINING_POINTS = 1400
STEPS_AHEAD = 3
Z_90 = 1.6449
PERIODS_S = (DAY_S, 7 * DAY_S)


@dataclass(frozen=True, slots=True)
class Trace:
    """Events a bin, shape (n,), with the start of each bin in seconds of local time."""

    name: str
    at_s: Array
    values: Array

    @property
    def bin_s(self) -> float:
        """Length of a bin."""
        return float(self.at_s[1] - self.at_s[0])


@dataclass(frozen=True, slots=True)
class Result:
    """How good some forecasts were."""

    trace: str
    protocol: str
    model: str
    forecast: Array
    truth: Array
    fit_s: float
    covered: float | None = None

    def row(self) -> str:
        """Return a line of the table."""
        errors = self.forecast - self.truth
        varies = self.forecast.std() > 0
        cc = f"{np.corrcoef(self.forecast, self.truth)[0, 1]:.3f}" if varies else "-"
        covered = "-" if self.covered is None else f"{self.covered:.0%}"
        mae, rmse = np.abs(errors).mean(), np.sqrt(np.square(errors).mean())
        cells = (self.trace, self.protocol, self.model, cc, f"{mae:.4g}", f"{rmse:.4g}", f"{self.fit_s:.1f}", covered)
        return f"| {' | '.join(cells)} |"


def seconds(text: str) -> float:
    """Read a time of a trace as if it were UTC: its clock is the local one that people live by."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def taxi(folder: Path) -> Trace:
    """New York taxi passengers, half hours."""
    lines = (folder / "nyc_taxi.csv").read_text().splitlines()[1:]
    rows = [line.split(",") for line in lines[:POINTS]]
    return Trace("NYC taxi", np.array([seconds(r[0]) for r in rows]), np.array([float(r[1]) for r in rows]))


def binned(name: str, start_s: float, values: Array, bin_s: float, per_bin: int) -> Trace:
    """Add up equally long samples to bins."""
    bins = min(len(values) // per_bin, POINTS)
    sums = values[: bins * per_bin].reshape(bins, per_bin).sum(axis=1)
    return Trace(name, start_s + bin_s * np.arange(bins), sums)


def nasa(folder: Path) -> Trace:
    """Requests to NASA's web server in July 1995, 20 minutes each; the months after it are shifted in time."""
    with gzip.open(folder / "nasa_http_per_second.txt.gz", "rt") as file:
        values = np.array(file.read().split()[:2_380_000], dtype=np.float64)
    return binned("NASA", seconds("1995-07-01T00:00:01"), values, 1200.0, 1200)


def world_cup(folder: Path) -> Trace:
    """Requests to the World Cup's site in 1998, hours."""
    with gzip.open(folder / "worldcup98_per_minute.csv.gz", "rt") as file:
        rows = [line.rstrip().split(",") for line in file.read().splitlines()[1:]]
    minutes = np.array([seconds(row[0]) for row in rows]) / 60
    values = np.zeros(int(minutes[-1] - minutes[0]) + 1)
    values[(minutes - minutes[0]).astype(int)] = [float(row[1]) for row in rows]
    return binned("WorldCup98", float(minutes[0]) * 60, values, 3600.0, 60)


def fed(trace: Trace, n: int) -> Forecaster:
    """Return a forecaster that has seen the first points."""
    forecaster = Forecaster(n, PERIODS_S)
    for at_s, value in zip(trace.at_s[:n], trace.values[:n], strict=True):
        forecaster.observe(float(at_s), float(value))
    return forecaster


def gaussian_process(trace: Trace, n: int) -> Iterator[Result]:
    """Ours, in both protocols."""
    forecaster, truth = fed(trace, n), trace.values[n:]
    began = time.process_time()
    trained: Trained = train(forecaster.training_set(), np.random.default_rng(SEED), restarts=0)
    fit_s = time.process_time() - began
    forecaster.adopt(trained)
    ahead = forecaster.forecast(trace.at_s[n:])
    inside = np.abs(truth - ahead.mean) <= Z_90 * ahead.std
    yield Result(trace.name, "ahead", "Gaussian process", ahead.mean, truth, fit_s, float(inside.mean()))
    means, stds = [], []
    for at in range(n, len(trace.values)):
        if at - STEPS_AHEAD >= n:
            forecaster.observe(float(trace.at_s[at - STEPS_AHEAD]), float(trace.values[at - STEPS_AHEAD]))
        forecast = forecaster.forecast(trace.at_s[at : at + 1])
        means.append(forecast.mean[0])
        stds.append(forecast.std[0])
    inside = np.abs(truth - means) <= Z_90 * np.array(stds)
    yield Result(trace.name, "online", "Gaussian process", np.array(means), truth, fit_s, float(inside.mean()))


def plain(trace: Trace, n: int) -> Iterator[Result]:
    """Naive forecasts, in both protocols."""
    truth = trace.values[n:]
    for name, season_s in (("seasonal naive, day", DAY_S), ("seasonal naive, week", 7 * DAY_S)):
        season = round(season_s / trace.bin_s)
        whole = seasonal_naive(trace.values[:n], len(truth), season)
        yield Result(trace.name, "ahead", name, whole, truth, 0.0)
        yield Result(trace.name, "online", name, trace.values[n - season : len(trace.values) - season], truth, 0.0)
    last = [naive(trace.values[: at - STEPS_AHEAD + 1], 1)[0] for at in range(n, len(trace.values))]
    yield Result(trace.name, "online", "naive", np.array(last), truth, 0.0)


def regressions(trace: Trace, n: int, *, peer: bool) -> Iterator[Result]:
    """Those of scikit-learn, if it is installed: from the same features, scaled."""
    try:
        from sklearn.gaussian_process import GaussianProcessRegressor
        from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
        from sklearn.model_selection import GridSearchCV
        from sklearn.neural_network import MLPRegressor
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler
        from sklearn.svm import SVR
    except ImportError:
        print("scikit-learn is not installed: no SVR, no MLP")
        return
    sizes = {"hidden_layer_sizes": [(16,), (64,), (32, 32)]}
    models: dict[str, Callable[[], object]] = {
        "SVR": lambda: GridSearchCV(SVR(), {"C": [1.0, 10.0, 100.0], "gamma": ["scale", 1.0, 5.0]}, cv=3),
        "MLP": lambda: GridSearchCV(MLPRegressor(max_iter=1000, random_state=SEED, early_stopping=True), sizes, cv=3),
    }
    if peer:
        kernel = ConstantKernel(1.0) * RBF([1.0, 1.0, 1.0]) + WhiteKernel(0.1)
        models["Gaussian process of scikit-learn"] = lambda: GaussianProcessRegressor(kernel, random_state=SEED)
    x, values = features(trace.at_s), trace.values
    offset, scale = values[:n].mean(), values[:n].std()
    for name, make in models.items():
        model = make_pipeline(StandardScaler(), make())
        began = time.process_time()
        model.fit(x[:n], (values[:n] - offset) / scale)
        fit_s = time.process_time() - began
        yield Result(trace.name, "ahead", name, model.predict(x[n:]) * scale + offset, values[n:], fit_s)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="where the traces are")
    parser.add_argument("--training-points", type=int, default=TRAINING_POINTS, help="how many points to train on")
    parser.add_argument("--peer", action="store_true", help="fit scikit-learn's Gaussian process, too; takes minutes")
    chosen = parser.parse_args()
    print("| trace | protocol | model | CC | MAE | RMSE | fit, CPU s | in 90 % interval |")
    print("| --- | --- | --- | ---: | ---: | ---: | ---: | ---: |")
    for load in (taxi, nasa, world_cup):
        try:
            trace = load(chosen.folder)
        except FileNotFoundError as error:
            print(f"{load.__name__} is left out: {error}")
            continue
        n = chosen.training_points
        for results in (gaussian_process(trace, n), plain(trace, n), regressions(trace, n, peer=chosen.peer)):
            for result in results:
                print(result.row(), flush=True)


if __name__ == "__main__":
    main()
