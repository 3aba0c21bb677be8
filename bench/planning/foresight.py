"""What a forecast is worth: costs of whoever knows only the next windows, exactly or up to errors of a known size."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from planning.document import table
from planning.elasticity import BLOCK, MOST_VMS, Planned, Policy, Vm, World, best, live, world_of
from planning.traces import SEED, Trace
from policies.rules import RateRule
from policies.stategraph import CostSettings, Horizon, Rented, costs, shortest_path

ERRORS = (0.0, 0.05, 0.1, 0.15, 0.2, 0.3)
COURSES = 3
"""So many are averaged, with errors of other seeds."""


class Informed(Policy):
    """Is told what comes while the first block of a VM lasts that is asked for now, and nothing of what comes after.

    Args:
        world: what it works in.
        error: standard deviation of what it is told, in parts of it: normal, without bias, new in each window.
        seed: of the errors.
    """

    def __init__(self, world: World, error: float, seed: int) -> None:
        super().__init__(world, RateRule(1 + MOST_VMS))
        self._error = error
        self._rng = np.random.default_rng(seed)

    def wanted(self, window: int, fleet: Sequence[Vm]) -> tuple[int, int]:
        """See ``Policy``."""
        world, step = self._world, self._world.window_s
        truth = world.trace.values[window : window + BLOCK] / step
        told = np.maximum(truth * (1 + self._error * self._rng.normal(size=len(truth))), 0.0)
        shape = (len(told), 1 + MOST_VMS)
        horizon = Horizon(
            window_s=step,
            input_rate=told,
            input_std=self._error * told,
            busy_s=np.full(shape, world.event_s),
            busy_std_s=np.zeros(shape),
        )
        settings = CostSettings(miss_usd=world.miss_usd, rebalance_usd=world.change_usd, terms=world.terms, boot_s=step)
        rented = [Rented(max(0, vm.ready - window) * step, (vm.paid_until - window) * step) for vm in fleet]
        path = shortest_path(costs(horizon, settings, rented), sum(vm.ready <= window for vm in fleet))
        soon = path.states[:2]
        return soon[-1], max(soon)


def report(traces: Sequence[Trace]) -> str:
    """Return what each size of error costs, beside the planner and the errors that it had."""
    rows = []
    for trace in traces:
        world = world_of(trace)
        least = sum(best(world).usd)
        planned = Planned(world)
        usd = sum(live(world, planned).usd)
        told = [_usd(world, error) / least for error in ERRORS]
        rows.append(
            (trace.name, f"{_error(world, planned):.0%}", f"{usd / least:.2f}", *(f"{each:.2f}" for each in told))
        )
    header = ("trace", "the planner's error", "planner", *(f"error {error:.0%}" for error in ERRORS))
    return table(header, rows)


def _usd(world: World, error: float) -> float:
    """Return the mean cost of some courses."""
    seeds = range(SEED, SEED + (COURSES if error else 1))
    return math.fsum(sum(live(world, Informed(world, error, seed)).usd) for seed in seeds) / len(seeds)


def _error(world: World, planned: Planned) -> float:
    """Return the root mean square error of what the planner forecast when it asked for VMs, in parts of the mean."""
    windows = [window for window in planned.expected if world.first <= window < len(world.trace.values)]
    seen = world.trace.values[windows] / world.window_s
    forecast = np.array([planned.expected[window] for window in windows])
    return float(np.sqrt(np.mean((forecast - seen) ** 2)) / seen.mean())
