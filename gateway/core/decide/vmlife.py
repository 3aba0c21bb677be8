"""The life of a VM from the scheduler's view: its transitions at events, and which VMs equation 1 keeps."""

from __future__ import annotations

import math
from collections.abc import Mapping

from policies.demand import Demand
from policies.failures.backoff import Backoff
from policies.signals import (
    Cause,
    Command,
    DrainVm,
    Event,
    TerminateVm,
    VmDrained,
    VmFailed,
    VmGone,
    VmLost,
    VmReady,
    VmReclaimed,
)
from policies.steering import VmStopOrdered
from policies.switching.query import SwitchedQuery
from policies.switching.ranking import Ranking
from policies.vms.fleet import Fleet
from policies.vms.machine import VmAccount
from policies.vms.use import Rest
from policies.vms.vm import READY_STATES, WANTED_STATES, VmInput, VmState

VmEvent = VmReady | VmFailed | VmLost | VmReclaimed | VmDrained | VmGone

_BOOT_PATIENCE = 6.0
_BOOT_PATIENCE_LEAST_S = 120.0
_ORDER_PATIENCE_S = 300.0
"""Time for the order before the boot, which a provider may throttle, and for the connection after it."""


def boot_patience_s(boot_s: float, boot_within_s: float) -> float:
    """Return how long a VM may be starting before it is terminated.

    Args:
        boot_s: how long it is expected to take.
        boot_within_s: when the cloud itself abandons a VM; 0 if it never does.
    """
    own_s = max(_BOOT_PATIENCE_LEAST_S, _BOOT_PATIENCE * boot_s)
    return max(own_s, boot_within_s + _ORDER_PATIENCE_S) if boot_within_s else own_s


class VmLife:
    """Moves VMs through Figure 4 and returns the commands.

    Args:
        fleet: the VMs.
        queries: all queries.
        demand: what they want.
        ranking: notified of VMs that became ready.
        backoff: notified of launches that failed or succeeded.
        rest: notified of VMs that were of use, or of none.
        slot_s: length of a slot.
        patience_s: how long a VM may be starting.
    """

    def __init__(
        self,
        fleet: Fleet,
        queries: Mapping[str, SwitchedQuery],
        demand: Demand,
        *,
        ranking: Ranking,
        backoff: Backoff,
        rest: Rest,
        slot_s: float,
        patience_s: float,
    ) -> None:
        self._fleet = fleet
        self._queries = queries
        self._demand = demand
        self._ranking = ranking
        self._backoff = backoff
        self._rest = rest
        self._slot_s = slot_s
        self._patience_s = patience_s
        self._unbilled: set[str] = set()

    def on_event(self, event: VmEvent, machine: VmAccount) -> tuple[str, list[Command]]:
        """Apply an event to a VM; return what happened, as text, and the commands for the VM.

        Raises:
            ImpossibleTransitionError: the event cannot happen to this VM in its state.
        """
        before = machine.state
        why = self._happened(event, machine)
        cause = Cause(event.event_id, why)
        commands: list[Command] = []
        if machine.state is not before:
            if isinstance(event, VmReclaimed) and machine.state is VmState.DRAINING:
                commands.append(DrainVm(vm=machine.name, cause=cause))
            if machine.state in (VmState.ENDING, VmState.FAILED, VmState.LOST):
                commands.append(TerminateVm(vm=machine.name, cause=cause))
        return why, commands

    def _happened(self, event: VmEvent, machine: VmAccount) -> str:
        name, starting = machine.name, machine.state is VmState.STARTING
        match event:
            case VmReady():
                self._fleet.became_ready(machine, event)
                if machine.state in READY_STATES:
                    self._ranking.vm_ready()
                    self._backoff.succeeded()
                return ""
            case VmDrained():
                self._fleet.step(machine, VmInput.DRAINED, event)
                return f"{name} is drained"
            case VmFailed():
                self._fleet.step(machine, VmInput.FAILED, event, event.reason)
                if starting:
                    if not event.billed:
                        self._unbilled.add(name)
                    self._backoff.failed(event.at_s, event.after_s)
                return f"launch of {name} failed: {event.reason}"
            case VmLost():
                self._fleet.step(machine, VmInput.LOST, event, event.reason)
                if starting:
                    self._backoff.failed(event.at_s)
                return f"{name} was lost: {event.reason}"
            case VmReclaimed():
                why = f"the provider reclaims {name}"
                self._fleet.step(machine, VmInput.RECLAIMED, event, why)
                machine.ends_s = min(machine.ends_s, event.ends_s)
                return why
            case VmGone():
                self._fleet.gone(machine, event, billed=name not in self._unbilled)
                self._unbilled.discard(name)
                return f"{name} was terminated"

    def stop_ordered(self, event: VmStopOrdered, machine: VmAccount) -> tuple[str, list[Command]]:
        """Stop a VM because an operator said so; return the reason and the commands; none if it ends already."""
        why = f"an operator {'stopped' if event.at_once else 'drained'} {machine.name}"
        commands: list[Command] = []
        if machine.state in WANTED_STATES:
            commands = [self._stop(machine, event, why)]
        if event.at_once and machine.state is VmState.DRAINING:
            commands = [self._end_overdue(machine, event, why)]
        return why, commands

    def stop_all(self, event: Event, why: str) -> list[Command]:
        """Terminate every VM; return the commands."""
        if self._fleet.next.state is VmState.WAITING:
            self._fleet.step(self._fleet.next, VmInput.CALM, event, why)
        wanted = [self._fleet.live[name] for name in self._fleet.wanted]
        return [self._stop(machine, event, why) for machine in wanted]

    # ----------------------------------------------------------------------------------------- equation 1: how many VMs

    def judge(self, event: Event, *, paused: bool = False) -> list[Command]:
        """Terminate VMs that are overdue, and keep or stop each VM whose billing period ends.

        Args:
            event: the slot that ended, or the answer to its questions.
            paused: keep each VM that the budget allows.
        """
        commands: list[Command] = []
        for machine in tuple(self._fleet.live.values()):
            waited_s = event.at_s - machine.since_s
            if machine.state is VmState.STARTING and waited_s > self._patience_s:
                why = f"{machine.name} was not ready after {waited_s:.0f} s"
                commands.append(self._end_overdue(machine, event, why))
                self._backoff.failed(event.at_s)
            elif machine.state in WANTED_STATES and (why := self._why_stop(machine, event, paused)):
                commands.append(self._stop(machine, event, why))
            # Also a VM that was just stopped: it may have become ready so late that no slot is left to drain it.
            if machine.state is VmState.DRAINING and self._fleet.must_end(machine, event.at_s):
                why = f"{machine.name} would enter the next billing period, or be reclaimed"
                commands.append(self._end_overdue(machine, event, why))
        return commands

    def _why_stop(self, machine: VmAccount, event: Event, paused: bool) -> str:
        """Return why a VM is terminated; empty if it is kept."""
        movable = (query for query in self._queries.values() if not query.why_home)
        forecast_bytes = {q.settings.name: q.expected_bytes_per_s * self._slot_s for q in movable}
        if not self._fleet.within_budget(machine, event.at_s, forecast_bytes):
            return "the budget is spent"
        if machine.state is VmState.STARTING:
            return ""
        if self._fleet.decision_is_due(machine, event.at_s, 0.0) and self._fleet.quota.lacks(len(self._fleet.wanted)):
            return "its billing period ends, and the quota has no permit for it any more"
        slots = [query.slot for query in self._queries.values()]
        drain_s = sum(s.open_events.get(machine.name, 0) / (s.rates.get(machine.name) or math.inf) for s in slots)
        if not self._fleet.decision_is_due(machine, event.at_s, drain_s):
            return ""
        useless = "" if paused else self._why_useless(machine)
        others = len(self._fleet.wanted) - 1
        keepers = [
            name
            for name in (machine.payers if paused else self._queries)
            if paused or self._demand.keeps(name, others, machine.block_raw_bytes[name], event.at_s)
        ]
        if useless:
            keepers = [name for name in keepers if self._demand.insists(name)]
        if useless and not keepers:
            self._rest.useless(machine.name, useless, event.at_s)
            self._demand.ended(others, event.at_s)
            return f"its billing period ends, and it was of no use: {useless}"
        if machine.is_used:
            self._rest.useful()
        elif not keepers and not any(self._demand.foresees(name) for name in self._queries):
            self._rest.idle(machine.name, event.at_s)
        if not keepers:
            self._demand.ended(others, event.at_s)
            return f"its billing period ends, {self._demand.why_not_kept()}"
        if self._fleet.renew(machine, event, keepers):
            return ""
        return self._fleet.ledger.frozen or "its billing period ends and the next one does not fit into the budget"

    def _why_useless(self, machine: VmAccount) -> str:
        """Return why the events on a VM gained nothing in the block that ends; empty if they did, or there were none.

        The events of a query with state are not at home meanwhile: its VM is of no use if it is slower than home was.
        """
        slower = {q.stay.why_slower(machine.name) for q in self._queries.values() if q.whole} - {""}
        moved = [q for name, q in self._queries.items() if (q.whole or q.divided) and machine.block_raw_bytes[name]]
        if any(not q.stay.why_slower(machine.name) for q in moved):
            return ""
        return min(slower, default="") or machine.block_use.why_none

    def _stop(self, machine: VmAccount, event: Event, why: str) -> Command:
        self._fleet.step(machine, VmInput.STOP, event, why)
        cause = Cause(event.event_id, f"{machine.name}: {why}")
        if machine.state is VmState.DRAINING:
            return DrainVm(vm=machine.name, cause=cause)
        return TerminateVm(vm=machine.name, cause=cause)

    def _end_overdue(self, machine: VmAccount, event: Event, why: str) -> Command:
        self._fleet.step(machine, VmInput.OVERDUE, event, why)
        return TerminateVm(vm=machine.name, cause=Cause(event.event_id, why))
