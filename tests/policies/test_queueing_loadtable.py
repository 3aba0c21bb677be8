"""Tables of loads: they agree with formulas, and with a simulation of single micro-batches that shares no code."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from policies.queueing.degree import BufferGoal
from policies.queueing.distributions import Deterministic, Distribution, Empirical, Exponential
from policies.queueing.loadtable import QueueShape, load_table
from policies.queueing.stationary import mdc_within, mmc_within

GOAL = BufferGoal(15, 0.95)
PLAIN = QueueShape(Exponential(1.0), Exponential(1.0), 1, GOAL, 1.0, 4)


@pytest.mark.parametrize(("service", "formula"), [(Exponential(2.0), mmc_within), (Deterministic(2.0), mdc_within)])
def test_single_events_have_the_loads_of_the_formulas(service: Distribution, formula: object) -> None:
    assert callable(formula)
    table = load_table(replace(PLAIN, service=service))
    for engines in range(1, 5):
        exact = max(load for load in np.arange(0.05, engines, 0.01) if formula(load, 1.0, engines, 15) >= 0.95)
        assert 0.94 * exact <= table.load(engines) <= 1.01 * exact, "it is a little on the safe side"


def test_a_queue_looks_the_same_whatever_the_unit_of_time() -> None:
    slow = replace(PLAIN, workload=Exponential(50.0), service=Exponential(0.2))
    assert load_table(slow).utilisations == pytest.approx(load_table(PLAIN).utilisations)


def test_micro_batches_leave_less_room() -> None:
    goal = BufferGoal(60, 0.95)
    loads = [load_table(replace(PLAIN, group=group, goal=goal)).load(3) for group in (1, 5, 12, 30)]
    assert loads == sorted(loads, reverse=True)
    assert loads[0] > 2 * loads[-1], "three engines with 30 events each are above the limit themselves"


def test_events_that_come_together_need_more_engines() -> None:
    together = Empirical(tuple([0.0] * 200 + [5.0] * 50))
    assert load_table(replace(PLAIN, workload=together)).load(2) < 0.8 * load_table(PLAIN).load(2)


def test_home_counts_with_its_own_speed() -> None:
    fast = load_table(replace(PLAIN, home=3.0))
    assert fast.load(1) == pytest.approx(3 * load_table(PLAIN).load(1))
    assert load_table(PLAIN).load(2) < fast.load(2) < 4.0


@pytest.mark.parametrize("engines", [1, 3])
def test_a_simulation_of_each_event_agrees(engines: int) -> None:
    group, goal = 6, BufferGoal(40, 0.95)
    service = Exponential(1.0)
    load = load_table(QueueShape(Exponential(1.0), service, group, goal, 1.0, 4)).load(engines)
    held = [_held(seed, group, engines, factor * load, goal.limit_events) for factor in (0.97, 1.1) for seed in (1, 2)]
    assert np.mean(held[:2]) >= 0.945, "the limit is kept at the load of the table"
    assert np.mean(held[2:]) < 0.95, "and not much beyond it"


def _held(seed: int, group: int, engines: int, load: float, limit: int) -> float:
    """Play each event and each micro-batch; return the part of the time in which the limit is kept."""
    rng = np.random.default_rng(seed)
    came = np.cumsum(rng.exponential(1.0 / load, 60_000))
    free, left = [0.0] * engines, []
    for closed in came[group - 1 :: group].tolist():
        engine = free.index(min(free))
        free[engine] = max(closed, free[engine]) + group * rng.exponential()
        left += [free[engine]] * group
    done = np.sort(left)
    moments = rng.uniform(came[2000], came[-1], 20_000)
    return float(np.mean(np.searchsorted(came, moments) - np.searchsorted(done, moments) <= limit))


def test_a_goal_that_no_load_keeps_has_none() -> None:
    assert load_table(replace(PLAIN, group=40)).load(1) == 0.0


def test_many_engines_are_interpolated() -> None:
    table = load_table(replace(PLAIN, most=30))
    assert len(table.engines) <= 7
    assert table.engines[-1] == 30
    exact = max(load for load in np.arange(5, 17, 0.05) if mmc_within(load, 1.0, 17, 15) >= 0.95)
    assert table.load(17) == pytest.approx(exact, rel=0.15)
