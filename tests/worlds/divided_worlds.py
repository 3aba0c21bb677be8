"""Short worlds of one query in parts, whose load is more than home can carry, so that parts move often."""

from __future__ import annotations

import random
from dataclasses import replace

from engines.simulated.generators import Bursts, ConstantRate
from gateway.simulate.options import WorldOptions
from gateway.simulate.runs.outcomes import WorldOutcome
from gateway.simulate.runs.promises import BrokenPromiseError
from gateway.simulate.runs.world import World
from policies.money.ledger import Budget
from tests.worlds.drawing import divided, drawn

LOAD_S = 30.0


def divided_world(seed: int) -> WorldOptions:
    """Return one such world; the faults are those of ``make worlds``."""
    draw = random.Random(f"divided {seed}")  # no secret
    world = drawn(seed, load_s=LOAD_S, moves=False)
    query = divided(world.queries[0], seed, world.machines, world.scheduler.billing.first_block_s)
    load = Bursts(
        ConstantRate(world.machines.events_per_s * draw.uniform(0.1, 0.5)), every_s=15.0, for_s=5.0, times=4.0
    )
    settings = replace(query.settings, share=draw.choice([0.3, 0.6, 0.9, None]), policy=None)
    query = replace(
        query,
        settings=settings,
        load=load,
        run_s=0.7,
        run_events=1000,
        keys=replace(query.keys, hot=draw.choice([0.0, 0.0, 0.5])),
        part_stay_s=draw.choice([0.5, 3.0]),
        state_bytes=draw.choice([10_000, 1_000_000]),
        killed_at_step=draw.choice([0.0, 0.02, 0.1]),
        killed_at_look=draw.choice([0.0, 0.005]),
    )
    scheduler = replace(
        world.scheduler,
        queries=(settings,),
        max_vms=draw.choice([1, 2, 3]),
        budget=Budget(),
        boot_s=1.0,
        slot_s=1.0,
        sheds=False,
    )
    faults = replace(world.faults, stuck_boot=0.0, failed_launch=0.2 * world.faults.failed_launch)
    return replace(world, queries=(query,), scheduler=scheduler, faults=faults)


def live_divided(seed: int, *, keep_trace: bool = False, thorough: bool = False) -> tuple[World, WorldOutcome | str]:
    """Simulate such a world; return it with its outcome, or with its error."""
    world = World(divided_world(seed), keep_trace=keep_trace, thorough=thorough)
    try:
        return world, world.run()
    except (BrokenPromiseError, AssertionError, IndexError, KeyError, ValueError) as error:
        return world, f"{type(error).__name__}: {error}"
