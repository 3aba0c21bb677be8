"""A rule beside the real gateway: what it would have done with the events that really came, and what it would cost.

Home and VMs are a fluid with their measured rates. Events are processed at home first, and in the cloud, as far as home
cannot, while equation 2 holds. VMs boot, are billed in blocks, and end with their blocks, and equation 1 acts where the
rule leaves it to do so, all as in the gateway. A rule in a shadow sees the shadow's latency, backlog and VMs, never the
real ones.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from policies.advice import Advice, Seen, Site, StandingVm, VmPolicy
from policies.money.billing import BillingTerms, decision_due_s
from policies.planning.cooldown import CoolDown
from policies.switching.switching import SwitchingSettings, phi_vm

_JITTER = 0.1
"""Slots do not end exactly on time: tau is over when at most this part of a slot is missing."""


class Capacity(NamedTuple):
    """Measured rates, and prices of an event.

    Attributes:
        home_rate: events that home completes per busy second.
        vm_rate: the same of a VM.
        late_usd: MC, what a late event costs.
        sent_usd: the traffic of an event that goes to a VM.
        event_bytes: its bytes before trimming.
    """

    home_rate: float
    vm_rate: float
    late_usd: float
    sent_usd: float
    event_bytes: float

    def wait_s(self, backlog_events: float, serving: int) -> float:
        """Return how long an event waits for those before it."""
        return backlog_events / (self.home_rate + serving * self.vm_rate)

    def home_alone_s(self, backlog_events: float, rate: float, in_s: float) -> float:
        """Return how long an event waits for those before it, if no VM helps until then."""
        return max(0.0, backlog_events + (rate - self.home_rate) * in_s) / self.home_rate


@dataclass(slots=True)
class RuleAccount:
    """What a rule would have cost since the beginning.

    Attributes:
        vms_usd: paid time of VMs.
        traffic_usd: bytes that were sent.
        late_usd: late events, priced.
        late_events: how many.
    """

    vms_usd: float = 0.0
    traffic_usd: float = 0.0
    late_usd: float = 0.0
    late_events: float = 0.0

    @property
    def usd(self) -> float:
        """Return the sum."""
        return self.vms_usd + self.traffic_usd + self.late_usd


@dataclass(slots=True)
class _Vm:
    ready_s: float
    block_s: float
    block_end_s: float
    block_bytes: float = 0.0


class Shadow:
    """One rule with the VMs that it would have.

    Args:
        policy: the rule; nobody else may ask this instance.
        site: the settings that all queries share.
        terms: the prices that count.
        switching: the thresholds of equations 1 and 2.
        latency_s: the promised latency; an event that waits longer is late.

    Attributes:
        account: its costs so far.
        advice: the rule's last answer.
    """

    def __init__(
        self, policy: VmPolicy, site: Site, terms: BillingTerms, switching: SwitchingSettings, latency_s: float
    ) -> None:
        self.policy = policy
        self._site = site
        self._terms = terms
        self._switching = switching
        self._latency_s = latency_s
        self._cool_down = CoolDown(site.terms.period_s, _JITTER * site.slot_s)
        self._vms: list[_Vm] = []
        self._backlog = 0.0
        self._high_since_s: float | None = None
        self.account = RuleAccount()
        self.advice = Advice()

    @property
    def vms(self) -> int:
        """Return how many VMs serve or boot."""
        return len(self._vms)

    def advance(self, seen: Seen, capacity: Capacity) -> None:
        """Process a slot's events, pay for it, and do what the rule wants then."""
        wait_s, use = self._process(seen, capacity)
        self.advice = self.policy.advise(self._shown(seen, wait_s, use))
        asks = self._asks(wait_s, seen.at_s)
        self._keep(seen.at_s, wait_s, asks=asks)
        self._start(seen, wait_s, asks=asks)

    def _process(self, seen: Seen, capacity: Capacity) -> tuple[float, float]:
        """Process a slot's events; return how long an event waits now, and the used part of the engines."""
        slot_s, account = self._site.slot_s, self.account
        serving = [vm for vm in self._vms if vm.ready_s <= seen.at_s - slot_s / 2]
        came = seen.slot.input_rate * slot_s
        home, cloud = capacity.home_rate * slot_s, capacity.vm_rate * slot_s * len(serving)
        waited_s = capacity.wait_s(self._backlog, len(serving))
        alone_s = capacity.home_alone_s(self._backlog, seen.slot.input_rate, seen.boot_s)
        if waited_s < self._switching.send_above_s and alone_s <= self._latency_s:  # equation 2, and EarlySending
            cloud = 0.0
        there = self._backlog + came
        sent = min(max(0.0, there - home), cloud)
        self._backlog = max(0.0, there - home - cloud)
        wait_s = capacity.wait_s(self._backlog, len(serving))
        late = came * _part_above(self._latency_s, waited_s, wait_s)
        for vm in serving:
            vm.block_bytes += sent / len(serving) * capacity.event_bytes
        account.vms_usd += self._terms.time_usd(slot_s) * len(self._vms)
        account.traffic_usd += sent * capacity.sent_usd
        account.late_events += late
        account.late_usd += late * capacity.late_usd
        return wait_s, min(1.0, there / (home + cloud))

    def _shown(self, seen: Seen, wait_s: float, use: float) -> Seen:
        """Return what the rule sees."""
        slot = replace(seen.slot, latency_s=wait_s, backlog_events=int(self._backlog), open_events={}, open_runs=0)
        vms = tuple(
            StandingVm(max(0.0, vm.ready_s - seen.at_s), max(0.0, vm.block_end_s - seen.at_s)) for vm in self._vms
        )
        return replace(seen, slot=slot, vms=vms, cpu=use)

    def _asks(self, wait_s: float, at_s: float) -> bool:
        """Return whether equation 1 asks for a VM, and note since when."""
        acts = self.advice.wanted is None or self.policy.phi_starts
        if not acts or wait_s < self._switching.start_vm_above_s:
            self._high_since_s = None
            return False
        self._high_since_s = at_s if self._high_since_s is None else self._high_since_s
        return True

    def _phi(self, wait_s: float, for_s: float, block_bytes: float, *, ends: bool) -> bool:
        return phi_vm(
            self._switching,
            before=ends,
            latency_s=wait_s,
            high_for_s=for_s + _JITTER * self._site.slot_s,
            period_bytes=int(block_bytes),
            period_ends=ends,
        )

    def _keep(self, at_s: float, wait_s: float, *, asks: bool) -> None:
        """Keep or end each VM whose block ends; the rest of a block is paid in any case."""
        advice, terms = self.advice, self._site.terms
        for vm in tuple(self._vms):
            due_s = decision_due_s(vm.block_end_s, slot_s=self._site.slot_s, drain_s=0.0, block_s=vm.block_s)
            if vm.ready_s > at_s or at_s < due_s:
                continue
            others = len(self._vms) - 1
            if advice.wanted is None:
                kept = self._phi(wait_s, 0.0, vm.block_bytes, ends=True)
            else:
                kept = others < advice.kept or asks
            if kept:
                vm.block_s, vm.block_bytes = terms.period_s, 0.0
                vm.block_end_s += terms.period_s
                continue
            self._vms.remove(vm)
            self.account.vms_usd += self._terms.time_usd(max(0.0, vm.block_end_s - at_s))
            self._cool_down.ended(others, at_s, self._foreseen)

    def _start(self, seen: Seen, wait_s: float, *, asks: bool) -> None:
        """Launch what equation 1 or the rule wants."""
        at_s = seen.at_s
        if asks and self._high_since_s is not None and all(vm.ready_s <= at_s for vm in self._vms):
            wanted = self.advice.wanted
            patience_s = seen.boot_s if wanted is not None and 0 < wanted <= self.vms else 0.0
            if self._phi(wait_s, at_s - self._high_since_s - patience_s, 0.0, ends=False):
                self._launch(seen)
        while self.vms < (self.advice.wanted or 0):
            if (not self.advice.at_once and self._cool_down.left_s(self.vms, at_s) > 0) or not self._launch(seen):
                break

    def _launch(self, seen: Seen) -> bool:
        if self.vms >= self._site.max_vms:
            return False
        at_s, block_s = seen.at_s, self._site.terms.first_block_s
        self._vms.append(_Vm(at_s + seen.boot_s, block_s, at_s + block_s))
        self._cool_down.started(self.vms, at_s, self._foreseen)
        self._high_since_s = None
        return True

    @property
    def _foreseen(self) -> int:
        return max(self.advice.wanted or 0, self.advice.rising_to)


def _part_above(limit: float, first: float, last: float) -> float:
    """Return which part of a straight line between two values is above a limit."""
    low, high = min(first, last), max(first, last)
    if high <= limit:
        return 0.0
    return 1.0 if low >= limit else (high - limit) / (high - low)
