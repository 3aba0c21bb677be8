"""The cheapest VMs for events that are all known in advance, or in words why they cannot be computed."""

from __future__ import annotations

import math

import numpy as np

from gateway.simulate.options import WorldOptions
from gateway.simulate.sizes import least_usd_per_hour
from policies.arrays import Array
from policies.planning.clairvoyant import Blocks, Optimum, TooManyStatesError, clairvoyant

_WINDOWS_PER_PERIOD = 4
_MISS_USD = 1.0
"""The cost of a late event: so high that an event is late only if that cannot be avoided."""


class NoOptimumError(ValueError):
    """The optimum cannot be computed; the message says why, as a clause."""


def window_slots(world: WorldOptions) -> int:
    """Return how many slots a window of the optimum has: a quarter of a billing period, at least one slot."""
    slot_s, period_s = world.scheduler.slot_s, world.scheduler.billing.period_s
    return max(1, round(period_s / _WINDOWS_PER_PERIOD / slot_s))


def blocks_of(world: WorldOptions, window_s: float) -> Blocks:
    """Return the price of a VM in windows, of the cheapest size that a launch may get.

    A VM that boots for longer than its first block pays for as many periods as it needs until it can serve.

    Raises:
        NoOptimumError: a billing period is shorter than half a window.
    """
    usual = world.scheduler.billing
    terms = usual.at_price(least_usd_per_hour(world.machines.sizes, world.faults.sold_out, usual))
    period, first = round(terms.period_s / window_s), round(terms.first_block_s / window_s)
    if period < 1:
        raise NoOptimumError(
            f"a billing period ({terms.period_s:g} s) is shorter than a slot ({world.scheduler.slot_s:g} s), and the "
            "optimum changes the number of VMs only between slots; set a shorter gateway.slot"
        )
    boot = math.ceil(world.scheduler.boot_s / window_s - 1e-9)
    periods = max(0, math.ceil((boot + 1 - first) / period))
    return Blocks(first=first + periods * period, period=period, boot=boot, window_usd=terms.time_usd(window_s))


def optimum(world: WorldOptions, events: Array) -> Optimum:
    """Return the cheapest VMs for the work of each window; a query that may not be split counts like any other.

    Args:
        world: its machines and prices.
        events: that arrive, shape (windows, queries).

    Raises:
        NoOptimumError: it cannot be computed.
    """
    machines = world.machines
    window_s = window_slots(world) * world.scheduler.slot_s
    costs_s = [query.costs_s(machines) for query in world.queries]
    runs = [
        np.clip(events[:, q] / window_s * query.run_s, 1.0, query.run_events) for q, query in enumerate(world.queries)
    ]
    work_s = sum(
        events[:, q] * (event_s + batch_s / run)
        for q, (run, (batch_s, event_s)) in enumerate(zip(runs, costs_s, strict=True))
    )
    host_s, most = machines.cores * window_s, world.scheduler.max_vms
    hosts = [1 + vms * machines.vm_speed for vms in range(most + 1)]
    late = np.array([np.maximum(0.0, work_s - count * host_s) for count in hosts]).T
    blocks = blocks_of(world, window_s)
    try:
        return clairvoyant(late / max(event_s for _, event_s in costs_s) * _MISS_USD, blocks)
    except TooManyStatesError as error:
        ahead_s = max(blocks.first - blocks.boot, blocks.period) * window_s
        raise NoOptimumError(
            f"there are too many ways in which up to {most} VMs can each be paid for up to {ahead_s:g} s ahead, in "
            f"{len(events):,} steps of {window_s:g} s; simulate a shorter time, or with a smaller cloud.max_vms"
        ) from error
