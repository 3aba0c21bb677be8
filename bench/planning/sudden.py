"""Loads that nobody can foresee: noise around the capacity of home, and bursts; policies without a forecast.

Worlds of runs in virtual time, with the production scheduler, exchange and policies, as in ``spillway simulate``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gateway.core.decide.scheduler import SchedulerSettings
from gateway.simulate.options import Machines, QueryOptions, WorldOptions
from gateway.simulate.runs.world import World
from planning.document import table
from policies.arrays import Array
from policies.lookahead.policy import LookaheadOptions
from policies.money.billing import BillingTerms
from policies.money.ledger import Budget
from policies.planning.plain import CpuOptions, StaticOptions
from policies.switching.query import QuerySettings
from policies.switching.switching import SwitchingSettings

if TYPE_CHECKING:
    from policies.choose import PolicyOptions

SEED = 2
LASTS_S = 7_200
HOME_PER_S, BATCH_S = 1_000.0, 0.05
BOOT_S, PERIOD_S, SLOT_S, TARGET_S, MOST_VMS = 15.0, 60.0, 0.5, 2.0, 3
POLICIES: tuple[tuple[str, PolicyOptions | None], ...] = (
    ("`reactive`", None),
    ("`lookahead`", LookaheadOptions()),
    ("`cpu`", CpuOptions(start_above=0.7, stop_below=0.5, window_s=7.5)),
    ("`static: 1`", StaticOptions(1)),
)


@dataclass(frozen=True)
class Seconds:
    """A load that is known second by second.

    Attributes:
        counts: events of each second, shape (seconds,).
    """

    counts: Array

    def events(self, from_s: float, to_s: float) -> float:
        """See ``Generator``."""
        until = np.concatenate([[0.0], np.cumsum(self.counts)])
        at_s = np.arange(len(until))
        return float(np.interp(to_s, at_s, until) - np.interp(from_s, at_s, until))


def around_capacity(at_s: Array) -> Array:
    """Return a random walk between 95 and 105 % of home's capacity."""
    steps, level = np.random.default_rng(SEED).normal(0.0, 0.004, len(at_s)), 1.0
    rates = np.empty(len(at_s))
    for second, step in enumerate(steps):
        level = min(1.05, max(0.95, level + step))
        rates[second] = HOME_PER_S * level
    return rates


def minutes(at_s: Array) -> Array:
    """Return half of home's capacity, and twice as much as it for a minute in each ten."""
    return np.where(at_s % 600 < 540, 500.0, 2_000.0)


def spikes(at_s: Array) -> Array:
    """Return less than half of home's capacity, and 2.5 times as much as it for half a minute in each quarter hour."""
    return np.where(at_s % 900 < 870, 400.0, 2_500.0)


LOADS: tuple[tuple[str, Callable[[Array], Array]], ...] = (
    ("95 % to 105 % of home's capacity, a random walk", around_capacity),
    ("500/s, for a minute in each ten 2,000/s", minutes),
    ("400/s, for half a minute in each quarter of an hour 2,500/s", spikes),
)


def report() -> str:
    """Play each load with each policy; return the table."""
    rows = []
    for title, rate in LOADS:
        counts = np.random.default_rng(SEED).poisson(rate(np.arange(LASTS_S, dtype=np.float64)))
        for name, policy in POLICIES:
            rows.append((title, name, *_played(Seconds(counts.astype(np.float64)), policy)))
            print(rows[-1], flush=True)
    return table(("load", "policy", "mean latency", "95th percentile", "launches", "cost"), rows)


def _played(load: Seconds, policy: PolicyOptions | None) -> tuple[str, str, int, str]:
    settings = QuerySettings(
        name="sudden",
        switching=SwitchingSettings(
            start_vm_above_s=1.2 * TARGET_S,
            send_above_s=TARGET_S,
            keep_vm_above_s=TARGET_S / 2,
            keep_vm_bytes=1_000_000,
            tolerance_s=1.0,
        ),
        latency_qos_s=TARGET_S,
        mode="auto",
        policy=policy,
    )
    query = QueryOptions(settings=settings, load=load, batch_s=BATCH_S, event_s=1 / HOME_PER_S)
    scheduler = SchedulerSettings(
        queries=(settings,),
        max_vms=MOST_VMS,
        billing=BillingTerms(PERIOD_S, PERIOD_S, 0.1, 0.09),
        budget=Budget(),
        boot_s=BOOT_S,
        slot_s=SLOT_S,
    )
    machines = Machines(link_bytes_per_s=5e6)
    outcome = World(
        WorldOptions(seed=SEED, scheduler=scheduler, queries=(query,), machines=machines, load_s=float(LASTS_S))
    ).run()
    (found,) = outcome.queries
    return f"{found.mean_s:.2f} s", f"{found.p95_s:.2f} s", outcome.vms, f"${outcome.usd:.3f}"
