"""Engines, cost and misses over time: Figures 14 to 16 (Zacheilas, IV).

The load is a trace's test part. A window is a bin of it; events that engines cannot process within a window are missed
(equation 2). The private cluster is one engine; seven engines carry the highest load of the training part, and there
are at most eight VMs. A VM serves from the window after its order, is billed from its order in blocks of three windows,
and is terminated at the end of a block. This module computes the cost; the policies do not. The planner waits after a
change as the daemon's does; the rules that it is compared with do not wait.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from planning.document import table
from planning.traces import PERIODS_S, TRAINING_POINTS, Trace
from policies.advice import Advice, Seen, Site, StandingVm
from policies.arrays import Array
from policies.gaussian.forecaster import TrainingSet, train
from policies.money.billing import BillingTerms
from policies.planning.clairvoyant import Blocks, clairvoyant
from policies.planning.cooldown import CoolDown
from policies.planning.planner import Planner, PlannerOptions
from policies.planning.rules import CpuThreshold, Observation, QueueingRule, RateRule, Rule, Static
from policies.planning.windows import Window
from policies.queueing.degree import BufferGoal
from policies.signals import QuerySlot

MOST_VMS = 8
ENGINES_AT_PEAK = 7
BLOCK = 3
MISS_FACTOR = 20.0
DEAR_MISS_FACTOR = 200.0
CHANGE_FACTOR = 0.1
HISTORY = 700


@dataclass(frozen=True, slots=True)
class World:
    """A trace with engines and prices.

    Attributes:
        trace: its values are events a window.
        first: the first window of the test part.
        event_s: how long an engine is busy with an event.
        terms: of the cloud; a window of a VM costs 1 USD.
        miss_factor: a missed event costs as much as processing this many on a VM.
        lead_in: windows before the test part in which policies already decide, so that a model can gain trust.
    """

    trace: Trace
    first: int
    event_s: float
    terms: BillingTerms
    miss_factor: float = MISS_FACTOR
    lead_in: int = 20

    @property
    def begins(self) -> int:
        """Return the first window in which policies decide."""
        return self.first - self.lead_in

    @property
    def window_s(self) -> float:
        """Return the length of a window."""
        return self.trace.bin_s

    @property
    def capacity(self) -> float:
        """Return the number of events that an engine processes in a window."""
        return self.window_s / self.event_s

    @property
    def miss_usd(self) -> float:
        """Return MC."""
        return self.miss_factor / self.capacity

    @property
    def change_usd(self) -> float:
        """Return RC."""
        return CHANGE_FACTOR * BLOCK

    def missed(self, window: int, vms: int) -> float:
        """Return how many events are missed."""
        return max(0.0, float(self.trace.values[window]) - self.capacity * (1 + vms))


@dataclass(frozen=True, slots=True)
class Vm:
    """A VM: the first window in which it serves, and the window before which its paid time ends."""

    ready: int
    paid_until: int


class Policy:
    """Decides by a plain rule.

    Args:
        world: its world.
        rule: its rule.
    """

    def __init__(self, world: World, rule: Rule) -> None:
        self._world = world
        self._rule = rule
        self._cpu: list[float] = []

    def wanted(self, window: int, fleet: Sequence[Vm]) -> tuple[int, int]:
        """Return how many VMs are wanted for the next window, and how many are kept now."""
        world = self._world
        rate = float(world.trace.values[window - 1]) / world.window_s
        serving = sum(vm.ready < window for vm in fleet)
        self._cpu = [*self._cpu[-1:], min(1.0, rate * world.event_s / (1 + serving))]
        seen = Observation(
            at_s=window * world.window_s,
            engines=1 + len(fleet),
            input_rate=rate,
            busy_s=world.event_s,
            cpu=tuple(self._cpu),
        )
        vms = self._rule.decide(seen).engines - 1
        return vms, vms

    def starts(self, there: int, wanted: int, at_s: float) -> int:  # noqa: ARG002
        """Return how many VMs are started beyond those that exist."""
        return max(0, min(wanted, MOST_VMS) - there)

    def ended(self, there: int, at_s: float) -> None:
        """Note that VMs were terminated; ``there`` does not include them."""


class Phi(Policy):
    """Equation 1: one VM more after each window with missed events; none kept if home had sufficed for its block."""

    def wanted(self, window: int, fleet: Sequence[Vm]) -> tuple[int, int]:
        """See ``Policy``."""
        late = self._world.missed(window - 1, sum(vm.ready < window for vm in fleet)) > 0
        needed = any(self._world.missed(each, 0) > 0 for each in range(window - BLOCK, window))
        asked = len(fleet) + 1 if late else 0
        return asked, max(asked, len(fleet) if needed else 0)


class Planned(Policy):
    """Decides by Spillway's planner, first fitted on the data before the test part, then whenever it orders a fit."""

    def __init__(self, world: World) -> None:
        super().__init__(world, RateRule(1 + MOST_VMS))
        site = Site(max_vms=MOST_VMS, terms=world.terms, boot_s=world.window_s, slot_s=world.window_s)
        options = PlannerOptions(
            window_s=world.window_s,
            windows=12,
            history=HISTORY,
            cycles_s=PERIODS_S,
            miss_usd=world.miss_usd,
            change_usd=world.change_usd,
        )
        self._planner = self._make(options, site)
        self._cool_down = CoolDown(world.terms.period_s)
        self._advice = Advice()
        self.planned = 0
        self.expected: dict[int, float] = {}
        """The forecasts (events per second) for the windows in which VMs serve, at the time of their order."""
        for window in range(world.begins - HISTORY, world.begins):
            self._planner.decide(*self._seen(window, ()))
        if not self._trained():
            raise ValueError("the planner does not want to be trained after so long a history")

    def _make(self, options: PlannerOptions, site: Site) -> Planner:
        return Planner(options, site, latency_s=self._world.window_s)

    def _trained(self) -> bool:
        """Carry out the planner's training, if it ordered one, as the daemon does outside its loop."""
        order = self._planner.fit_order()
        if order is None:
            return False
        self._planner.fitted(tuple(train(each) for each in order.training if isinstance(each, TrainingSet)), "")
        return True

    def wanted(self, window: int, fleet: Sequence[Vm]) -> tuple[int, int]:
        """See ``Policy``; while the planner is not trusted, the rate rule decides."""
        advice = self._advice = self._planner.decide(*self._seen(window, fleet))
        self._trained()
        if advice.expected is not None:
            self.expected[window + 1] = advice.expected.rate
        if advice.wanted is None:
            return super().wanted(window, fleet)
        self.planned += 1
        return advice.wanted, advice.kept

    def starts(self, there: int, wanted: int, at_s: float) -> int:
        """See ``Policy``; starts by the plain rule do not wait."""
        count, to = there, max(wanted, self._advice.rising_to)
        while count < min(wanted, MOST_VMS):
            if self._advice.wanted is not None and self._cool_down.left_s(count, at_s) > 0:
                break
            count += 1
            self._cool_down.started(count, at_s, to)
        return count - there

    def ended(self, there: int, at_s: float) -> None:
        """See ``Policy``."""
        self._cool_down.ended(there, at_s, self._advice.rising_to)

    def _seen(self, window: int, fleet: Sequence[Vm]) -> tuple[Window, Seen]:
        world, step = self._world, self._world.window_s
        now_s = float(world.trace.at_s[0]) + window * step
        rate = float(world.trace.values[window - 1]) / step
        vms = tuple(StandingVm(max(0, vm.ready - window) * step, (vm.paid_until - window) * step) for vm in fleet)
        slot = QuerySlot(query="q", latency_s=0.0, input_rate=rate)
        seen = Seen(at_s=now_s, wall_s=now_s, slot=slot, boot_s=step, vms=vms)
        return Window(now_s, rate, world.event_s, (rate,)), seen


@dataclass(slots=True)
class Course:
    """What happened in each window of the test part.

    Attributes:
        vms: how many served.
        missed: events.
        usd: VMs, misses and changes.
        changes: how often the number of serving VMs changed.
    """

    vms: list[int] = field(default_factory=list)
    missed: list[float] = field(default_factory=list)
    usd: list[float] = field(default_factory=list)
    changes: int = 0

    def add(self, vms: int, missed: float, usd: float, *, changed: bool) -> None:
        """Add a window."""
        self.vms.append(vms)
        self.missed.append(missed)
        self.usd.append(usd)
        self.changes += changed


class Running:
    """A policy with its VMs, window by window.

    Args:
        world: its world.
        policy: what decides.

    Attributes:
        fleet: its VMs.
        said: how many VMs the policy wanted for the next window, and how many it kept, when it was asked last.
        course: what happened in the test part.
    """

    def __init__(self, world: World, policy: Policy) -> None:
        self._world = world
        self._policy = policy
        self._before = 0
        self.fleet: list[Vm] = []
        self.said = (0, 0)
        self.course = Course()

    def step(self, window: int) -> float:
        """Let the policy decide at the beginning of a window; return what the window cost."""
        world, policy = self._world, self._policy
        wanted, kept = self.said = policy.wanted(window, self.fleet)
        staying = [vm for vm in self.fleet if vm.paid_until > window]
        ending = sorted((vm for vm in self.fleet if vm.paid_until <= window), key=lambda vm: vm.ready)
        renewed = min(len(ending), max(0, kept - len(staying)))
        self.fleet = [*staying, *(Vm(vm.ready, window + BLOCK) for vm in ending[:renewed])]
        at_s = window * world.window_s
        if renewed < len(ending):
            policy.ended(len(self.fleet), at_s)
        started = policy.starts(len(self.fleet), wanted, at_s)
        self.fleet += [Vm(window + 1, window + BLOCK)] * started
        serving = sum(vm.ready <= window for vm in self.fleet)
        missed = world.missed(window, serving)
        changed = world.change_usd if serving != self._before else 0.0
        usd = (renewed + started) * BLOCK + changed + missed * world.miss_usd
        if window >= world.first:
            self.course.add(serving, missed, usd, changed=serving != self._before)
        self._before = serving
        return usd


def live(world: World, policy: Policy) -> Course:
    """Let a policy decide, window by window, and add up the cost."""
    running = Running(world, policy)
    for window in range(world.begins, len(world.trace.values)):
        running.step(window)
    return running.course


def best(world: World, block: int = BLOCK, boot: int = 1) -> Course:
    """Return the cheapest course for a known future.

    Args:
        world: its world.
        block: windows that a VM is billed for at a time.
        boot: windows from the order of a VM until it serves.
    """
    windows = range(world.first, len(world.trace.values))
    missed = np.array([[world.missed(window, vms) for vms in range(MOST_VMS + 1)] for window in windows])
    blocks = Blocks(first=block, period=block, boot=boot, rebalance_usd=world.change_usd)
    found = clairvoyant(missed * world.miss_usd, blocks)
    lost = [float(missed[at, vms]) for at, vms in enumerate(found.vms)]
    mean_usd = found.cost_usd / len(windows)  # where in time its blocks begin is not told, only what they cost in all
    changes = sum(a != b for a, b in itertools.pairwise((0, *found.vms)))
    return Course(list(found.vms), lost, [mean_usd] * len(windows), changes)


def world_of(trace: Trace) -> World:
    """Return a trace's engines and prices."""
    first = min(TRAINING_POINTS, len(trace.values) * 7 // 10)
    capacity = float(trace.values[:first].max()) / ENGINES_AT_PEAK
    block_s = BLOCK * trace.bin_s
    return World(trace, first, trace.bin_s / capacity, BillingTerms(block_s, block_s, 3600.0 / trace.bin_s, 0.0))


def report(traces: Sequence[Trace]) -> str:
    """Return Figures 14 to 16: a summary of each trace, and the last one day by day."""
    rows: list[tuple[object, ...]] = []
    for trace in traces:
        world = world_of(trace)
        planned, dear = Planned(world), Planned(replace(world, miss_factor=DEAR_MISS_FACTOR))
        courses = {
            "planner": live(world, planned),
            f"planner, a miss worth {DEAR_MISS_FACTOR:g}": live(world, dear),
            "φ (equation 1)": live(world, Phi(world, RateRule(1))),
            "QT (M/M/c)": live(world, Policy(world, QueueingRule(BufferGoal(15, 0.95), 1 + MOST_VMS))),
            "rate (DS2)": live(world, Policy(world, RateRule(1 + MOST_VMS))),
            "CPU 70 % / 50 %": live(world, Policy(world, CpuThreshold(1 + MOST_VMS))),
            "static, all": live(world, Policy(world, Static(1 + MOST_VMS))),
        }
        vms, as_few = _static(world, sum(courses["planner"].missed))
        courses[f"static, {vms} VMs"] = as_few
        courses["clairvoyant"] = best(world)
        least = sum(courses["clairvoyant"].usd)
        arrived = float(world.trace.values[world.first :].sum())
        windows = len(trace.values) - world.begins
        parts = {name: f"{each.planned / windows:.0%}" for name, each in zip(courses, (planned, dear), strict=False)}
        rows += [
            (trace.name, *_summed(name, course, arrived, least), parts.get(name, "-"))
            for name, course in courses.items()
        ]
    header = ("trace", "decided by", "VMs, mean", "changes", "missed", "cost, USD", "/ clairvoyant", "planned")
    return f"{table(header, rows, text_columns=2)}\n\n{_daily(traces[-1].name, world, courses)}"


def _static(world: World, most_missed: float) -> tuple[int, Course]:
    """Return the smallest constant fleet that misses no more, and its course; all VMs if none does."""
    for vms in range(MOST_VMS):
        course = live(world, Policy(world, Static(1 + vms)))
        if sum(course.missed) <= most_missed:
            return vms, course
    return MOST_VMS, live(world, Policy(world, Static(1 + MOST_VMS)))


def _summed(name: str, course: Course, arrived: float, least: float) -> tuple[str, ...]:
    changes = sum(a != b for a, b in itertools.pairwise(course.vms))
    missed, usd = sum(course.missed) / arrived, sum(course.usd)
    return (name, f"{np.mean(course.vms):.2f}", str(changes), f"{missed:.3%}", f"{usd:,.0f}", f"{usd / least:.2f}")


def _daily(name: str, world: World, courses: dict[str, Course]) -> str:
    """Return engines, cost and misses of each day."""
    a_day = round(86_400 / world.window_s)
    shown = [each for each in ("planner", "QT (M/M/c)", "static, all", "clairvoyant") if each in courses]
    rows = []
    for day in range(len(courses["planner"].vms) // a_day):
        part = slice(day * a_day, (day + 1) * a_day)
        of_day: list[Array] = [np.array(courses[each].vms[part]) for each in shown]
        missed = [sum(courses[each].missed[part]) for each in shown]
        usd = [sum(courses[each].usd[part]) for each in shown[:-1]]
        rows.append(
            (
                day + 1,
                *(f"{1 + vms.mean():.1f}" for vms in of_day),
                *(f"{each:,.0f}" for each in usd),
                *(f"{each:,.0f}" for each in missed),
            )
        )
    header = (
        f"{name}, day",
        *(f"engines, {each}" for each in shown),
        *(f"USD, {each}" for each in shown[:-1]),
        *(f"missed, {each}" for each in shown),
    )
    return table(header, rows)
