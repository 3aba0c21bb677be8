from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.queueing.degree import BufferGoal
from policies.queueing.distributions import Deterministic, Distribution, Exponential, Normal, Pareto, Uniform
from policies.queueing.forecasts import seasonal_naive
from policies.queueing.planner import PlannerSettings, QueueingPlanner, scaled
from policies.queueing.profile import OperatorProfile, ProfilePoint
from tests.policies.queue_simulation import system_sizes

GOAL = BufferGoal(limit_events=15, probability=0.95)
PROFILE = OperatorProfile(tuple(ProfilePoint(rate, Deterministic(0.2 + 0.15 * rate)) for rate in (1.0, 2, 3, 4, 5, 6)))
"""Like the paper's: the processing time grows with the load."""


def settings(**changes: object) -> PlannerSettings:
    return PlannerSettings(**{"goal": GOAL, "profile": PROFILE, "most": 20, "ahead": 1, **changes})  # type: ignore[arg-type]


def slice_of(rate: float, n: int = 400, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).exponential(1 / rate, n)


def test_a_rush_hour_is_followed_and_its_limit_kept_in_a_simulation() -> None:
    planner, degree, seed = QueueingPlanner(settings()), 1, 0
    within = []
    for rate in (0.5, 1.5, 3.0, 4.5, 4.5, 3.0, 1.5, 0.5):
        plan = planner.decide(slice_of(rate, 1600, seed), degree)
        degree, seed = plan.degree.instances, seed + 1
        assert plan.degree.kept
        assert plan.profiled
        rng = np.random.default_rng(100 + seed)
        busy_s = np.full(20_000, PROFILE.service(rate)[0].mean_s)
        within.append(np.mean(system_sizes(rng.exponential(1 / rate, 20_000), busy_s, degree, rng) <= 15))
    assert min(within) >= GOAL.probability
    assert degree == 1


def test_the_sentence_tells_what_was_thought() -> None:
    plan = QueueingPlanner(settings()).decide(slice_of(3.0, 1600), 1)
    assert plan.accepted
    assert isinstance(plan.workload, Exponential)
    assert plan.why.startswith("exponential times between events, ")
    assert f"as M/D/c, {plan.degree.instances} instances hold at most 15 events" in plan.why


def test_a_forecast_ahead_asks_before_the_load_is_there() -> None:
    planner = QueueingPlanner(settings(ahead=2), lambda past, ahead: seasonal_naive(past, ahead, min(len(past), 6)))
    rates = [1.0, 1.0, 1.0, 5.0, 5.0, 1.0] * 2
    degrees = [planner.decide(slice_of(rate), 1).degree.instances for rate in rates]
    # In the second season the rise at slot 9 is asked for at slot 7, and its end at slot 11 at slot 9.
    assert degrees[7] == degrees[8] > degrees[6]
    assert degrees[9] < degrees[8]


def test_too_much_load_is_said() -> None:
    plan = QueueingPlanner(settings(most=3)).decide(slice_of(50.0), 1)
    assert (plan.degree.instances, plan.degree.kept, plan.profiled) == (3, False, False)
    assert plan.why.endswith("which is not enough: 3 is the most")


def test_a_forecast_that_cannot_be_is_not_believed() -> None:
    plan = QueueingPlanner(settings(), lambda _, ahead: np.full(ahead, -1.0)).decide(slice_of(2.0), 1)
    assert plan.workload.mean_s == pytest.approx(slice_of(2.0).mean())


@given(
    st.sampled_from([Exponential(2.0), Deterministic(2.0), Normal(2.0, 0.2), Uniform(1.0, 3.0), Pareto(1.0, 2.0)]),
    st.floats(0.01, 100),
)
def test_scaled_times_are_so_many_times_longer(distribution: Distribution, factor: float) -> None:
    probabilities = np.linspace(0.01, 0.99, 50)
    longer = scaled(distribution, factor).quantile(probabilities)
    assert longer == pytest.approx(distribution.quantile(probabilities) * factor)


def test_nonsense_is_refused() -> None:
    with pytest.raises(ValueError, match="a slice ahead"):
        settings(ahead=0)
    with pytest.raises(ValueError, match="too few"):
        QueueingPlanner(settings()).decide(slice_of(1.0, 10), 1)
