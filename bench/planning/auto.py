"""``auto`` beside each single rule, on all traces: what is paid beyond the rule that is the best one in hindsight.

The world is that of ``elasticity``: windows of a bin, VMs that serve a window after their launch, blocks of three
windows. All rules run beside each other, each with VMs of its own, and what they cost makes their accounts. What
chooses is the daemon's (``policies.auto.choosing``). The VMs of ``auto`` follow the chosen rule; those of the rule
before are paid for until their blocks end. Rules and accounts begin 680 windows before the test part, as the planner's
first model needs the 700 windows before. Only the test part is compared.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from planning.document import table
from planning.elasticity import BLOCK, MOST_VMS, Phi, Planned, Policy, Running, Vm, World, best, world_of
from planning.traces import Trace
from policies.auto.choosing import Choosing
from policies.planning.rules import CpuThreshold, QueueingRule, RateRule, Static
from policies.queueing.degree import BufferGoal

_LEAD_IN = 680
_SEEDS = 20
_FIRST = "rate (DS2)"
_FIRST_PRIOR = 0.9
_HOME = "home"


class Beside(NamedTuple):
    """What a rule did and paid with VMs of its own.

    Attributes:
        said: how many VMs it wanted and kept, in each window from ``world.begins``.
        usd: what each of these windows cost.
        test_usd: the cost of the test part.
        missed: events in the test part.
        vms: the mean number in the test part.
    """

    said: list[tuple[int, int]]
    usd: list[float]
    test_usd: float
    missed: float
    vms: float


class Auto(Policy):
    """Follows the rule that pays.

    Args:
        world: its world.
        rules: what each rule did; a window is looked at only once it is over.
        seed: of the draws.
    """

    def __init__(self, world: World, rules: Mapping[str, Beside], seed: int) -> None:
        super().__init__(world, RateRule(1))
        self._begins = world.begins
        self._rules = tuple(rules.values())
        rest = (1.0 - _FIRST_PRIOR) / (len(rules) - 1)
        prior = [_FIRST_PRIOR if name == _FIRST else rest for name in rules]
        self._choosing = Choosing(prior, float(BLOCK), np.random.default_rng(seed))
        self.followed: list[int] = []

    def wanted(self, window: int, fleet: Sequence[Vm]) -> tuple[int, int]:  # noqa: ARG002
        """See ``Policy``."""
        at = window - self._begins
        if at:
            self._choosing.pay([rule.usd[at - 1] for rule in self._rules])
        self.followed.append(self._choosing.followed)
        return self._rules[self._choosing.followed].said[at]


def rules_of(world: World) -> dict[str, Policy]:
    """Return each rule by its name."""
    named = {
        "planner": Planned(world),
        "φ (equation 1)": Phi(world, RateRule(1)),
        "QT (M/M/c)": Policy(world, QueueingRule(BufferGoal(15, 0.95), 1 + MOST_VMS)),
        _FIRST: Policy(world, RateRule(1 + MOST_VMS)),
        "CPU 70 % / 50 %": Policy(world, CpuThreshold(1 + MOST_VMS)),
        _HOME: Policy(world, Static(1)),
    }
    return named | {f"static, {vms} VMs": Policy(world, Static(1 + vms)) for vms in range(1, MOST_VMS + 1)}


def beside(world: World, policy: Policy) -> Beside:
    """Let a rule decide in all windows, with VMs of its own."""
    running, said, usd = Running(world, policy), [], []
    for window in range(world.begins, len(world.trace.values)):
        usd.append(running.step(window))
        wanted, kept = running.said
        # What it has not launched, as it waits after a change, nobody launches.
        said.append((min(wanted, len(running.fleet)), kept))
    course = running.course
    return Beside(said, usd, sum(course.usd), sum(course.missed), float(np.mean(course.vms)))


def report(traces: Sequence[Trace]) -> str:
    """Return the table of all traces, and how near ``auto`` comes to the best rule of each."""
    rows: list[tuple[object, ...]] = []
    goals: list[tuple[object, ...]] = []
    for trace in traces:
        world = replace(world_of(trace), lead_in=_LEAD_IN)
        rules = {name: beside(world, policy) for name, policy in rules_of(world).items()}
        played = [_auto(world, rules, seed) for seed in range(_SEEDS)]
        first = min(rules, key=lambda name: rules[name].test_usd)
        fixed = min((name for name in rules if name.startswith("static")), key=lambda name: rules[name].test_usd)
        shown = {name: each for name, each in rules.items() if name == fixed or not name.startswith("static")}
        shown["**auto**"] = _mean([each.found for each in played])
        least, arrived = sum(best(world).usd), float(trace.values[world.first :].sum())
        rows += [(trace.name, name, *_told(each, arrived, least, rules[first])) for name, each in shown.items()]
        goals.append((trace.name, first, *_goal(played, list(rules), rules[first].test_usd)))
        print(rows[-1], goals[-1], flush=True)
    header = ("trace", "decided by", "VMs, mean", "missed", "cost, USD", "/ clairvoyant", "/ best rule")
    head = ("trace", "best rule", "auto / best rule, mean", f"range of {_SEEDS} seeds", "followed most", "switches")
    return f"{table(header, rows, text_columns=2)}\n\n{table(head, goals, text_columns=2)}"


class _Played(NamedTuple):
    """What ``auto`` did with one seed, and which rule it followed in each window of the test part."""

    found: Beside
    followed: list[int]


def _auto(world: World, rules: Mapping[str, Beside], seed: int) -> _Played:
    policy = Auto(world, rules, seed)
    found = beside(world, policy)
    return _Played(found, policy.followed[world.lead_in :])


def _mean(each: Sequence[Beside]) -> Beside:
    usd, missed, vms = np.mean([(one.test_usd, one.missed, one.vms) for one in each], axis=0)
    return Beside([], [], float(usd), float(missed), float(vms))


def _goal(played: Sequence[_Played], names: Sequence[str], best_usd: float) -> tuple[str, ...]:
    ratios = [each.found.test_usd / best_usd for each in played]
    parts = np.bincount(np.concatenate([each.followed for each in played]), minlength=len(names)) / sum(
        len(each.followed) for each in played
    )
    switches = np.mean([sum(a != b for a, b in itertools.pairwise(each.followed)) for each in played])
    most = int(parts.argmax())
    return (
        f"{np.mean(ratios):.3f}",
        f"{min(ratios):.3f} to {max(ratios):.3f}",
        f"{names[most]} ({parts[most]:.0%})",
        f"{switches:.1f}",
    )


def _told(each: Beside, arrived: float, least: float, first: Beside) -> tuple[str, ...]:
    return (
        f"{each.vms:.2f}",
        f"{each.missed / arrived:.3%}",
        f"{each.test_usd:,.0f}",
        f"{each.test_usd / least:.2f}",
        f"{each.test_usd / first.test_usd:.3f}",
    )
