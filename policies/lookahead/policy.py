"""Launches VMs for the latency that will be there when they can serve. It needs no history of load.

Equation 1 of ESM waits until the latency has risen; then a VM needs its boot, and the backlog grows meanwhile. Here the
backlog is computed ahead as a fluid: events come at the present rate, and engines work at their measured rates. So a
burst orders VMs in the slot in which it is seen, as many as it needs. A VM is given back once the load, with its
uncertainty, would not call for it again within a boot and a billing period.
"""

from __future__ import annotations

from dataclasses import dataclass

from policies.advice import Advice, Expected, Load, Seen, Site, VmPolicy
from policies.lookahead.arriving import ArrivalRate
from policies.lookahead.fluid import Fluid, needed, ordered
from policies.planning.enginetimes import EngineTimes

_Z = 1.645
"""The 95 % quantile of the standard normal distribution."""
_MEMORY = 0.9995
"""The weight of a slot one slot later. Small batches say little about an engine's capacity: while the load is low, the
large ones of the last bursts count."""
_NEWS = 0.05
"""A rate that has changed by this part is news."""
_RETOLD_SLOTS = 20


@dataclass(frozen=True, slots=True)
class LookaheadOptions:
    """It has no settings: boot, billing period and latency target are those of the config."""


class LookaheadPolicy(VmPolicy):
    """Plans for one query.

    Args:
        site: the settings that all queries share.
        latency_s: the promised latency.
    """

    name = "lookahead"
    phi_starts = False

    def __init__(self, site: Site, latency_s: float) -> None:
        self._site = site
        self._target_s = latency_s
        self._times = EngineTimes(latency_s, _MEMORY)
        self._arrivals = ArrivalRate(site.slot_s)
        self._told = Advice(why="lookahead: no event was processed so far, so equation 1 decides")
        self._told_rate, self._told_slots = 0.0, 0

    def advise(self, seen: Seen) -> Advice:
        """See ``VmPolicy.advise``."""
        self._times.observe(seen.slot)
        arriving = self._arrivals.observe(seen.slot.input_rate)
        event_s = self._times.vm_event_s
        if event_s is None:
            return self._told
        slot = seen.slot
        waiting = slot.backlog_events + sum(slot.open_events.values())
        fluid = Fluid(arriving.rate, waiting, self._times.home_engines / event_s, 1.0 / event_s)
        advice = self._advice(seen, fluid, fluid._replace(rate=arriving.rate + _Z * arriving.error))
        if not self._is_old_news(advice, arriving.rate):
            self._told, self._told_rate, self._told_slots = advice, arriving.rate, 0
        self._told_slots += 1
        return self._told

    def _is_old_news(self, advice: Advice, rate: float) -> bool:
        """Whether the last answer says nearly the same: each new one is logged."""
        same = (advice.wanted, advice.kept) == (self._told.wanted, self._told.kept)
        same = same and self._is_late(advice) == self._is_late(self._told)
        return same and abs(rate - self._told_rate) <= _NEWS * self._told_rate and self._told_slots < _RETOLD_SLOTS

    def _is_late(self, advice: Advice) -> bool:
        """Whether home alone would miss the target."""
        return advice.home_alone_s > self._target_s

    def _advice(self, seen: Seen, fluid: Fluid, worst: Fluid) -> Advice:
        site, there = self._site, len(seen.vms)
        ready_in_s = tuple(vm.ready_in_s for vm in seen.vms)
        more = ordered(fluid, ready_in_s, seen.boot_s, self._target_s, max(0, site.max_vms - there))
        vms = there + more if more else needed(worst, there, self._within_s(seen), self._target_s)
        load = fluid.rate / fluid.vm_rate
        return Advice(
            wanted=vms,
            kept=vms,
            why=self._why(seen, fluid, worst, vms),
            expected=Expected(seen.boot_s, fluid.rate, max(0.0, 2 * fluid.rate - worst.rate), worst.rate),
            options=site.prices(vms),
            load=Load(load, load, fluid.home_rate / fluid.vm_rate),
            # The load is there, and ``needed`` keeps noise from launching and terminating in turn.
            at_once=True,
            home_alone_s=fluid.latency_s(seen.boot_s, ()),
        )

    def _within_s(self, seen: Seen) -> float:
        """Return for how long fewer VMs must be enough, so that one is given back."""
        return seen.boot_s + self._site.terms.period_s

    def _why(self, seen: Seen, fluid: Fluid, worst: Fluid, vms: int) -> str:
        """Return the arithmetic in words."""
        boot_s, there = seen.boot_s, len(seen.vms)
        without_s = fluid.latency_s(boot_s, tuple(vm.ready_in_s for vm in seen.vms))
        why = (
            f"lookahead: {vms} VMs: {fluid.rate:,.0f} events/s come (± {worst.rate - fluid.rate:,.0f}), home completes "
            f"{fluid.home_rate:,.0f}/s and a VM {fluid.vm_rate:,.0f}/s; a VM that is launched now serves in "
            f"{boot_s:.3g} s, and without it an event will wait {without_s:.1f} s then"
        )
        if vms < there:
            within_s = self._within_s(seen)
            why += f", with {vms} of the {there} VMs the target is kept for {within_s:.3g} s at {worst.rate:,.0f}/s"
        elif 0 < vms == there:
            why += f", and {there} VMs are needed at up to {worst.rate:,.0f}/s"
        return why
