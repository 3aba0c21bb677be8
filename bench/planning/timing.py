"""How long planning takes over horizon sizes: Figure 17 (Zacheilas et al., IV).

CPU time of the planning thread, since others use the machine: the cost of planning, without waiting.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import numpy as np

from planning.document import table
from policies.gaussian.features import DAY_S
from policies.gaussian.forecaster import Forecast, Forecaster, train
from policies.money.billing import BillingTerms
from policies.planning.averaging import Averaged
from policies.planning.stategraph import CostSettings, Horizon, RentedVm, costs, shortest_path

HISTORY = 500
STATES = 100
WINDOWS = (5, 20, 60)
ROUNDS = 100
WINDOW_S = 600.0
LEAD = 2
ENGINE_EVENTS_PER_S = 10.0

T = TypeVar("T")


def report() -> str:
    """Return the table: each step's time, and the total."""
    forecaster, now_s = _forecaster()
    averaged = Averaged(HISTORY, [round(DAY_S / WINDOW_S)], LEAD)
    rng = np.random.default_rng(3)
    terms = BillingTerms(3600.0, 3600.0, 1.0, 0.0)
    settings = CostSettings(miss_usd=1e-4, rebalance_usd=0.1, terms=terms, boot_s=300.0)
    fleet = [RentedVm(0.0, 600.0 * each) for each in range(1, 6)]
    for _ in range(HISTORY):  # as many values as are remembered
        averaged.observe(max(_rate(now_s) + 30 * rng.normal(), 0.0), None)
    rows = []
    for windows in WINDOWS:
        steps = ("observe", "forecast", "average", "costs", "path", "all")
        times_ms: dict[str, list[float]] = {step: [] for step in steps}
        for _ in range(ROUNDS):
            now_s += WINDOW_S
            seen = _rate(now_s) + 30 * rng.normal()
            ahead_s = now_s + WINDOW_S * np.arange(1, windows + 1)
            began = time.thread_time()
            _timed(times_ms["observe"], lambda: forecaster.observe(now_s, max(seen, 0.0)))  # noqa: B023
            model = _timed(times_ms["forecast"], lambda: forecaster.forecast(ahead_s))  # noqa: B023
            forecast = _timed(times_ms["average"], lambda: _average(averaged, seen, model))  # noqa: B023
            horizon = Horizon(
                window_s=WINDOW_S,
                input_rate=forecast.mean,
                input_std=forecast.std,
                busy_s=np.full((windows, STATES), 1 / ENGINE_EVENTS_PER_S),
                busy_std_s=np.zeros((windows, STATES)),
            )
            found = _timed(times_ms["costs"], lambda: costs(horizon, settings, fleet))  # noqa: B023
            _timed(times_ms["path"], lambda: shortest_path(found, 5))  # noqa: B023
            times_ms["all"].append(1e3 * (time.thread_time() - began))
        p99s = (f"{np.percentile(each, 99):.2f}" for each in times_ms.values())
        rows.append((windows, f"{np.median(times_ms['all']):.2f}", *p99s))
    header = ("windows", "all, median", *(f"{step}, p99" for step in steps))
    told = f"CPU milliseconds; {HISTORY} observations, {STATES} states, {ROUNDS} rounds."
    return f"{told}\n\n{table(header, rows, text_columns=0)}"


def _average(averaged: Averaged, seen: float, model: Forecast) -> Forecast:
    averaged.observe(max(seen, 0.0), model)
    return averaged.forecast(model)


def _rate(at_s: float) -> float:
    return float(400 - 300 * np.cos(2 * np.pi * at_s / DAY_S))


def _forecaster() -> tuple[Forecaster, float]:
    forecaster, now_s = Forecaster(HISTORY, (DAY_S,)), 1.7e9
    rng = np.random.default_rng(1)
    for _ in range(HISTORY):
        now_s += WINDOW_S
        forecaster.observe(now_s, max(_rate(now_s) + 30 * rng.normal(), 0.0))
    forecaster.adopt(train(forecaster.training_set()))
    return forecaster, now_s


def _timed(times_ms: list[float], work: Callable[[], T]) -> T:
    began = time.thread_time()
    result = work()
    times_ms.append(1e3 * (time.thread_time() - began))
    return result
