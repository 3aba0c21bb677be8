"""A plan of the planner: forecasts of two models, costs, and the cheapest path."""

from __future__ import annotations

import time

import networkx as nx
import numpy as np
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, WhiteKernel

from policies.arrays import Array
from policies.gaussian.features import DAY_S, features
from policies.gaussian.forecaster import Forecaster, train
from policies.money.billing import BillingTerms
from policies.planning.stategraph import CostSettings, Horizon, RentedVm, costs, shortest_path
from suite.row import Row
from suite.turns import OURS, Goal, Sample

HISTORY, STATES, WINDOWS, ROUNDS, PEER_ROUNDS = 500, 100, 60, 200, 3
WINDOW_S, EVENTS_PER_S = 600.0, 10.0
P99, MEDIAN = "ms, p99", "ms, median"


def _rate(at_s: Array | float) -> Array:
    return np.asarray(400 - 300 * np.cos(2 * np.pi * np.asarray(at_s) / DAY_S))


def _horizon(mean: Array, std: Array) -> Horizon:
    busy_s = np.full((WINDOWS, STATES), 1 / EVENTS_PER_S)
    return Horizon(
        window_s=WINDOW_S, input_rate=mean, input_std=std, busy_s=busy_s, busy_std_s=np.zeros((WINDOWS, STATES))
    )


def _settings() -> CostSettings:
    terms = BillingTerms(3600.0, 3600.0, 1.0, 0.0)
    return CostSettings(miss_usd=1e-4, rebalance_usd=0.1, terms=terms, boot_s=300.0)


def ours() -> Sample:
    """Measure a plan: two models take a value and forecast, then the cheapest path is found."""
    rng, now_s, models = np.random.default_rng(1), 1.7e9, []
    for _ in range(2):
        model = Forecaster(HISTORY, (DAY_S,))
        for at in range(HISTORY):
            model.observe(now_s + at * WINDOW_S, max(float(_rate(now_s + at * WINDOW_S)) + 30 * rng.normal(), 0.0))
        model.adopt(train(model.training_set()))
        models.append(model)
    now_s += HISTORY * WINDOW_S
    took_ms = []
    for _ in range(ROUNDS):
        now_s += WINDOW_S
        seen = max(float(_rate(now_s)) + 30 * rng.normal(), 0.0)
        begun_s = time.perf_counter()
        for model in models:
            model.observe(now_s, seen)
        _, ahead = (model.forecast(now_s + WINDOW_S * np.arange(1, WINDOWS + 1)) for model in models)
        shortest_path(costs(_horizon(ahead.mean, ahead.std), _settings(), [RentedVm(0.0, 600.0)]), 5)
        took_ms.append(1e3 * (time.perf_counter() - begun_s))
    return Sample({P99: float(np.percentile(took_ms, 99)), MEDIAN: float(np.median(took_ms))})


def by_libraries() -> Sample:
    """Measure scikit-learn, whose model is fitted to all values again with fixed parameters, and networkx."""
    rng, now_s = np.random.default_rng(1), 1.7e9
    at_s = now_s + WINDOW_S * np.arange(HISTORY + PEER_ROUNDS)
    values = np.maximum(_rate(at_s) + 30 * rng.normal(size=len(at_s)), 0.0)
    took_ms = []
    for last in range(HISTORY, HISTORY + PEER_ROUNDS):
        begun_s = time.perf_counter()
        for _ in range(2):
            model = GaussianProcessRegressor(RBF(0.5) + WhiteKernel(0.1), optimizer=None, normalize_y=True)
            model.fit(features(at_s[last - HISTORY : last]), values[last - HISTORY : last])
            mean, std = model.predict(features(at_s[last] + WINDOW_S * np.arange(1, WINDOWS + 1)), return_std=True)
        _dijkstra(np.asarray(mean), np.asarray(std))
        took_ms.append(1e3 * (time.perf_counter() - begun_s))
    return Sample({P99: max(took_ms), MEDIAN: float(np.median(took_ms))})


def _dijkstra(mean: Array, std: Array) -> None:
    """Find the cheapest path in a layered graph of as many states, by Dijkstra's algorithm."""
    graph = nx.DiGraph()
    least = np.maximum(mean + std, 0.0) / EVENTS_PER_S
    for window in range(WINDOWS):
        for state in range(STATES):
            missed = max(0.0, float(least[window]) - state)
            for after in range(max(0, state - 2), min(STATES, state + 3)):
                graph.add_edge((window, state), (window + 1, after), weight=after + 100 * missed + abs(after - state))
    nx.single_source_dijkstra_path_length(graph, (0, 5))


ROW = Row(
    name="plan",
    title="a plan: 500 values, 60 windows of 100 states, two models",
    sides={OURS: ours, "scikit-learn and networkx": by_libraries},
    goals=(
        Goal(P99, None, 10.0, at_least=False),
        Goal(P99, "scikit-learn and networkx", 1.0, at_least=False),
    ),
    note="The peer's graph has five edges from each state, the planner's all.",
)
