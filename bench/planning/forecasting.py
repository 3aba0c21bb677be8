"""Forecasts compared with the paper's regressions (Zacheilas et al., Table II), and the duration of fits.

Ahead: all of the test part is forecast from the end of the training part, from the features alone, as in the paper.
Online: each value is forecast three steps ahead from all earlier values, as planning does; the regressions of
scikit-learn get the last known values, and those of a day and a week before.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from planning.document import table
from planning.peers import Result, regressions, sklearn_fit, start_lengths
from planning.traces import PERIODS_S, STEPS_AHEAD, TRAINING_POINTS, WEEK_S, Trace
from policies.arrays import Array
from policies.gaussian.calibration import Z_COVERED
from policies.gaussian.features import DAY_S, features
from policies.gaussian.forecaster import Forecaster, train
from policies.gaussian.kernels import Ard
from policies.gaussian.likelihood import fit
from policies.queueing.forecasts import seasonal_naive

FIT_SIZES = (500, 1000)
HEADER = ("trace", "protocol", "model", "CC", "MAE", "RMSE", "RMSE / best", "fit, CPU s", "in 90 % interval")


def report(traces: Sequence[Trace]) -> str:
    """Return the table of all traces."""
    rows: list[Sequence[object]] = []
    for trace in traces:
        n = min(TRAINING_POINTS, len(trace.values) * 7 // 10)
        results = [*gaussian_process(trace, n), *plain(trace, n), *regressions(trace, n)]
        for protocol in ("ahead", "online"):
            chosen = sorted((r for r in results if r.protocol == protocol), key=lambda result: result.rmse)
            rows += [_row(trace, result, chosen[0].rmse) for result in chosen]
        print(table(HEADER, rows, text_columns=3), flush=True)
    return table(HEADER, rows, text_columns=3)


def _row(trace: Trace, result: Result, best: float) -> tuple[str, ...]:
    cc = np.corrcoef(result.forecast, result.truth)[0, 1] if result.forecast.std() > 0 else float("nan")
    return (
        trace.name,
        result.protocol,
        result.model,
        f"{cc:.3f}",
        f"{np.abs(result.forecast - result.truth).mean():,.5g}",
        f"{result.rmse:,.5g}",
        f"{result.rmse / best:.2f}",
        f"{result.fit_s:.1f}" if result.fit_s else "-",
        "-" if result.covered is None else f"{result.covered:.1%}",
    )


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
    trained = train(forecaster.training_set())
    fit_s = time.process_time() - began
    forecaster.adopt(trained)
    ahead = forecaster.forecast(trace.at_s[n:])
    inside = np.abs(truth - ahead.mean) <= Z_COVERED * ahead.std
    yield Result("ahead", "Gaussian process", ahead.mean, truth, fit_s, float(inside.mean()))
    means, stds = [], []
    for at in range(n, len(trace.values)):
        if at - STEPS_AHEAD >= n:
            forecaster.observe(float(trace.at_s[at - STEPS_AHEAD]), float(trace.values[at - STEPS_AHEAD]))
        forecast = forecaster.forecast(trace.at_s[at : at + 1])
        means.append(forecast.mean[0])
        stds.append(forecast.std[0])
    inside = np.abs(truth - means) <= Z_COVERED * np.array(stds)
    yield Result("online", "Gaussian process", np.array(means), truth, fit_s, float(inside.mean()))


def plain(trace: Trace, n: int) -> Iterator[Result]:
    """Naive forecasts, in both protocols."""
    truth = trace.values[n:]
    for name, season_s in (("seasonal naive, day", DAY_S), ("seasonal naive, week", WEEK_S)):
        season = round(season_s / trace.bin_s)
        yield Result("ahead", name, seasonal_naive(trace.values[:n], len(truth), season), truth, 0.0)
        yield Result("online", name, trace.values[n - season : len(trace.values) - season], truth, 0.0)
    yield Result("online", "naive", trace.values[n - STEPS_AHEAD : -STEPS_AHEAD], truth, 0.0)


def fit_times(traces: Sequence[Trace]) -> str:
    """Return how long fits of equally many points take, compared on the last trace."""
    rows, trace = [], traces[-1]
    for size in FIT_SIZES:
        forecaster, x = fed(trace, size), features(trace.at_s[:size])
        y = (trace.values[:size] - trace.values[:size].mean()) / trace.values[:size].std()
        theirs_s = _cpu_s(lambda x=x, y=y: sklearn_fit(x, y))
        same_s = _cpu_s(lambda x=x, y=y: _equation_8(x, y))
        whole_s = _cpu_s(lambda f=forecaster: train(f.training_set()))
        cells = (f"{theirs_s:.1f}", f"{same_s:.1f}", f"{same_s / theirs_s:.2f}")
        rows.append((size, *cells, f"{whole_s:.1f}", f"{whole_s / theirs_s:.2f}"))
    header = ("points", "scikit-learn, eq. 8, CPU s", "ours, eq. 8, CPU s", "ratio", "ours as used, CPU s", "ratio")
    return table(header, rows)


def _equation_8(x: Array, y: Array) -> None:
    bounds = [(1e-2, 300.0), *[(1e-5, 1e5)] * x.shape[1], (3e-3, 300.0)]
    fit(Ard(1.0, tuple(start_lengths(x))), 0.3, x, y, bounds=bounds)


def _cpu_s(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began
