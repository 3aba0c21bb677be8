"""Simulates any policy in a fluid: one query, the real profiler and scheduler, models trained at once."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any

from gateway.core.decide.scheduler import Scheduler
from gateway.fleet.fitting import fit
from policies.advice import PolicyAnswer
from policies.announcement import Announcement
from policies.choose import Policies
from policies.money.billing import BillingTerms
from policies.signals import (
    HOME,
    Ask,
    Command,
    Decision,
    DrainVm,
    Event,
    Fit,
    Fitted,
    SetRoute,
    SlotAnswered,
    SlotEnded,
    StartVm,
    TerminateVm,
    VmDrained,
    VmGone,
    VmReady,
)
from tests.policies.fluid import Fluid, Lane
from tests.policies.policy_data import query_settings, scheduler_settings

if TYPE_CHECKING:
    from policies.choose import PolicyOptions

HOME_PER_S = 1000.0
PERIOD_S = 20.0
BOOT_S = 6.0


@dataclass
class Played:
    """The outcome; times in seconds."""

    started: list[tuple[float, str]] = field(default_factory=list)
    ended_s: list[float] = field(default_factory=list)
    fits: list[Fit] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)
    latencies: list[tuple[float, float]] = field(default_factory=list)
    usd: float = 0.0

    def mean_latency_s(self, from_s: float = 0.0) -> float:
        seen = [latency_s for at_s, latency_s in self.latencies if at_s >= from_s]
        return sum(seen) / len(seen)

    def wanted(self, at_s: float) -> int | None:
        return next(decision.advice.wanted for decision in self.decisions if decision.at_s >= at_s)


class Play:
    """A gateway in a fluid; ``fail_fits`` makes every training fail."""

    def __init__(
        self,
        policy: PolicyOptions | None,
        rate: Callable[[float], float],
        *,
        max_vms: int = 2,
        fail_fits: bool = False,
        cpu: Callable[[float], float] | None = None,
        announced: tuple[Announcement, ...] = (),
    ) -> None:
        # Runs wait before the lanes, as they do when credit is spent: little is in a lane when a VM comes.
        self.fluid = Fluid(rate, {HOME: Lane(HOME_PER_S, room_events=HOME_PER_S)})
        terms = BillingTerms(PERIOD_S, PERIOD_S, 0.36, 0.0)
        settings = query_settings(share=None, policy=policy, announced=announced)
        chosen = scheduler_settings(settings, max_vms=max_vms, boot_s=BOOT_S, billing=terms)
        self.scheduler = Scheduler(chosen)
        self.policies = Policies(chosen.queries, chosen.site)
        self.played = Played()
        self.fail_fits = fail_fits
        self.cpu = cpu
        self._booting: dict[str, float] = {}
        self._draining: set[str] = set()
        self._ids = count(1)

    def until(self, end_s: float) -> Played:
        while self.fluid.now_s < end_s:
            slot = self.fluid.run_slot()
            now_s = self.fluid.now_s
            for vm in [vm for vm, at_s in self._booting.items() if at_s <= now_s]:
                self.fluid.lanes[vm] = Lane(HOME_PER_S, room_events=HOME_PER_S)
                self._tell(VmReady, vm=vm, billing_since_s=self._booting.pop(vm) - BOOT_S)
            for vm in sorted(self._draining):
                if not self.fluid.lanes[vm].queue:
                    self._tell(VmDrained, vm=vm)
            cpu = {} if self.cpu is None else dict.fromkeys(self.fluid.lanes, self.cpu(now_s))
            self._tell(SlotEnded, queries=(slot,), cpu=cpu)
            self.played.decisions += self.scheduler.last_decisions
            self.played.latencies.append((now_s, slot.latency_s))
        self.played.usd = self.scheduler.totals(self.fluid.now_s).usd
        return self.played

    def _tell(self, kind: type[Event], **fields: Any) -> None:
        event = kind(event_id=f"e{next(self._ids)}", at_s=self.fluid.now_s, **fields)
        commands = self.scheduler.handle(event)
        self.scheduler.validate()
        for command in commands:
            assert command.cause.event_id == event.event_id
            self._obey(command)

    def _answers(self, ask: Ask) -> tuple[PolicyAnswer, ...]:
        return self.policies.answer(ask)

    def _obey(self, command: Command) -> None:
        match command:
            case StartVm():
                self._booting[command.vm] = self.fluid.now_s + BOOT_S
                self.played.started.append((self.fluid.now_s, command.cause.why))
            case SetRoute():
                self.fluid.set_shares(dict(command.shares))
            case DrainVm():
                self._draining.add(command.vm)
            case TerminateVm():
                self._draining.discard(command.vm)
                if self._booting.pop(command.vm, None) is None:
                    self.fluid.remove(command.vm)
                self.played.ended_s.append(self.fluid.now_s)
                self._tell(VmGone, vm=command.vm)
            case Ask():
                self._tell(SlotAnswered, turn=command.turn, answers=self._answers(command))
            case Fit():
                self.played.fits.append(command)
                if self.fail_fits:
                    self._tell(Fitted, query=command.query, models=(), trouble="no memory")
                else:
                    self._tell(Fitted, query=command.query, models=fit(command))


def bursts(*, every_s: float, for_s: float, low: float, high: float) -> Callable[[float], float]:
    """Return a rate that is high for a while, at the end of each cycle."""
    return lambda at_s: high if at_s % every_s >= every_s - for_s else low


def noisy(mean: float, spread: float, seed: int) -> Callable[[float], float]:
    """Return a rate that is drawn at random each second."""
    draw = random.Random(seed)
    drawn: dict[int, float] = {}
    return lambda at_s: drawn.setdefault(int(at_s), max(0.0, draw.gauss(mean, spread)))
