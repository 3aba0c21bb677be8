"""The rented VMs: where each is in its life, what it was sent in its billing period, and what it costs.

Nothing is decided here but what money allows; the scheduler says who starts and who stops.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from policies.billing import BillingTerms, Budget, Ledger, decision_due_s
from policies.signals import Event, QuerySlot
from policies.vm import LIVE_STATES, READY_STATES, WANTED_STATES, VmInput, VmState, step

_LATE = 0.1
"""A slot may end late by this part of its length; a VM is given back in time nevertheless."""

_STORY_LINES = 200
_STORIES = 100


@dataclass(frozen=True, slots=True)
class StoryLine:
    """One thing that happened to a VM, and why."""

    at_s: float
    event_id: str
    happened: VmInput
    state: VmState
    why: str


@dataclass(slots=True)
class Machine:
    """One VM.

    Attributes:
        name: also the name of its lane.
        state: where it is in its life.
        since_s: when it came into this state.
        billing_since_s: when the cloud began to bill it; its start, until the cloud says better.
        block_since_s: when the billed block began that ``block_end_s`` ends.
        block_end_s: when the next period begins.
        block_raw_bytes: D by query: raw bytes sent since the last keep-or-stop decision.
        block_sent_bytes: bytes over the WAN since then.
        sent_bytes: bytes over the WAN in its whole life.
        slot_sent_bytes: bytes over the WAN in the last slot.
        settled_usd: what was booked for it.
    """

    name: str
    state: VmState = VmState.ABSENT
    since_s: float = 0.0
    billing_since_s: float = 0.0
    block_since_s: float = 0.0
    block_end_s: float = 0.0
    block_raw_bytes: Counter[str] = field(default_factory=Counter)
    block_sent_bytes: int = 0
    sent_bytes: int = 0
    slot_sent_bytes: int = 0
    settled_usd: float = 0.0


@dataclass(frozen=True, slots=True)
class FleetTotals:
    """Sums over all VMs for the report; ``billed_s`` and ``usd`` of live ones count up to the end of their block."""

    started: int
    stopped: int
    billed_s: float
    usd: float


class Fleet:
    """The VMs and their ledger."""

    def __init__(self, terms: BillingTerms, budget: Budget, slot_s: float) -> None:
        self._terms = terms
        self._slot_s = slot_s
        self.ledger = Ledger(budget)
        self.live: dict[str, Machine] = {}
        self.next = Machine("vm-1")
        self._started = self._stopped = 0
        self._gone_billed_s = self._gone_usd = 0.0
        self._stories: dict[str, deque[StoryLine]] = {}

    # ------------------------------------------------------------------------------------------------------- looking

    @property
    def ready(self) -> tuple[str, ...]:
        """Return the VMs that can take events, in the order of their start."""
        return tuple(m.name for m in self.live.values() if m.state in READY_STATES)

    @property
    def wanted(self) -> tuple[str, ...]:
        """Return the VMs for which phi_VM of equation 1 is 1."""
        return tuple(m.name for m in self.live.values() if m.state in WANTED_STATES)

    def knows(self, name: str) -> bool:
        """Return whether a VM of this name was ever started, as far back as stories are kept."""
        return name in self.live or name in self._stories

    def story(self, name: str) -> tuple[StoryLine, ...]:
        """Return what happened to a VM, oldest first; the last 200 lines of the last 100 VMs are kept."""
        return tuple(self._stories.get(name, ()))

    def totals(self, at_s: float) -> FleetTotals:
        """Return the sums over all VMs up to now."""
        billed_s = sum(self._terms.billed_s(m.billing_since_s, at_s) for m in self.live.values())
        usd = sum(m.settled_usd + self._owed_usd(m, at_s) for m in self.live.values())
        return FleetTotals(self._started, self._stopped, self._gone_billed_s + billed_s, self._gone_usd + usd)

    # -------------------------------------------------------------------------------------------------------- living

    def step(self, machine: Machine, happened: VmInput, event: Event, why: str = "") -> None:
        """Take one edge of Figure 4 and note it in the VM's story.

        Raises:
            ImpossibleTransitionError: there is no such edge.
        """
        machine.state = step(machine.state, happened)
        machine.since_s = event.at_s
        if machine.name not in self._stories and len(self._stories) >= _STORIES:
            del self._stories[next(name for name in self._stories if name not in self.live)]
        lines = self._stories.setdefault(machine.name, deque(maxlen=_STORY_LINES))
        lines.append(StoryLine(event.at_s, event.event_id, happened, machine.state, why))

    def start(self, event: Event, expected_bytes_per_s: float, why: str) -> Machine | None:
        """Start the waiting VM if its first block with the expected egress fits into the budget."""
        machine, block_s = self.next, self._terms.first_block_s
        usd = self._terms.time_usd(block_s) + self._terms.egress_usd(expected_bytes_per_s * block_s)
        if not self.ledger.reserve(machine.name, usd, event.at_s):
            return None
        self.step(machine, VmInput.TOLERATED, event, why)
        self._bill_from(machine, event.at_s, event.at_s)
        self.live[machine.name] = machine
        self._started += 1
        self.next = Machine(f"vm-{self._started + 1}")
        return machine

    def became_ready(self, machine: Machine, event: Event, billing_since_s: float) -> None:
        """Note that a VM can take events and since when it is really billed."""
        was_starting = machine.state is VmState.STARTING
        self.step(machine, VmInput.READY, event)
        if was_starting:
            self._bill_from(machine, billing_since_s, event.at_s)

    def gone(self, machine: Machine, event: Event, *, billed: bool) -> None:
        """Book a VM's last block and forget it."""
        self.step(machine, VmInput.GONE, event)
        del self.live[machine.name]
        owed_usd = self._owed_usd(machine, event.at_s) if billed else 0.0
        self.ledger.settle(machine.name, owed_usd, event.at_s)
        self._stopped += 1
        self._gone_usd += machine.settled_usd + owed_usd
        self._gone_billed_s += self._terms.billed_s(machine.billing_since_s, event.at_s) if billed else 0.0

    def mark_sending(self, routed: Iterable[str], event: Event) -> None:
        """Make the ready VMs idle or sending as the routes say."""
        routed = frozenset(routed)
        for machine in self.live.values():
            if machine.state is VmState.IDLE and machine.name in routed:
                self.step(machine, VmInput.SEND, event)
            elif machine.state is VmState.SENDING and machine.name not in routed:
                self.step(machine, VmInput.HOLD, event)

    # --------------------------------------------------------------------------------------------------------- money

    def meter(self, slots: Iterable[QuerySlot]) -> None:
        """Count what each VM was sent in the slot that ended."""
        for machine in self.live.values():
            machine.slot_sent_bytes = 0
        for slot in slots:
            for name, machine in self.live.items():
                machine.block_raw_bytes[slot.query] += slot.raw_bytes.get(name, 0)
                machine.slot_sent_bytes += slot.sent_bytes.get(name, 0)
        for machine in self.live.values():
            machine.block_sent_bytes += machine.slot_sent_bytes
            machine.sent_bytes += machine.slot_sent_bytes

    def within_budget(self, machine: Machine, at_s: float, forecast_bytes: float) -> bool:
        """Return whether what a VM costs, and one more slot of egress, is reserved; reserves more if it can.

        What was announced is never passed; a slot that sends more than its forecast and than the slot before is only
        seen when it is over. Nobody decides about the next period of a VM that is still starting, so it is looked at
        two slots ahead.

        Args:
            machine: the VM.
            at_s: now.
            forecast_bytes: what may cross the WAN in the next slot.
        """
        ahead_s = 2 * self._slot_s if machine.state is VmState.STARTING else 0.0
        slot_usd = self._terms.egress_usd(max(machine.slot_sent_bytes, forecast_bytes))
        needed_usd = self._owed_usd(machine, at_s + ahead_s) + slot_usd
        if needed_usd <= self.ledger.reserved_for(machine.name):
            return True
        return self.ledger.reserve(machine.name, needed_usd, at_s)

    def decision_is_due(self, machine: Machine, at_s: float, drain_s: float) -> bool:
        """Return whether keep or stop must be decided now."""
        block_s = machine.block_end_s - machine.block_since_s
        due_s = decision_due_s(machine.block_end_s, slot_s=self._slot_s, drain_s=drain_s, block_s=block_s)
        return at_s >= due_s - 2 * _LATE * self._slot_s

    def must_end(self, machine: Machine, at_s: float) -> bool:
        """Return whether a draining VM would enter the next period if it were not ended now."""
        return at_s >= machine.block_end_s - (1 + _LATE) * self._slot_s

    def renew(self, machine: Machine, event: Event, why: str) -> bool:
        """Book the block that ends and keep the VM if the next one, with as much egress again, fits into the budget."""
        owed_usd = self._owed_usd(machine, event.at_s)
        self.ledger.settle(machine.name, owed_usd, event.at_s)
        machine.settled_usd += owed_usd
        end_s = self._terms.boundary_s(machine.billing_since_s, machine.block_end_s + 4 * self._slot_s)
        next_s, last_s = end_s - machine.block_end_s, machine.block_end_s - machine.block_since_s
        egress_usd = self._terms.egress_usd(machine.block_sent_bytes * next_s / last_s)
        if not self.ledger.reserve(machine.name, self._terms.time_usd(next_s) + egress_usd, event.at_s):
            return False
        machine.block_since_s, machine.block_end_s = machine.block_end_s, end_s
        machine.block_raw_bytes.clear()
        machine.block_sent_bytes = 0
        self.step(machine, VmInput.KEEP, event, why)
        return True

    def _bill_from(self, machine: Machine, billing_since_s: float, at_s: float) -> None:
        machine.billing_since_s = machine.block_since_s = billing_since_s
        machine.block_end_s = self._terms.boundary_s(billing_since_s, max(at_s, billing_since_s))

    def _owed_usd(self, machine: Machine, at_s: float) -> float:
        """Return what a VM costs up to the end of the block that ``at_s`` falls into, less what was booked."""
        used_until_s = max(at_s, machine.billing_since_s)
        billed_usd = self._terms.time_usd(self._terms.billed_s(machine.billing_since_s, used_until_s))
        return max(0.0, billed_usd + self._terms.egress_usd(machine.sent_bytes) - machine.settled_usd)

    def validate(self, max_vms: int) -> None:
        """Check all invariants of the VMs and the money.

        Raises:
            AssertionError: one is broken.
        """
        assert len(self.live) <= max_vms, f"{len(self.live)} VMs live, at most {max_vms} allowed"
        assert all(m.state in LIVE_STATES for m in self.live.values()), f"a VM that is not live: {self.live}"
        assert self.next.state in (VmState.ABSENT, VmState.WAITING), f"the next VM is {self.next.state} already"
        assert self.ledger.spent_usd >= 0, f"negative cost: {self.ledger.spent_usd}"
        assert self.ledger.reserved_usd >= 0, f"negative reservation: {self.ledger.reserved_usd}"
