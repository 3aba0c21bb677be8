"""Buffer limits on the traffic scenario, and approximated distributions (Mayer et al., section VI, Figure 8a to 8e).

Vehicles leave a no-passing zone of 15 km as a Poisson process; an event is compared with all that entered it since its
vehicle did. So its processing time grows with the rate: 0.25 s for each vehicle a second at the 99th percentile, which
gives the 1.25 s of section I at 5 vehicles a second. Single times vary normally by a tenth. An instance is live 60 s
after it was ordered.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from planning.document import table
from planning.operator import Controller, Crew, Load, Played, play
from policies.arrays import Array
from policies.planning.rules import CpuThreshold, Observation
from policies.queueing.adaptation import Adaptation
from policies.queueing.degree import BufferGoal, optimal_degree
from policies.queueing.distributions import Deterministic, Distribution, Exponential, Normal, Pareto, Uniform
from policies.queueing.planner import PlannerSettings, QueueingPlanner
from policies.queueing.profile import OperatorProfile, ProfilePoint
from policies.queueing.refined import refined

GOAL = BufferGoal(limit_events=15, probability=0.95)
HORIZON_S = 60.0
HOUR_S = 3600.0
MOST = 40
WAY_S = 900.0
BUSY_PART = 0.1
P_99 = 2.3263
SEED = 11
STEADY_S = 8 * HOUR_S
RUSH_S = 6 * HOUR_S
ENOUGH_EVENTS = 20_000


def mean_busy_s(rate: float | Array) -> float | Array:
    """Return the mean processing time at a rate."""
    return 0.25 * rate / (1 + P_99 * BUSY_PART)


def rush_rate(at_s: Array) -> Array:
    """Return vehicles a second: from 0.5 to 5 within two hours, two hours of that, and back."""
    hours = at_s / HOUR_S
    rate: Array = np.interp(hours, [0.0, 2.0, 4.0, 6.0], [0.5, 5.0, 5.0, 0.5])
    return rate


def steady_rate(at_s: Array) -> Array:
    """Return 5 a second: 200 ms between vehicles."""
    return np.full_like(at_s, 5.0)


def vehicles(rate: object, until_s: float, seed: int) -> Load:
    """Draw a run: a Poisson process whose rate changes, by thinning."""
    rng = np.random.default_rng(seed)
    many = np.cumsum(rng.exponential(0.2, int(until_s * 5.5)))
    many = many[many < until_s]
    rates = rate(many)  # type: ignore[operator]
    arrivals = many[rng.uniform(size=len(many)) * 5.0 < rates]
    fast = rng.uniform(size=len(arrivals)) < 0.1
    way_s = WAY_S / np.where(fast, rng.uniform(1.0, 1.2, len(arrivals)), 1.0)
    opened = arrivals - way_s
    while_open = rate(np.maximum(arrivals - way_s / 2, 0.0))  # type: ignore[operator]
    noise = np.maximum(1 + BUSY_PART * rng.normal(size=len(arrivals)), 0.1)
    return Load(arrivals, np.asarray(mean_busy_s(while_open)) * noise, opened)


def profile(*, as_the_paper: bool) -> OperatorProfile:
    """Return an operator's profile: normal times or, as in the paper, always the 99th percentile."""

    def service(rate: float) -> Distribution:
        mean_s = float(mean_busy_s(rate))
        return Deterministic(0.25 * rate) if as_the_paper else Normal(mean_s, BUSY_PART * mean_s)

    return OperatorProfile(tuple(ProfilePoint(rate, service(rate)) for rate in np.arange(0.25, 7.01, 0.25).tolist()))


@dataclass(slots=True)
class ByQueueing:
    """The queueing planner, with slices of so many events, and cancellations as in section V-D."""

    planner: QueueingPlanner
    slice_events: int
    adaptation: Adaptation
    between_s: list[float] = field(default_factory=list)
    cancelled: list[int] = field(default_factory=list)

    def arrived(self, between_s: float, at_s: float, crew: Crew) -> None:
        """See ``Controller``."""
        self.between_s.append(between_s)
        if len(self.between_s) < self.slice_events:
            return
        plan = self.planner.decide(np.array(self.between_s), self.adaptation.wanted)
        self.between_s.clear()
        self._carry_out(plan.degree.instances, at_s, crew)

    def tick(self, at_s: float, crew: Crew) -> None:
        """See ``Controller``: cancellations come due between slices, too."""
        self._carry_out(self.adaptation.wanted, at_s, crew)

    def _carry_out(self, degree: int, at_s: float, crew: Crew) -> None:
        ended = [each for each in self.cancelled if crew.free_s[each] <= at_s]
        self.cancelled = [each for each in self.cancelled if crew.free_s[each] > at_s]
        self.adaptation.shut_down(min(len(ended), self.adaptation.shutting_down))
        change = self.adaptation.decide(degree, at_s)
        reused = [self.cancelled.pop() for _ in range(min(change.reuse, len(self.cancelled)))]
        crew.revive(reused, at_s)
        crew.start(change.start + change.reuse - len(reused), at_s + HORIZON_S)
        self.cancelled += crew.cancel(change.cancel, at_s)


@dataclass(slots=True)
class ByCpu:
    """The CPU rule: two frames of 5 s above 70 % add an instance, below 50 % remove one."""

    rule: CpuThreshold
    frames: list[float] = field(default_factory=list)

    def arrived(self, between_s: float, at_s: float, crew: Crew) -> None:
        """See ``Controller``: it looks at frames only."""

    def tick(self, at_s: float, crew: Crew) -> None:
        """See ``Controller``."""
        self.frames.append(min(1.0, crew.load(at_s - 5.0, at_s)))
        if len(self.frames) < self.rule.frames:
            return
        engines = len(crew.live) + len(crew.booting)
        wanted = self.rule.decide(
            Observation(at_s=at_s, engines=engines, input_rate=0.0, busy_s=1.0, cpu=tuple(self.frames))
        ).engines
        self.frames.clear()
        if wanted > engines:
            crew.start(wanted - engines, at_s + HORIZON_S)
        else:
            crew.cancel(engines - wanted, at_s)


class Fixed:
    """Leaves the instances alone."""

    def arrived(self, between_s: float, at_s: float, crew: Crew) -> None:
        """See ``Controller``."""

    def tick(self, at_s: float, crew: Crew) -> None:
        """See ``Controller``."""


def by_queueing(slice_events: int, *, as_the_paper: bool) -> ByQueueing:
    """Return the planner: as in the paper, or with the times' distribution and refined by simulation."""
    settings = PlannerSettings(goal=GOAL, profile=profile(as_the_paper=as_the_paper), most=MOST, ahead=1)
    rng = None if as_the_paper else np.random.default_rng(SEED)
    return ByQueueing(QueueingPlanner(settings, rng=rng), slice_events, Adaptation(8, HORIZON_S))


def least_mean(rate: object, until_s: float) -> float:
    """Return the mean of the smallest numbers of instances that keep the limit at the rates of a run (by trying)."""
    moments = np.arange(0.0, until_s, 600.0) + 300.0
    rates = np.ceil(np.asarray(rate(moments)) * 4) / 4  # type: ignore[operator]
    least = {each: _least_at(float(each)) for each in np.unique(rates)}
    return float(np.mean([least[each] for each in rates]))


def _least_at(rate: float) -> int:
    rng = np.random.default_rng(SEED)
    arrivals = np.cumsum(rng.exponential(1 / rate, ENOUGH_EVENTS))
    mean_s = float(mean_busy_s(rate))
    busy_s = mean_s * np.maximum(1 + BUSY_PART * rng.normal(size=ENOUGH_EVENTS), 0.1)
    return least(Load(arrivals, busy_s, arrivals), int(rate * mean_s) + 1)


def least(load: Load, first: int) -> int:
    """Return the smallest fixed number of instances that keeps the limit."""
    for instances in range(first, MOST):
        if play(load, Fixed(), instances, by_selection=False, tick_s=1e9).held(GOAL.limit_events) >= GOAL.probability:
            return instances
    raise ValueError(f"not even {MOST} instances hold the limit")


def traffic() -> str:
    """Return Figures 8a to 8d as a table."""
    rows: list[tuple[object, ...]] = []
    for name, rate, until_s in (("static", steady_rate, STEADY_S), ("dynamic", rush_rate, RUSH_S)):
        load, minimum = vehicles(rate, until_s, SEED), least_mean(rate, until_s)
        for by_selection in (False, True):
            for label, controller in _controllers():
                rows.append(
                    _row(name, by_selection, label, play(load, controller, 8, by_selection=by_selection), minimum)
                )
    header = ("load", "events go to", "decided by", "95th percentile", "within 15", "instances", "/ minimum")
    return table(header, rows, text_columns=3)


def _controllers() -> list[tuple[str, Controller]]:
    return [
        ("QT-400, as the paper", by_queueing(400, as_the_paper=True)),
        ("QT-1600, as the paper", by_queueing(1600, as_the_paper=True)),
        ("QT-400, refined", by_queueing(400, as_the_paper=False)),
        ("CPU 70 % / 50 %", ByCpu(CpuThreshold(MOST))),
    ]


def _row(name: str, by_selection: bool, label: str, played: Played, minimum: float) -> tuple[object, ...]:
    mean = float(played.instances.mean())
    return (
        name,
        "their selection's" if by_selection else "the first free one",
        label,
        f"{np.percentile(played.buffered, 95):,.0f}",
        f"{played.held(GOAL.limit_events):.1%}",
        f"{mean:.2f} ({played.instances.min()} to {played.instances.max()})",
        f"{mean / minimum:.2f}",
    )


def approximations() -> str:
    """Return Figure 8e as a table: the paper's degrees, ours, and the smallest that a simulation finds."""
    uniform, pareto = Uniform(0.1, 0.2), Pareto(0.05, 2.0)
    experiments = (
        ("uniform workload", uniform, Exponential(0.3), 10),
        ("uniform service", Exponential(0.04), uniform, 6),
        ("Pareto workload", pareto, Exponential(0.3), 6),
        ("Pareto service", Exponential(0.06667), pareto, 10),
    )
    rows: list[tuple[object, ...]] = []
    for name, workload, service, paper in experiments:
        rng = np.random.default_rng(SEED)
        n = 3 * ENOUGH_EVENTS
        arrivals = np.cumsum(workload.quantile(rng.uniform(size=n)))
        load = Load(arrivals, service.quantile(rng.uniform(size=n)), arrivals)
        safe = optimal_degree(workload, service, GOAL, current=1, most=MOST)
        found = refined(safe, workload, service, GOAL, rng)
        held = play(load, Fixed(), found.instances, by_selection=False, tick_s=1e9).held(GOAL.limit_events)
        minimum = least(load, int(service.mean_s / workload.mean_s) + 1)
        ratio = f"{found.instances / minimum:.2f}"
        rows.append((name, paper, safe.instances, found.instances, f"{held:.1%}", minimum, ratio))
    header = ("experiment", "paper", "conservative", "refined", "within 15", "minimum", "refined / minimum")
    return table(header, rows)
