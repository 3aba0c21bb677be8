"""``auto``: the rule that pays. All rules run beside each other on what is seen, and the cheapest is followed.

Each rule exists twice. One instance lives in a shadow (``policies.auto.shadow``), whose costs make its account. The
other is asked about the real VMs and the real backlog, so that its answers are right once it is followed. The planner's
models are trained once for both.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from policies.advice import Advice, FitOrder, Reactive, Seen, Site, VmPolicy
from policies.auto.choosing import Choosing
from policies.auto.shadow import Capacity, Shadow
from policies.gaussian.forecaster import Trained
from policies.lookahead.policy import LookaheadPolicy
from policies.money.pricing import late_usd, priced
from policies.planning.enginetimes import EngineTimes
from policies.planning.plain import CpuOptions, CpuPolicy, StaticOptions, StaticPolicy
from policies.planning.planner import Planner, PlannerOptions
from policies.planning.queueing import QueueingOptions, QueueingPolicy
from policies.queueing.loadtable import LoadTable
from policies.switching.switching import SwitchingSettings

FIRST = "lookahead"
"""Until something was seen, the rule that needs no history is the most likely one."""
_PRIOR = 0.9
_MEMORY = 0.9995
"""The weight of a slot one slot later: while the load is low, the large batches of the last bursts count."""
_RETOLD_SLOTS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoOptions:
    """What its rules need.

    Attributes:
        planner: the planner's settings; its price of a late event is that of all accounts.
        queueing: the queueing policy's.
        cpu: the CPU rule's.
        switching: the thresholds of equations 1 and 2.
        seed: of the draws that decide between rules.
    """

    planner: PlannerOptions
    queueing: QueueingOptions
    cpu: CpuOptions
    switching: SwitchingSettings
    seed: int = 0


class AutoPolicy(VmPolicy):
    """Follows the rule that pays, for one query.

    Args:
        options: what its rules need.
        site: the settings that all queries share.
        latency_s: the promised latency.
    """

    name = "auto"

    def __init__(self, options: AutoOptions, site: Site, latency_s: float) -> None:
        self._options = options
        self._terms = priced(site.terms)
        self._live = rules(options, site, latency_s)
        shadowed = rules(options, site, latency_s)
        self.shadows = {
            name: Shadow(policy, site, self._terms, options.switching, latency_s) for name, policy in shadowed.items()
        }
        rest = (1.0 - _PRIOR) / (len(self._live) - 1)
        prior = [_PRIOR if name == FIRST else rest for name in self._live]
        switch_usd = self._terms.time_usd(site.terms.first_block_s)
        self._choosing = Choosing(prior, switch_usd, np.random.default_rng(options.seed))
        self._names = tuple(self._live)
        self._times = EngineTimes(latency_s, _MEMORY)
        self._ordered: tuple[str, ...] = ()
        self._told = self._of = Advice()
        self._told_followed, self._told_slots = "", 0

    @property
    def followed(self) -> str:
        """Return the name of the rule that is followed."""
        return self._names[self._choosing.followed]

    def advise(self, seen: Seen) -> Advice:
        """See ``VmPolicy.advise``."""
        self._times.observe(seen.slot)
        self._settle(seen)
        answers = {name: policy.advise(seen) for name, policy in self._live.items()}
        self._told_slots += 1
        followed = self.followed
        stale = self._told_slots >= _RETOLD_SLOTS or followed != self._told_followed
        if stale or answers[followed] is not self._of:
            self._of, self._told_followed, self._told_slots = answers[followed], followed, 0
            self._told = self._words(answers[followed])
        return self._told

    def fit_order(self) -> FitOrder | None:
        """See ``VmPolicy.fit_order``."""
        if self._ordered:
            return None
        orders = {name: self._live[name].fit_order() for name in (Planner.name, QueueingPolicy.name)}
        known = {name: order.training for name, order in orders.items() if order is not None}
        self._ordered = tuple(known)
        return FitOrder(sum(known.values(), ())) if known else None

    def fitted(self, models: tuple[Trained | LoadTable, ...], trouble: str) -> None:
        """See ``VmPolicy.fitted``."""
        for name in self._ordered:
            # Each takes what is its own: models of the input, or tables of loads.
            self._live[name].fitted(models, trouble)
            self.shadows[name].policy.fitted(models, trouble)
        self._ordered = ()

    def _settle(self, seen: Seen) -> None:
        """Let a slot pass in all shadows, and choose by what it cost there."""
        event_s, slot = self._times.vm_event_s, seen.slot
        if event_s is None:
            return
        event_bytes = slot.input_bytes_per_s / slot.input_rate if slot.input_rate > 0 else 0.0
        sent_bytes = event_bytes * seen.sent_part
        capacity = Capacity(
            home_rate=self._times.home_engines / event_s,
            vm_rate=1.0 / event_s,
            late_usd=late_usd(self._options.planner.miss_usd, self._terms, event_s, sent_bytes),
            sent_usd=self._terms.egress_usd(sent_bytes),
            event_bytes=event_bytes,
        )
        before = [shadow.account.usd for shadow in self.shadows.values()]
        for shadow in self.shadows.values():
            shadow.advance(seen, capacity)
        after = [shadow.account.usd for shadow in self.shadows.values()]
        self._choosing.pay([max(0.0, now - then) for then, now in zip(before, after, strict=True)])

    def _words(self, advice: Advice) -> Advice:
        """Return the followed rule's answer, with the account of each rule."""
        followed = self.followed
        accounts = {name: shadow.account for name, shadow in self.shadows.items()}
        told = {
            name: f"{self.shadows[name].vms} VMs now, ${each.usd:.4f} so far: VMs ${each.vms_usd:.4f}, traffic "
            f"${each.traffic_usd:.4f}, {each.late_events:,.0f} late events ${each.late_usd:.4f}"
            for name, each in accounts.items()
        }
        cheapest = min(accounts, key=lambda name: accounts[name].usd)
        beside = f", the cheapest is {cheapest} (${accounts[cheapest].usd:.4f})" if cheapest != followed else ""
        said = advice.why or "equation 1 decides"
        why = f"auto: follows {followed} (${accounts[followed].usd:.4f} so far{beside}): {said}"
        acts = self._live[followed].phi_starts
        return replace(advice, why=why, rules={**advice.rules, **told}, phi_starts=acts)


def rules(options: AutoOptions, site: Site, latency_s: float) -> dict[str, VmPolicy]:
    """Return a new instance of each rule, by its name."""
    found: list[VmPolicy] = [
        Reactive(),
        LookaheadPolicy(site, latency_s),
        Planner(options.planner, site, latency_s),
        QueueingPolicy(options.queueing, site, latency_s),
        CpuPolicy(options.cpu, site, latency_s),
    ]
    fixed = {f"static: {vms}": StaticPolicy(StaticOptions(vms)) for vms in sorted({1, site.max_vms}) if vms}
    return {policy.name: policy for policy in found} | {"home": StaticPolicy(StaticOptions(0))} | fixed
