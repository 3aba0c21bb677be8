"""Which part of a query's events is shed while the budget is spent (``when_spent: shed``).

The newest events are shed, as an even sample of the new ones; events that were accepted are answered. With a capacity
of mu events per second, B events waiting and B* = mu x w of them wanted, mu - (B - B*) / horizon events per second are
accepted. So B approaches B* within that horizon, and the capacity is used. The wait w begins with half the latency
target and is adapted, so that the latency stays slightly below the target: latency is more than waiting.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from policies.signals import HOME, Cause, Event, QuerySlot, SetShed
from policies.switching.query import SwitchedQuery
from policies.vms.fleet import Fleet
from policies.vms.vm import VmState

MOST = 0.99
"""A query always answers some events, however many come."""

_CHANGE = 0.02
"""A change of the accepted part by less than this is not worth a command."""

_HORIZON_SLOTS = 3
_WAIT_MOST = 0.5
_AIM = 0.8
_LEARN = 0.1


@dataclass(slots=True)
class Sampler:
    """Decides how many of the next events are shed; over time exactly ``share`` of them."""

    share: float = 0.0
    _owed: float = 0.0

    def shed(self, events: int) -> int:
        """Return how many of the next ``events`` are shed."""
        if self.share <= 0:
            self._owed = 0.0
            return 0
        self._owed += self.share * events
        count = min(events, int(self._owed))
        self._owed -= count
        return count


def share_to_shed(slot: QuerySlot, capacity_per_s: float, *, wait_s: float, horizon_s: float) -> float:
    """Return the part of the input that is too much, in [0, 0.99].

    Args:
        slot: the measurements; its input includes shed events.
        capacity_per_s: events per second that the query's lanes serve together.
        wait_s: w, how long accepted events should wait.
        horizon_s: the time in which the number of waiting events should approach the wanted one.
    """
    if slot.input_rate <= 0:
        return 0.0
    waiting_events = slot.backlog_events + sum(slot.open_events.values())
    excess_events = waiting_events - capacity_per_s * wait_s
    taken_per_s = capacity_per_s - excess_events / horizon_s
    return min(MOST, max(0.0, 1.0 - taken_per_s / slot.input_rate))


class Shedder:
    """Decides the share to shed for each query.

    Args:
        slot_s: length of a slot.
        max_vms: if this limit forbids another VM, nothing is shed: money is not the reason.

    Attributes:
        max_vms: the same; may be changed.
    """

    def __init__(self, slot_s: float, max_vms: int) -> None:
        self._slot_s = slot_s
        self.max_vms = max_vms
        self._active: set[str] = set()
        self._shares: dict[str, float] = {}
        self._waits_s: dict[str, float] = {}

    def forget(self, query: str) -> None:
        """Note that a query is gone."""
        self._active.discard(query)
        self._shares.pop(query, None)
        self._waits_s.pop(query, None)

    def orders(self, event: Event, queries: Mapping[str, SwitchedQuery], fleet: Fleet) -> list[SetShed]:
        """Return the changes after a slot that ended."""
        orders = []
        for name, query in queries.items():
            before = self._shares.get(name, 0.0)
            why = self._why_nothing_helps(query, fleet, event.at_s)
            share = self._share(query, fleet, before) if why else 0.0
            if not why:
                self._active.discard(name)
                self._waits_s.pop(name, None)
            if abs(share - before) < _CHANGE * (1 - before) and (share > 0) == (before > 0):
                continue
            self._shares[name] = share
            cause = Cause(event.event_id, f"{name}: {why or 'there is money for a VM, or none is needed'}")
            orders.append(SetShed(query=name, share=share, cause=cause))
        return orders

    def _share(self, query: SwitchedQuery, fleet: Fleet, before: float) -> float:
        slot, settings = query.slot, query.settings
        capacity_per_s = sum(slot.rates.get(lane, 0.0) for lane in (HOME, *fleet.ready))
        if capacity_per_s <= 0:
            return before  # there is no measurement yet
        if slot.latency_s >= settings.switching.send_above_s:
            self._active.add(settings.name)
        elif slot.input_rate <= capacity_per_s:
            self._active.discard(settings.name)
        if settings.name not in self._active:
            return 0.0
        horizon_s = max(settings.latency_qos_s, _HORIZON_SLOTS * self._slot_s)
        return share_to_shed(slot, capacity_per_s, wait_s=self._wait_s(query), horizon_s=horizon_s)

    def _wait_s(self, query: SwitchedQuery) -> float:
        """Return w after this slot: less while the latency is above its target, more while it is below."""
        name, target_s = query.settings.name, query.settings.latency_qos_s
        most_s = _WAIT_MOST * target_s
        error_s = min(target_s, max(-target_s, _AIM * target_s - query.slot.latency_s))
        wait_s = self._waits_s.get(name, most_s) + _LEARN * error_s
        self._waits_s[name] = wait_s = min(most_s, max(0.0, wait_s))
        return wait_s

    def _why_nothing_helps(self, query: SwitchedQuery, fleet: Fleet, at_s: float) -> str:
        """Return which money is missing; empty if money is not the reason."""
        if query.settings.mode == "off" or not query.switchable:
            return ""
        if query.unpaid:
            return query.unpaid
        full = len(fleet.live) >= self.max_vms or bool(fleet.quota.why_no_permit(len(fleet.live)))
        helped = full or any(m.state is VmState.STARTING for m in fleet.live.values())
        if helped or fleet.affords({query.settings.name: query.expected_bytes_per_s}, at_s):
            return ""
        return "the budget has no room for a VM"
