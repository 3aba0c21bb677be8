"""The value of a forecast: the cost if the next windows are known, exactly or with errors of a known size.

It also splits the difference between the planner's cost and the optimum: the same planner gets the true load.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from planning.document import table
from planning.elasticity import BLOCK, MOST_VMS, Course, Planned, Policy, Vm, World, best, live, world_of
from planning.traces import SEED, Trace
from policies.advice import Site
from policies.arrays import Array
from policies.gaussian.forecaster import Forecast
from policies.planning.learned import Learned, LearningOptions
from policies.planning.planner import Planner, PlannerOptions
from policies.planning.rules import RateRule
from policies.planning.stategraph import CostSettings, Horizon, RentedVm, costs, shortest_path

ERRORS = (0.0, 0.05, 0.1, 0.15, 0.2, 0.3)
COURSES = 3
"""How many runs are averaged, with errors of other seeds."""


class Informed(Policy):
    """Knows the load during the first block of a VM that is ordered now, and nothing about later windows.

    Args:
        world: its world.
        error: relative standard deviation of its knowledge: normal, without bias, new in each window.
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
        rented = [RentedVm(max(0, vm.ready - window) * step, (vm.paid_until - window) * step) for vm in fleet]
        path = shortest_path(costs(horizon, settings, rented), sum(vm.ready <= window for vm in fleet))
        soon = path.states[:2]
        return soon[-1], max(soon)


class Truth(Learned):
    """Knows the future load; after the end of the trace the last window repeats."""

    def __init__(self, options: LearningOptions, world: World) -> None:
        super().__init__(options)
        self._world = world

    @property
    def ready(self) -> bool:
        """See ``Learned``."""
        return True

    @property
    def trusted(self) -> bool:
        """See ``Learned``."""
        return True

    def observe(self, wall_s: float, rate: float, engines: int, event_s: float | None) -> None:
        """See ``Learned``; there is nothing to learn."""

    def input_ahead(self, wall_s: float, windows: int) -> Forecast:
        """See ``Learned``."""
        trace = self._world.trace
        window = round((wall_s - float(trace.at_s[0])) / self._world.window_s)
        at = np.minimum(window + np.arange(windows), len(trace.values) - 1)
        return Forecast(trace.values[at] / self._world.window_s, np.zeros(windows))

    def busy_ahead(self, wall_s: float, engines: Array, event_s: float) -> tuple[Array, Array]:  # noqa: ARG002
        """See ``Learned``."""
        return np.full(len(engines), event_s), np.zeros(len(engines))


class TruthfulPlanner(Planner):
    """The planner with true forecasts."""

    def __init__(self, options: PlannerOptions, site: Site, world: World) -> None:
        super().__init__(options, site, latency_s=world.window_s)
        learning = LearningOptions(window_s=self.window_s, history=options.history, cycles_s=(), lead=self._boot + 1)
        self._learned = Truth(learning, world)


class Told(Planned):
    """Decides by the planner that knows the load."""

    def _make(self, options: PlannerOptions, site: Site) -> Planner:
        return TruthfulPlanner(options, site, self._world)

    def _trained(self) -> bool:
        return True


def report(traces: Sequence[Trace]) -> str:
    """Return the cost of each size of error, compared with the planner and its errors, and a split of the costs."""
    errors, split = [], []
    for trace in traces:
        world = world_of(trace)
        planned = Planned(world)
        courses = {"planner": live(world, planned), "planner, told the load": live(world, Told(world))}
        courses["clairvoyant"] = best(world)
        least, usd = sum(courses["clairvoyant"].usd), sum(courses["planner"].usd)
        told = [_usd(world, error) / least for error in ERRORS]
        errors.append(
            (trace.name, f"{_error(world, planned):.0%}", f"{usd / least:.2f}", *(f"{each:.2f}" for each in told))
        )
        split += [(trace.name, name, *_split(world, course, least)) for name, course in courses.items()]
        for name, block in (("clairvoyant, no boot", BLOCK), ("clairvoyant, no boot, no blocks", 1)):
            split.append((trace.name, name, *_split(world, best(world, block, boot=0), least)))
    header = ("trace", "the planner's error", "planner", *(f"error {error:.0%}" for error in ERRORS))
    parts = ("VMs, USD", "misses, USD", "changes, USD", "/ clairvoyant", "windows that miss", "where the load doubled")
    return f"{table(header, errors)}\n\n{table(('trace', 'decided by', *parts), split, text_columns=2)}"


def _split(world: World, course: Course, least: float) -> tuple[str, ...]:
    """Return a course's cost by cause, and the part of its misses that no policy could forecast.

    Those are in windows whose load is more than twice that of the last window before the order of a VM that serves in
    them.
    """
    missed = np.array(course.missed)
    lost, changed, usd = float(missed.sum()) * world.miss_usd, course.changes * world.change_usd, sum(course.usd)
    values = world.trace.values
    doubled = values[world.first :] > 2 * values[world.first - 2 : -2]
    part = f"{missed[doubled].sum() / missed.sum():.0%}" if missed.any() else "-"
    cells = (f"{usd - lost - changed:,.0f}", f"{lost:,.0f}", f"{changed:,.0f}", f"{usd / least:.2f}")
    return (*cells, str(int((missed > 0).sum())), part)


def _usd(world: World, error: float) -> float:
    """Return the mean cost of some courses."""
    seeds = range(SEED, SEED + (COURSES if error else 1))
    return math.fsum(sum(live(world, Informed(world, error, seed)).usd) for seed in seeds) / len(seeds)


def _error(world: World, planned: Planned) -> float:
    """Return the relative root mean square error of the planner's forecasts at the orders of VMs."""
    windows = [window for window in planned.expected if world.first <= window < len(world.trace.values)]
    seen = world.trace.values[windows] / world.window_s
    forecast = np.array([planned.expected[window] for window in windows])
    return float(np.sqrt(np.mean((forecast - seen) ** 2)) / seen.mean())
