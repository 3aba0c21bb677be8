"""Worlds drawn at random to see whether a VM does harm: the same events with VMs, and with home only.

Links from 1 Mbit/s to 1 Gbit/s, round trips from 1 to 300 ms, VMs from a fifth of home's speed to twice it, boots from
5 s to 5 minutes; loads around what home can carry. Nothing fails. One seed decides everything in a world.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from engines.simulated.generators import RecordedRates
from gateway.core.decide.scheduler import SchedulerSettings
from gateway.simulate.comparing.contest import fluid_world
from gateway.simulate.fluid.options import FluidOptions
from gateway.simulate.fluid.outcomes import SiteOutcome
from gateway.simulate.fluid.world import FluidWorld
from gateway.simulate.options import Machines, QueryOptions, WorldOptions
from gateway.simulate.runs.outcomes import WorldOutcome
from gateway.simulate.runs.world import World
from policies.arrays import Array
from policies.money.billing import BillingTerms
from policies.money.ledger import Budget
from policies.switching.query import QuerySettings
from policies.switching.switching import SwitchingSettings

if TYPE_CHECKING:
    from policies.choose import PolicyOptions

LASTS_S = 900
MOST = 0.03
"""With VMs, the mean latency may be greater by this part."""
GRACE_S = 0.02
"""And by this much: what the link of the first VM carries is only known once some runs have crossed it."""

_QOS_S = 2.0
_GRID_S = 0.1
"""Events are drawn in steps of this time."""
_BITS = 8


@dataclass(frozen=True, slots=True)
class DrawnWorld:
    """A world, and its events.

    Attributes:
        options: all of it.
        counts: events of each step of 0.1 s, shape (steps, queries).
        kind: of its load.
    """

    options: WorldOptions
    counts: Array
    kind: str

    @property
    def words(self) -> str:
        """Return what was drawn."""
        machines, scheduler = self.options.machines, self.options.scheduler
        shares = ", ".join("auto" if q.share is None else f"{q.share:.0%}" for q in scheduler.queries)
        link = f"{_BITS * machines.link_bytes_per_s / 1e6:.3g} Mbit/s, RTT {2e3 * machines.link_delay_s:.0f} ms"
        vms = f"VM speed {machines.vm_speed:.2f}, boot {scheduler.boot_s:.0f} s, {scheduler.max_vms} VMs"
        return f"{self.kind}; {link}, {vms}, share {shares}"


@dataclass(frozen=True, slots=True)
class VmHarm:
    """Mean latencies of the same events.

    Attributes:
        seed: of the world.
        home_s: with home only.
        elastic_s: with VMs.
        vms: how many were launched.
        usd: what they cost.
        cloud: which part of the events they answered.
    """

    seed: int
    home_s: float
    elastic_s: float
    vms: int
    usd: float
    cloud: float

    @property
    def part(self) -> float:
        """Return by which part of home's the latency with VMs is greater."""
        return self.elastic_s / self.home_s - 1.0

    @property
    def excess_s(self) -> float:
        """Return by how much the latency with VMs is above the bound; negative below it."""
        return self.elastic_s - (1.0 + MOST) * self.home_s - GRACE_S

    @property
    def within(self) -> bool:
        """Return whether the VMs did no harm."""
        return self.excess_s <= 0


def harmless(seed: int, policy: PolicyOptions | None = None) -> DrawnWorld:
    """Return the world of a seed, in which all queries have this policy; None: equation 1."""
    draw = random.Random(f"harmless {seed}")  # no secret
    machines = Machines(
        events_per_s=draw.choice([500.0, 2000.0]),
        batch_s=draw.uniform(0.01, 0.08),
        vm_speed=_between(draw, 0.2, 2.0),
        link_delay_s=_between(draw, 0.001, 0.3) / 2,
        link_bytes_per_s=_between(draw, 1e6, 1e9) / _BITS,
    )
    count = draw.choice([1, 1, 2])
    boot_s, max_vms = _between(draw, 5.0, 300.0), draw.choice([1, 2, 3])
    period_s = draw.choice([60.0, 60.0, 300.0])
    kind = draw.choice(["constant", "spikes", "noisy"])
    queries, counts = [], []
    for at in range(count):
        query = _query(draw, f"q{at + 1}", policy)
        per_s = _carried_per_s(query, machines) / count
        rates = per_s * _levels(draw, kind, np.random.default_rng([seed, at]))
        events = np.random.default_rng([seed, at, 1]).poisson(rates * _GRID_S).astype(float)
        steps_s = (np.arange(len(events)) + 0.5) * _GRID_S
        queries.append(replace(query, load=RecordedRates(steps_s.tolist(), events.tolist())))
        counts.append(events)
    scheduler = SchedulerSettings(
        queries=tuple(query.settings for query in queries),
        max_vms=max_vms,
        billing=BillingTerms(period_s, period_s, 0.36, 0.09),
        budget=Budget(),
        boot_s=boot_s,
        slot_s=1.0,
    )
    options = WorldOptions(
        seed=seed, scheduler=scheduler, queries=tuple(queries), machines=machines, load_s=float(LASTS_S)
    )
    return DrawnWorld(options, np.array(counts).T, kind)


def as_fluids(worlds: Sequence[DrawnWorld]) -> list[VmHarm]:
    """Simulate worlds as fluids, all of them together."""
    with_vms, alone = (_fluid(worlds, home_only=home_only) for home_only in (False, True))
    return [
        VmHarm(world.options.seed, home.mean_s, elastic.mean_s, elastic.vms, elastic.usd, elastic.cloud_share)
        for world, home, elastic in zip(worlds, alone, with_vms, strict=True)
    ]


def as_runs(world: DrawnWorld) -> tuple[VmHarm, VmHarm]:
    """Simulate a world run by run; return its latencies until completion, and until delivery in order."""
    options = world.options
    with_vms = World(options).run()
    alone = World(replace(options, scheduler=replace(options.scheduler, max_vms=0))).run()
    cloud = sum(query.cloud_events for query in with_vms.queries) / sum(query.events for query in with_vms.queries)
    home_s, elastic_s = ([query.mean_s for query in one.queries] for one in (alone, with_vms))
    completed = VmHarm(
        options.seed, _mean(alone, home_s), _mean(with_vms, elastic_s), with_vms.vms, with_vms.usd, cloud
    )
    home_s, elastic_s = ([query.delivery_mean_s for query in one.queries] for one in (alone, with_vms))
    return completed, replace(completed, home_s=_mean(alone, home_s), elastic_s=_mean(with_vms, elastic_s))


def _mean(world: WorldOutcome, each_s: Sequence[float]) -> float:
    return float(np.average(each_s, weights=[query.events for query in world.queries]))


class _Counts:
    """A load that is known slot by slot, shape (slots, queries)."""

    def __init__(self, counts: Array) -> None:
        self._counts = counts

    def block(self, first_slot: int, slots: int) -> Array:
        """See ``LoadSource``."""
        return self._counts[first_slot : first_slot + slots]


def _fluid(worlds: Sequence[DrawnWorld], *, home_only: bool) -> list[SiteOutcome]:
    sites = [site for world in worlds for site in fluid_world(world.options).sites]
    if home_only:
        sites = [replace(site, scheduler=replace(site.scheduler, max_vms=0)) for site in sites]
    steps = np.hstack([world.counts for world in worlds])
    slots = steps.reshape(LASTS_S, -1, steps.shape[1]).sum(axis=1)
    seed = worlds[0].options.seed
    together = FluidWorld(FluidOptions(seed=seed, sites=tuple(sites), load=_Counts(slots), slots=LASTS_S))
    lasted_s = together.run().lasted_s
    return [together.outcome_of(site, lasted_s) for site in range(len(sites))]


def _query(draw: random.Random, name: str, policy: PolicyOptions | None) -> QueryOptions:
    settings = QuerySettings(
        name=name,
        switching=SwitchingSettings(1.2 * _QOS_S, _QOS_S, 0.5 * _QOS_S, 1_000_000, 1.0),
        latency_qos_s=_QOS_S,
        share=draw.choice([None, None, None, draw.uniform(0.1, 0.9)]),
        policy=policy,
    )
    run_s, further_run_s, batch_runs = draw.choice([(0.5, 0.0, 1), (0.1, 0.01, 8)])
    return QueryOptions(
        settings=settings,
        load=RecordedRates([], []),
        poisson=False,
        event_bytes=draw.choice([200, 1000, 4000]),
        sent_part=draw.choice([0.3, 1.0]),
        run_s=run_s,
        further_run_s=further_run_s,
        batch_runs=batch_runs,
    )


def _carried_per_s(query: QueryOptions, machines: Machines) -> float:
    """Return how many events of this query home carries if it has no other."""
    runs = query.batch_runs
    of_events = 1.0 - (machines.batch_s + (runs - 1) * query.further_run_s) / (runs * query.run_s)
    return of_events * machines.events_per_s


def _levels(draw: random.Random, kind: str, noise: np.random.Generator) -> Array:
    """Return a load as parts of what home carries, in steps of 0.1 s, shape (steps,)."""
    at_s = np.arange(round(LASTS_S / _GRID_S)) * _GRID_S
    if kind == "constant":
        return np.full(len(at_s), draw.uniform(0.6, 1.5))
    if kind == "spikes":
        every_s = draw.uniform(100, 450)
        for_s, low, high = every_s * draw.uniform(0.05, 0.5), draw.uniform(0.3, 0.9), draw.uniform(1.0, 2.0)
        return np.where((at_s + draw.uniform(0, every_s)) % every_s < for_s, high, low)
    walk = np.cumsum(noise.normal(0.0, draw.choice([0.01, 0.03, 0.1]), LASTS_S))
    seconds = np.clip(draw.uniform(0.7, 1.2) + walk, 0.6, 1.5)
    return np.repeat(seconds, len(at_s) // LASTS_S)


def _between(draw: random.Random, least: float, most: float) -> float:
    """Draw a number; its logarithm is equally likely everywhere."""
    return math.exp(draw.uniform(math.log(least), math.log(most)))
