"""Random worlds without faults, simulated with single runs and as a fluid, with exactly the same events."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from engines.simulated.boot import LogNormal
from engines.simulated.generators import RecordedRates
from gateway.simulate.comparing.contest import fluid_world
from gateway.simulate.fluid.outcomes import FluidOutcome
from gateway.simulate.fluid.world import FluidWorld
from gateway.simulate.options import Faults, QueryOptions, WorldOptions
from gateway.simulate.runs.outcomes import WorldOutcome
from gateway.simulate.runs.world import World
from policies.money.ledger import Budget
from policies.planning.plain import StaticOptions
from tests.worlds.drawing import drawn

_GRID_S = 0.02
_AMPLE_BYTES = 1 << 40


@dataclass(frozen=True, slots=True)
class Pair:
    """The outcome of one world in both models."""

    options: WorldOptions
    runs: WorldOutcome
    fluid: FluidOutcome

    @property
    def runs_mean_s(self) -> float:
        """Mean latency of all events in the world of runs."""
        events = sum(query.events for query in self.runs.queries)
        return sum(query.mean_s * query.events for query in self.runs.queries) / events


def calm(seed: int, load_s: float = 120.0, life: int = 0) -> WorldOptions:
    """A world as ``drawn`` draws it, in which nothing fails and each boot takes its expected time.

    Events are drawn beforehand, so that both models get the same ones at the same time; each ``life`` of a world gets
    other events. There is room for all bytes that are sent or held, and no query moves with its state: the fluid model
    simulates neither.
    """
    options = drawn(seed, load_s=load_s, moves=False)
    queries = tuple(
        replace(
            query,
            poisson=False,
            load=_counted(query, [seed, at, life], load_s),
            credit_bytes=_AMPLE_BYTES,
            held_bytes_max=_AMPLE_BYTES,
        )
        for at, query in enumerate(options.queries)
    )
    machines = replace(options.machines, boot=LogNormal(0.0))
    return replace(options, queries=queries, machines=machines, faults=Faults())


def always_rented(options: WorldOptions) -> WorldOptions:
    """Return a world in which all VMs are there from the beginning to the end: no budget, and nothing is shed."""
    policy = StaticOptions(options.scheduler.max_vms)
    queries = tuple(replace(query, settings=replace(query.settings, policy=policy)) for query in options.queries)
    settings = tuple(query.settings for query in queries)
    scheduler = replace(options.scheduler, queries=settings, budget=Budget(), sheds=False)
    return replace(options, queries=queries, scheduler=scheduler)


def _counted(query: QueryOptions, seed: list[int], load_s: float) -> RecordedRates:
    random = np.random.default_rng(seed)
    times_s = np.arange(0.0, load_s, _GRID_S)
    means = [query.load.events(float(at_s), float(at_s) + _GRID_S) for at_s in times_s]
    # In the middle of its step: no slot and no run ends just there.
    return RecordedRates((times_s + _GRID_S / 2).tolist(), random.poisson(means).astype(float).tolist())


def both(options: WorldOptions) -> Pair:
    """Simulate a world in both models."""
    return Pair(options, World(options).run(), FluidWorld(fluid_world(options)).run())
