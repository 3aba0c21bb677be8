"""Which VM is launched next, for which query and why: by equation 1 after tau, or ahead of it for a policy or a pin."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from policies.demand import Demand
from policies.failures.backoff import Backoff
from policies.signals import Cause, Event, StartVm
from policies.switching.query import SwitchedQuery
from policies.vms.fleet import Fleet
from policies.vms.use import Rest
from policies.vms.vm import VmInput, VmState

Started = tuple[list[StartVm], str]
"""The command, if any, and the state of the next VM as text."""


class Starts:
    """Starts one VM at a time.

    Args:
        fleet: the VMs.
        queries: all queries.
        demand: what they want.
        max_vms: the limit of VMs that live at a time.
        backoff: delays launches after a failed one.
        rest: delays launches after a VM that was of no use.

    Attributes:
        max_vms: the same; may be changed.
    """

    def __init__(
        self,
        fleet: Fleet,
        queries: Mapping[str, SwitchedQuery],
        demand: Demand,
        *,
        max_vms: int,
        backoff: Backoff,
        rest: Rest,
    ) -> None:
        self._fleet = fleet
        self._queries = queries
        self._demand = demand
        self.max_vms = max_vms
        self._backoff = backoff
        self._rest = rest
        self._wishing: list[SwitchedQuery] = []

    @property
    def wishes(self) -> dict[str, float] | None:
        """Return what the queries that want one more VM will send to it, in bytes per second; None: none does."""
        return {query.settings.name: query.expected_bytes_per_s for query in self._wishing} or None

    def next(self, event: Event, stopping: str) -> Started:
        """Start one more VM if a query has needed one for tau, or wants one ahead of time.

        Args:
            event: the slot that ended, or the answer to its questions.
            stopping: why none is started any more; empty if one may be.
        """
        never = stopping or self._why_never()
        there = len(self._fleet.wanted)
        ahead = [] if never else self._demand.ahead(there)
        pinned = [] if never else self._demand.pinned(there)
        if rests := self._rest.why_none(event.at_s):
            ahead = [query for query in ahead if self._demand.insists(query.settings.name)]
        obstacle = never or self._why_not_yet() or rests
        tolerated, note = self._tolerated(event, obstacle, ahead=bool(ahead or pinned))
        self._wishing += [*pinned, *ahead]
        if tolerated:
            first = tolerated[0]
            why = f"{first.settings.name}: L {first.slot.latency_s:.2f} s >= start_vm_above for tolerance"
            return self._start(event, self._asking, why)
        if pinned and (pin := pinned[0].pin) is not None:
            return self._start_ahead(event, pinned, pin.why)
        if not ahead:
            return [], note
        at_once = self._demand.at_once(ahead)
        left_s = 0.0 if at_once else self._demand.cool_down_left_s(there, event.at_s)
        if left_s > 0:
            return (
                [],
                f"the last launch or termination was less than a billing period ago: {left_s:.0f} s of cool-down left",
            )
        payers = at_once or ahead
        return self._start_ahead(event, payers, self._demand.advice[payers[0].settings.name].why)

    def _start_ahead(self, event: Event, payers: Sequence[SwitchedQuery], why: str) -> Started:
        """Start a VM before equation 1 does, because of ``why`` for the first of the queries."""
        first = payers[0].settings.name
        if self._fleet.next.state is VmState.ABSENT:
            self._fleet.step(self._fleet.next, VmInput.AHEAD, event, f"{first} wants it ahead of time")
        return self._start(event, payers, f"{first}: {why}")

    @property
    def _asking(self) -> list[SwitchedQuery]:
        return [query for name, query in self._queries.items() if self._demand.asks(name) and not query.whole_on]

    def _tolerated(self, event: Event, obstacle: str, *, ahead: bool) -> tuple[list[SwitchedQuery], str]:
        """Return the queries for which equation 1 starts a VM, and the state of the next VM.

        Args:
            event: the slot that ended, or the answer to its questions.
            obstacle: why it starts none now.
            ahead: whether a VM is also wanted ahead of time.
        """
        asking = [] if obstacle else self._asking
        self._wishing = list(asking)
        for query in self._queries.values():
            if query not in asking:
                query.high_since_s = None
            elif query.high_since_s is None:
                query.high_since_s = event.at_s
        waiting = self._fleet.next
        if waiting.state is VmState.WAITING and not asking and not ahead:
            self._fleet.step(waiting, VmInput.CALM, event, obstacle)
        if not asking:
            return [], obstacle
        if waiting.state is VmState.ABSENT:
            self._fleet.step(waiting, VmInput.HIGH, event, f"{asking[0].settings.name} asks")
        ready, boot_s = len(self._fleet.ready), self._fleet.boot(event.at_s).expected_s
        tolerated = [
            query
            for query in asking
            if query.vm_is_due(event.at_s - self._demand.patience_s(query.settings.name, ready, boot_s))
        ]
        return tolerated, f"{waiting.name} is launched if L stays there"

    def _start(self, event: Event, payers: Collection[SwitchedQuery], why: str) -> Started:
        if (wait_s := self._backoff.retry_at_s - event.at_s) > 0:
            return [], f"the next launch is tried in {wait_s:.0f} s, as the last one failed"
        if no_permit := self._fleet.quota.why_no_permit(len(self._fleet.live)):
            return [], no_permit
        expected_bytes_per_s = {query.settings.name: query.expected_bytes_per_s for query in payers}
        started = self._fleet.start(event, expected_bytes_per_s, why)
        if started is None:
            return [], self._fleet.ledger.frozen or self._fleet.quota.why_no_money(self._fleet.wall_s(event.at_s))
        self._demand.started(len(self._fleet.wanted), event.at_s)
        for query in self._queries.values():
            query.high_since_s = None  # tau begins again for the VM after this one
        return [StartVm(vm=started.name, cause=Cause(event.event_id, why))], f"{started.name} is launched"

    def _why_never(self) -> str:
        """Return what forbids another VM for any query; empty if nothing does."""
        if len(self._fleet.live) >= self.max_vms:
            return f"max_vms = {self.max_vms} is reached"
        return ""

    def _why_not_yet(self) -> str:
        """Return what equation 1 waits for: one VM after the other; empty if nothing."""
        for name in self._fleet.wanted:
            state = self._fleet.live[name].state
            if state is not VmState.SENDING:
                return f"{name} is {state} and comes first"
        return ""
