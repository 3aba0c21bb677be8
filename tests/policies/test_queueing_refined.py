from __future__ import annotations

import numpy as np
import pytest

from policies.queueing.degree import BufferGoal, optimal_degree
from policies.queueing.distributions import Deterministic, Distribution, Exponential, Normal, Pareto, Uniform
from policies.queueing.planner import PlannerSettings, QueueingPlanner
from policies.queueing.profile import OperatorProfile, ProfilePoint
from policies.queueing.refined import refined, simulate
from policies.queueing.stationary import mdc_within, mmc_within
from tests.policies.queue_simulation import system_sizes

GOAL = BufferGoal(limit_events=15, probability=0.95)

QUEUES = [
    (Uniform(0.1, 0.2), Exponential(0.3)),
    (Exponential(0.04), Uniform(0.1, 0.2)),
    (Pareto(0.05, 2.0), Exponential(0.3)),
    (Exponential(0.06667), Pareto(0.05, 2.0)),
    (Exponential(0.2), Normal(1.0, 0.1)),
]


@pytest.mark.parametrize(("instances", "rho"), [(2, 0.75), (6, 0.85)])
def test_simulations_agree_with_the_formulas(instances: int, rho: float) -> None:
    workload = Exponential(1.0 / (rho * instances))
    for service, formula in ((Exponential(1.0), mmc_within), (Deterministic(1.0), mdc_within)):
        found = simulate(workload, service, instances, BufferGoal(9, 0.9), np.random.default_rng(1))
        assert 0 < found.error < 0.05
        assert found.within == pytest.approx(formula(rho * instances, 1.0, instances, 9), abs=2.5 * found.error)


@pytest.mark.parametrize(("workload", "service"), QUEUES)
def test_a_refined_degree_is_the_least_that_holds_the_limit(workload: Distribution, service: Distribution) -> None:
    def held(instances: int) -> float:
        shares = []
        for seed in range(3):
            rng = np.random.default_rng(seed)
            between_s, busy_s = (d.quantile(rng.uniform(size=30_000)) for d in (workload, service))
            shares.append(np.mean(system_sizes(between_s, busy_s, instances, rng) <= GOAL.limit_events))
        return float(np.mean(shares))

    safe = optimal_degree(workload, service, GOAL, current=1, most=50)
    found = refined(safe, workload, service, GOAL, np.random.default_rng(2))
    assert found.instances <= safe.instances
    assert found.kept
    assert held(found.instances) >= GOAL.probability
    least = next(c for c in range(1, found.instances + 1) if held(c) >= GOAL.probability)
    assert found.instances == least


def test_a_safe_degree_stays_where_nothing_less_will_do() -> None:
    workload, service = Exponential(0.2), Exponential(1.0)
    safe = optimal_degree(workload, service, GOAL, current=1, most=50)
    assert refined(safe, workload, service, GOAL, np.random.default_rng(2)) == safe


def test_the_planner_refines_if_it_is_given_randomness() -> None:
    profile = OperatorProfile((ProfilePoint(10.0, Normal(1.0, 0.1)),))
    settings = PlannerSettings(goal=GOAL, profile=profile, most=50, ahead=1)
    between_s = np.random.default_rng(3).exponential(0.2, 800)
    safe, fewer = (
        QueueingPlanner(settings, rng=rng).decide(between_s, 8).degree for rng in (None, np.random.default_rng(4))
    )
    assert 1 / 0.2 < fewer.instances < safe.instances
    assert fewer.kept
