"""Launches VMs for the latency that will be there when they can serve. It needs no history of load.

Equation 1 of ESM waits until the latency has risen; then a VM needs its boot, and the backlog grows meanwhile. Here the
backlog is computed ahead as a fluid: events come at the present rate, and engines work at their measured rates. So a
burst orders VMs in the slot in which it is seen, as many as it needs. A VM is given back once the load, with its
uncertainty, would not call for it again within a boot and a billing period.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from policies.advice import Advice, Expected, Load, Option, Seen, Site, VmPolicy
from policies.planning.arriving import ArrivalRate, Arriving
from policies.planning.enginetimes import EngineTimes

_Z = 1.645
"""The 95 % quantile of the standard normal distribution."""
_MEMORY = 0.9995
"""The weight of a slot one slot later. Small batches say little about an engine's capacity: while the load is low, the
large ones of the last bursts count."""
_RECOVERED_BOOTS = 1.0
"""What has piled up is gone so many boots after the VMs serve; a faster recovery would need more VMs."""


@dataclass(frozen=True, slots=True)
class LookaheadOptions:
    """It has no settings: boot, billing period and latency target are those of the config."""


class Fluid(NamedTuple):
    """What a query's events and engines will do, if nothing changes.

    Attributes:
        rate: events that come per second.
        waiting: events that wait or are processed.
        home_rate: events that home completes per busy second.
        vm_rate: the same of a VM.
    """

    rate: float
    waiting: float
    home_rate: float
    vm_rate: float

    def capacity(self, vms: int) -> float:
        """Return how many events per second home and so many VMs complete."""
        return self.home_rate + vms * self.vm_rate

    def later(self, in_s: float, ready_in_s: tuple[float, ...]) -> float:
        """Return how many events will wait.

        Args:
            in_s: seconds from now.
            ready_in_s: when each VM serves, in seconds from now.
        """
        waiting, now_s = self.waiting, 0.0
        for until_s in sorted({*(each for each in ready_in_s if 0 < each < in_s), in_s}):
            served = self.capacity(sum(each <= now_s for each in ready_in_s))
            waiting = max(0.0, waiting + (self.rate - served) * (until_s - now_s))
            now_s = until_s
        return waiting

    def latency_s(self, in_s: float, ready_in_s: tuple[float, ...]) -> float:
        """Return how long an event that comes then will wait for those before it, if no further VM is launched."""
        return self.later(in_s, ready_in_s) / self.capacity(sum(each <= in_s for each in ready_in_s))


def ordered(fluid: Fluid, ready_in_s: tuple[float, ...], boot_s: float, target_s: float, most: int) -> int:
    """Return how many VMs to launch now, so that the target is kept, or kept again a boot after they serve.

    Args:
        fluid: the query.
        ready_in_s: when each VM that there is serves, in seconds from now.
        boot_s: when a VM that is launched now serves.
        target_s: the promised latency.
        most: at most so many.
    """
    if fluid.latency_s(boot_s, ready_in_s) <= target_s:
        return 0
    recovered_s = boot_s * (1.0 + _RECOVERED_BOOTS)
    for count in range(most + 1):
        standing = (*ready_in_s, *(boot_s,) * count)
        if fluid.latency_s(recovered_s, standing) <= target_s:
            return count
    return most


def needed(fluid: Fluid, there: int, within_s: float, target_s: float) -> int:
    """Return how many of the VMs to keep: with fewer of them, the target would be missed within a time.

    Args:
        fluid: the query, with the highest rate that its uncertainty allows.
        there: how many VMs there are.
        within_s: a boot and a billing period.
        target_s: the promised latency.
    """
    for count in range(there):
        # In a fluid the backlog grows or shrinks all the time, so its two ends tell all.
        worst_s = max(fluid.latency_s(each, (0.0,) * count) for each in (0.0, within_s))
        if worst_s <= target_s:
            return count
    return there


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
        self._within_s = site.boot_s + site.terms.period_s

    def advise(self, seen: Seen) -> Advice:
        """See ``VmPolicy.advise``."""
        self._times.observe(seen.slot)
        arriving = self._arrivals.observe(seen.slot.input_rate)
        event_s = self._times.vm_event_s
        if event_s is None:
            return Advice(why="lookahead: no event was processed so far, so equation 1 decides")
        slot = seen.slot
        waiting = slot.backlog_events + sum(slot.open_events.values())
        fluid = Fluid(arriving.rate, waiting, self._times.home_engines / event_s, 1.0 / event_s)
        return self._advice(seen, fluid, fluid._replace(rate=arriving.rate + _Z * arriving.error), arriving)

    def _advice(self, seen: Seen, fluid: Fluid, worst: Fluid, arriving: Arriving) -> Advice:
        site, there = self._site, len(seen.vms)
        ready_in_s = tuple(vm.ready_in_s for vm in seen.vms)
        more = ordered(fluid, ready_in_s, site.boot_s, self._target_s, max(0, site.max_vms - there))
        vms = there + more if more else needed(worst, there, self._within_s, self._target_s)
        without_s = fluid.latency_s(site.boot_s, ready_in_s)
        seconds = "a VM that is launched now serves in"
        why = (
            f"lookahead: {vms} VMs: {arriving.rate:,.0f} events/s come (± {_Z * arriving.error:,.0f}), home completes "
            f"{fluid.home_rate:,.0f}/s and a VM {fluid.vm_rate:,.0f}/s; {seconds} {site.boot_s:g} s, and without it an "
            f"event will wait {without_s:.1f} s then"
        )
        if not more and there:
            kept = f", with {vms} of the {there} VMs the target is kept for {self._within_s:g} s at {worst.rate:,.0f}/s"
            why += kept if vms < there else f", and {there} VMs are needed at up to {worst.rate:,.0f}/s"
        load = fluid.rate / fluid.vm_rate
        return Advice(
            wanted=vms,
            kept=vms,
            why=why,
            expected=Expected(
                site.boot_s, fluid.rate, max(0.0, fluid.rate - _Z * arriving.error), fluid.rate + _Z * arriving.error
            ),
            options=self._prices(vms),
            load=Load(load, load, fluid.home_rate / fluid.vm_rate),
        )

    def _prices(self, chosen: int) -> tuple[Option, ...]:
        """Return the price of one VM fewer, as many, and one more in a billing period."""
        terms = self._site.terms
        counts = sorted({max(0, chosen - 1), chosen, min(chosen + 1, self._site.max_vms)})
        return tuple(Option(vms, vms * terms.time_usd(terms.period_s)) for vms in counts)
