"""The plain rules that planning must beat, and a wrapper that keeps any rule from flapping.

Each rule is a pure function of the present measurements. The private cluster counts as one engine, so 1 means that no
VM is wanted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Protocol

from policies.advice import ENGINES_HOME
from policies.queueing.degree import BufferGoal, calculate_degree
from policies.queueing.stationary import mmc_within

_ENGINES_MOST = 65
"""Rules are evaluated up to this many engines: larger numbers are unrealistic and cost time."""

_GOAL_PROBABILITY = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """The input of a rule.

    Attributes:
        at_s: now.
        engines: how many serve now.
        input_rate: events per second that became due lately.
        busy_s: how long an engine is busy with one event.
        cpu: mean load of the engines in the last time frames, oldest first, each in [0, 1].
        limit_broken: whether the user's limit is broken now.

    Raises:
        ValueError: a value is impossible.
    """

    at_s: float
    engines: int
    input_rate: float
    busy_s: float
    cpu: tuple[float, ...] = ()
    limit_broken: bool = False

    def __post_init__(self) -> None:
        if self.engines < 1 or not self.input_rate >= 0 or not self.busy_s > 0:
            raise ValueError(f"this cannot have been seen: {self}")


@dataclass(frozen=True, slots=True)
class RuleVerdict:
    """A rule's answer.

    Attributes:
        engines: how many should serve.
        why: the reason as a sentence.
    """

    engines: int
    why: str


class Rule(Protocol):
    """Decides how many engines should serve."""

    def decide(self, seen: Observation) -> RuleVerdict:
        """Return how many engines are wanted, and why."""
        ...


@dataclass(frozen=True, slots=True)
class Static:
    """A fixed number of engines."""

    engines: int

    def __post_init__(self) -> None:
        _require_most(self.engines)

    def decide(self, seen: Observation) -> RuleVerdict:  # noqa: ARG002
        """Return the number."""
        return RuleVerdict(self.engines, f"{self.engines} always")


@dataclass(frozen=True, slots=True)
class CpuThreshold:
    """One more above a load, one fewer below another (Castro Fernandez et al., SIGMOD 2013, as in Mayer et al., VI-B).

    Attributes:
        most: greatest number of engines.
        high: mean load over ``frames`` time frames above which one is added.
        low: the same below which one is removed.
        frames: how many time frames are looked at.
    """

    most: int
    high: float = 0.7
    low: float = 0.5
    frames: int = 2

    def __post_init__(self) -> None:
        _require_most(self.most)
        if not 0 <= self.low < self.high or self.frames < 1:
            raise ValueError(f"thresholds must be in order, and a frame be looked at: {self}")

    def decide(self, seen: Observation) -> RuleVerdict:
        """Return one more, one fewer or as many as now."""
        if len(seen.cpu) < self.frames:
            return RuleVerdict(seen.engines, f"{len(seen.cpu)} of {self.frames} time frames were seen")
        load = math.fsum(seen.cpu[-self.frames :]) / self.frames
        if load > self.high and seen.engines < self.most:
            return RuleVerdict(seen.engines + 1, f"CPU load {load:.0%} > {self.high:.0%}")
        if load < self.low and seen.engines > 1:
            return RuleVerdict(seen.engines - 1, f"CPU load {load:.0%} < {self.low:.0%}")
        return RuleVerdict(seen.engines, f"CPU load {load:.0%}")


@dataclass(frozen=True, slots=True)
class QueueingRule:
    """The QT-algorithm that Zacheilas et al. compare with (IV).

    It assumes Poisson arrivals at the present rate and exponential processing times: M/M/c.

    Attributes:
        goal: the limit to keep.
        most: greatest number of engines.
    """

    goal: BufferGoal
    most: int

    def __post_init__(self) -> None:
        _require_most(self.most)

    def decide(self, seen: Observation) -> RuleVerdict:
        """Return the smallest number that keeps the goal; the greatest if none does."""
        limit = self.goal.limit_events
        engines, probability, _ = calculate_degree(
            lambda c: mmc_within(seen.input_rate, seen.busy_s, c, limit),
            self.goal,
            current=seen.engines,
            most=self.most,
        )
        return RuleVerdict(
            engines, f"{engines} hold at most {limit} events {probability:.1%} of the time, as M/M/c says"
        )


@dataclass(frozen=True, slots=True)
class RateRule:
    """DS2 (Kalavri et al., OSDI 2018, equation 7): as many engines as the input needs at their true rate.

    The true rate is that of an engine which never waits, 1 / busy_s.

    Attributes:
        most: greatest number of engines.
    """

    most: int

    def __post_init__(self) -> None:
        _require_most(self.most)

    def decide(self, seen: Observation) -> RuleVerdict:
        """Return the input rate over an engine's true rate, rounded up."""
        needed = math.ceil(seen.input_rate * seen.busy_s - 1e-9)
        engines = min(max(needed, 1), self.most)
        return RuleVerdict(engines, f"{seen.input_rate:g} events/s at {1 / seen.busy_s:g} an engine need {needed}")


@dataclass(frozen=True, slots=True)
class DampingSettings:
    """How a rule is kept from flapping.

    Attributes:
        dead_band: the tolerated error of the input, as a part of it: the rule is evaluated for an input (and a load)
            that is this much lower and this much higher; between the two results nothing changes.
        cool_down_s: how long nothing changes after a change; a billing period limits it to one change per period. A
            broken limit may add engines before it is over.

    Raises:
        ValueError: a value is impossible.
    """

    dead_band: float
    cool_down_s: float

    def __post_init__(self) -> None:
        if not 0 <= self.dead_band < 1 or not self.cool_down_s >= 0:
            raise ValueError(f"a dead band is part of the input, a cool-down not negative: {self}")


class Damped:
    """Any rule, without flapping.

    Args:
        rule: the rule.
        settings: the damping.
    """

    def __init__(self, rule: Rule, settings: DampingSettings) -> None:
        self._rule = rule
        self._settings = settings
        self._changed_at_s: float | None = None

    def decide(self, seen: Observation) -> RuleVerdict:
        """Return the rule's answer, or the present number with the reason."""
        band = self._settings.dead_band
        fewest, most = (self._rule.decide(_scaled(seen, 1 + part)) for part in (-band, band))
        if fewest.engines <= seen.engines <= most.engines:
            return RuleVerdict(
                seen.engines, f"within the dead band of {band:.0%}: {fewest.engines} to {most.engines} fit"
            )
        wanted = fewest if seen.engines < fewest.engines else most
        left_s = self._cool_down_left_s(seen.at_s)
        urgent = seen.limit_broken and wanted.engines > seen.engines
        if left_s > 0 and not urgent:
            return RuleVerdict(
                seen.engines, f"{wanted.engines} wanted ({wanted.why}), but {left_s:.0f} s of cool-down left"
            )
        self._changed_at_s = seen.at_s
        return wanted

    def _cool_down_left_s(self, at_s: float) -> float:
        if self._changed_at_s is None:
            return 0.0
        return self._changed_at_s + self._settings.cool_down_s - at_s


def plain_verdicts(observation: Observation, vms_most: int, latency_s: float) -> dict[str, str]:
    """Return what each plain rule would want, in VMs, as a sentence by its name.

    Args:
        observation: the measurements; without ``cpu`` the CPU rule has no verdict.
        vms_most: the greatest number of VMs.
        latency_s: the promised latency.
    """
    most = min(ENGINES_HOME + vms_most, _ENGINES_MOST)
    goal = BufferGoal(max(1, int(latency_s / observation.busy_s)), _GOAL_PROBABILITY)
    rules: dict[str, Rule] = {"rate": RateRule(most), "queueing": QueueingRule(goal, most)}
    if observation.cpu:
        rules["cpu"] = CpuThreshold(most)
    observation = replace(observation, engines=min(observation.engines, most))
    verdicts = {name: rule.decide(observation) for name, rule in rules.items()}
    return {name: f"{verdict.engines - ENGINES_HOME} VMs: {verdict.why}" for name, verdict in verdicts.items()}


def _scaled(seen: Observation, factor: float) -> Observation:
    return replace(seen, input_rate=seen.input_rate * factor, cpu=tuple(load * factor for load in seen.cpu))


def _require_most(engines: int) -> None:
    if engines < 1:
        raise ValueError(f"a rule needs at least one engine, not {engines}")
