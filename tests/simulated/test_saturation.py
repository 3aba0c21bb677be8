"""Near saturation both models of the simulator say what an oracle says: M/G/1 with batches (``bulkqueue``)."""

from __future__ import annotations

import numpy as np
import pytest

from engines.simulated.generators import RecordedRates
from gateway.core.decide.scheduler import SchedulerSettings
from gateway.simulate.options import Machines, QueryOptions, WorldOptions
from policies.money.billing import BillingTerms
from policies.money.ledger import Budget
from policies.switching.query import QuerySettings
from policies.switching.switching import SwitchingSettings
from tests.simulated.agreement import both
from tests.simulated.bulkqueue import mean_latency_s

SERVED_PER_S = 2000.0
LASTS_S = 60.0
GRID_S = 0.02
NEAR = 0.2


def at_home(rate: float, *, run_s: float, batch_runs: int, batch_s: float) -> WorldOptions:
    """A gateway without VMs, and one query with so many events per second."""
    settings = QuerySettings(
        name="q", switching=SwitchingSettings(2.4, 2.0, 1.0, 1_000_000, 1.0), latency_qos_s=2.0, share=None, policy=None
    )
    times_s = np.arange(0.0, LASTS_S, GRID_S)
    events = np.random.default_rng(1).poisson(rate * GRID_S, len(times_s)).astype(float)
    load = RecordedRates((times_s + GRID_S / 2).tolist(), events.tolist())
    query = QueryOptions(settings=settings, load=load, poisson=False, run_s=run_s, batch_runs=batch_runs)
    scheduler = SchedulerSettings(
        queries=(settings,),
        max_vms=0,
        billing=BillingTerms(60.0, 60.0, 0.36, 0.09),
        budget=Budget(),
        boot_s=15.0,
        slot_s=1.0,
    )
    machines = Machines(events_per_s=SERVED_PER_S, batch_s=batch_s)
    return WorldOptions(seed=1, scheduler=scheduler, queries=(query,), machines=machines, load_s=LASTS_S)


@pytest.mark.parametrize(
    ("rate", "run_s", "batch_runs", "batch_s"),
    [
        (200.0, 0.02, 50, 0.05),
        (1500.0, 0.02, 50, 0.05),
        (1000.0, 0.1, 8, 0.05),
        (1500.0, 0.1, 8, 0.05),
        (1700.0, 0.1, 8, 0.05),
        (200.0, 0.1, 8, 0.2),
        (600.0, 0.1, 8, 0.2),
        (1300.0, 0.1, 8, 0.2),
    ],
)
def test_both_models_say_what_the_oracle_says(rate: float, run_s: float, batch_runs: int, batch_s: float) -> None:
    oracle_s = mean_latency_s(rate, batch_s, 1.0 / SERVED_PER_S) + run_s / 2
    pair = both(at_home(rate, run_s=run_s, batch_runs=batch_runs, batch_s=batch_s))
    # Micro-batches take whole runs, so they vary more than the oracle's.
    assert 0.9 * oracle_s <= pair.runs_mean_s <= 1.3 * oracle_s, oracle_s
    assert pair.fluid.mean_s == pytest.approx(pair.runs_mean_s, rel=NEAR)


def test_one_run_at_a_time_costs_more_and_both_models_say_so() -> None:
    pair = both(at_home(1500.0, run_s=0.1, batch_runs=1, batch_s=0.05))
    assert pair.runs_mean_s > 1.5 * mean_latency_s(1500.0, 0.05, 1.0 / SERVED_PER_S)
    assert pair.fluid.mean_s == pytest.approx(pair.runs_mean_s, rel=NEAR)


def test_the_oracle_itself() -> None:
    """It is the queue played event by event."""
    rate, batch_s, event_s = 30.0, 0.05, 0.02
    random = np.random.default_rng(3)
    arrivals = np.cumsum(random.exponential(1.0 / rate, 200_000))
    total_s, first, free_s = 0.0, 0, 0.0
    while first < len(arrivals):
        begins_s = max(free_s, arrivals[first])
        after = int(np.searchsorted(arrivals, begins_s, side="right"))
        free_s = begins_s + batch_s + (after - first) * event_s
        total_s += float(np.sum(free_s - arrivals[first:after]))
        first = after
    assert total_s / len(arrivals) == pytest.approx(mean_latency_s(rate, batch_s, event_s), rel=0.02)
