"""The rented VMs: the state of each, its traffic in its billing period, and its cost.

Only the budget is decided here; the scheduler decides which VMs start and stop.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from policies.money.billing import BillingTerms, decision_due_s
from policies.money.ledger import Budget, Ledger, LimitForecast
from policies.signals import BootEstimate, Event, SlotEnded, VmAdopted, VmGone, VmReady
from policies.vms.boots import BootHistory
from policies.vms.machine import VmAccount, VmBill, costs
from policies.vms.quotapart import QuotaPart
from policies.vms.story import StoryLine
from policies.vms.use import BlockUse
from policies.vms.vm import LIVE_STATES, READY_STATES, WANTED_STATES, VmInput, VmState, step

_LATE = 0.1
"""A slot may end late by this part of its length; VMs are still terminated in time."""
_SAME_S = 1e-6
_SAME_USD = 1e-9
_STORY_LINES = 200
_STORIES = 100


@dataclass(frozen=True, slots=True)
class FleetTotals:
    """Sums over all VMs for the report; ``billed_s`` and ``usd`` of live ones count up to the end of their block.

    ``bills`` are those of the last hundred VMs and of the live ones.
    """

    started: int
    stopped: int
    billed_s: float
    usd: float
    used_s: float = 0.0
    sent_bytes: int = 0
    received_bytes: int = 0
    bills: tuple[VmBill, ...] = ()


class Fleet:
    """The VMs and their ledger.

    Args:
        terms: the cloud's prices.
        budget: the limits of spending.
        slot_s: length of a slot.
        boot_s: the configured time from an order until a VM serves.

    Attributes:
        boots: the latest boots.
        quota: what may be used of the quota, if there is one.
    """

    def __init__(self, terms: BillingTerms, budget: Budget, slot_s: float, boot_s: float) -> None:
        self._terms = terms
        self.boots = BootHistory(boot_s)
        self._slot_s = slot_s
        self.ledger = Ledger(budget)
        self.quota = QuotaPart(self.ledger)
        self.live: dict[str, VmAccount] = {}
        self.next = VmAccount("vm-1", terms)
        self._started = self._stopped = 0
        self._gone = FleetTotals(0, 0, 0.0, 0.0)
        self._bills: deque[VmBill] = deque(maxlen=_STORIES)
        self._stories: dict[str, deque[StoryLine]] = {}
        self._wall_ahead_s = 0.0

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
        """Return whether a VM of this name was ever started; names without a story any more are unknown."""
        return name in self.live or name in self._stories

    def story(self, name: str) -> tuple[StoryLine, ...]:
        """Return the story of a VM, oldest first; the last 200 lines of the last 100 VMs are kept."""
        return tuple(self._stories.get(name, ()))

    def totals(self, at_s: float) -> FleetTotals:
        """Return the sums over all VMs up to now."""
        live = [machine.bill(at_s) for machine in self.live.values()]
        return FleetTotals(
            self._started,
            self._stopped,
            self._gone.billed_s + math.fsum(bill.billed_s for bill in live),
            self._gone.usd + math.fsum(bill.usd for bill in live),
            self._gone.used_s + math.fsum(bill.used_s for bill in live),
            self._gone.sent_bytes + sum(bill.sent_bytes for bill in live),
            self._gone.received_bytes + sum(bill.received_bytes for bill in live),
            (*self._bills, *live),
        )

    def boot(self, at_s: float) -> BootEstimate:
        """Return how long a VM that is ordered now will take until it serves."""
        starting = (machine for machine in self.live.values() if machine.state is VmState.STARTING)
        return self.boots.estimate(at_s - machine.since_s for machine in starting)

    def wall_s(self, at_s: float) -> float:
        """Return seconds since 1970 at ``at_s``, derived from the last slot."""
        return at_s + self._wall_ahead_s

    def forecast(self, at_s: float) -> LimitForecast | None:
        """Return the limit of the budget that will be reached at the present rate, and when; None if none will."""
        usd_per_s: defaultdict[str, float] = defaultdict(float)
        ahead_usd: defaultdict[str, float] = defaultdict(float)
        for machine in self.live.values():
            rates = {query: usd / self._slot_s for query, usd in machine.slot_traffic_usd.items()}
            for query, usd in costs(machine.terms.time_usd(1.0), machine.payers, rates).items():
                usd_per_s[query] += usd
            left_s = max(0.0, machine.block_end_s - at_s)
            for query, usd in costs(machine.terms.time_usd(left_s), machine.payers, {}).items():
                ahead_usd[query] += usd
        wall_s = self.wall_s(at_s)
        hits = [self.ledger.query_forecast(query, wall_s, usd, ahead_usd[query]) for query, usd in usd_per_s.items()]
        hits.append(self.ledger.forecast(wall_s, math.fsum(usd_per_s.values()), math.fsum(ahead_usd.values())))
        return min((hit for hit in hits if hit is not None), key=lambda hit: hit.in_s, default=None)

    # -------------------------------------------------------------------------------------------------------- living

    def step(self, machine: VmAccount, happened: VmInput, event: Event, why: str = "") -> None:
        """Follow one transition of Figure 4 and note it in the VM's story.

        Raises:
            ImpossibleTransitionError: there is no such transition.
        """
        before, machine.state = machine.state, step(machine.state, happened)
        if before is VmState.STARTING:
            self.boots.ended(happened, event.at_s - machine.since_s)
        machine.since_s = event.at_s
        machine.note(happened, event.at_s)
        if machine.name not in self._stories and len(self._stories) >= _STORIES:
            del self._stories[next(name for name in self._stories if name not in self.live)]
        lines = self._stories.setdefault(machine.name, deque(maxlen=_STORY_LINES))
        lines.append(StoryLine(event.at_s, event.event_id, happened, machine.state, why))

    def start(self, event: Event, expected_bytes_per_s: Mapping[str, float], why: str) -> VmAccount | None:
        """Start the waiting VM if its first block with the expected egress fits into the budget.

        Args:
            event: the event that causes the start.
            expected_bytes_per_s: what the queries that ask for it will send; those that can pay their part pay.
            why: the reason, for its story.
        """
        machine, block_s = self.next, self._terms.first_block_s
        payers, usd = self._first_block(expected_bytes_per_s, event.at_s)
        if not payers or not self._reserve(machine, usd, event.at_s, event.at_s + block_s):
            return None
        machine.payers = payers
        self.step(machine, VmInput.TOLERATED, event, why)
        self._bill_from(machine, event.at_s, event.at_s)
        self.live[machine.name] = machine
        self._started += 1
        self.next = VmAccount(f"vm-{self._started + 1}", self._terms)
        return machine

    def affords(self, expected_bytes_per_s: Mapping[str, float], at_s: float) -> bool:
        """Return whether the first block of one more VM, with the expected egress, would fit into the budget now."""
        payers, usd = self._first_block(expected_bytes_per_s, at_s)
        left_usd = self.ledger.left_usd(self.wall_s(at_s), granted=self.quota.is_spent)
        return bool(payers) and math.fsum(usd.values()) <= left_usd + _SAME_USD

    def became_ready(self, machine: VmAccount, event: VmReady) -> None:
        """Note that a VM can take events, since when it is billed, and at what price."""
        was_starting = machine.state is VmState.STARTING
        self.step(machine, VmInput.READY, event)
        if was_starting:
            machine.terms = self._terms.at_price(event.usd_per_hour)
            self._bill_from(machine, event.billing_since_s, event.at_s)

    def adopt(self, event: VmAdopted, queries: Iterable[str], max_vms: int, obstacle: str = "") -> str:
        """Continue with a VM of an earlier gateway; return why not, or nothing.

        Everything that the earlier gateway had reserved for it was booked when the books were opened; its cost since
        then is reserved now.

        Args:
            event: what is known about it.
            queries: the queries that pay for it from now on.
            max_vms: the limit of VMs that live at a time.
            obstacle: why none is wanted now; empty if one is.
        """
        machine = VmAccount(event.vm, self._terms.at_price(event.usd_per_hour), payers=tuple(queries))
        self._bill_from(machine, event.billing_since_s, event.at_s)
        machine.settled_s = machine.billed_s(event.booked_s)
        machine.settled_usd = machine.terms.time_usd(machine.settled_s)
        why = obstacle or (f"max_vms = {max_vms} is reached" if len(self.live) >= max_vms else "")
        why = why or self.quota.why_no_permit(len(self.live))
        if not why and not self._reserve(machine, machine.owed_usd(event.at_s), event.at_s, machine.block_end_s):
            why = self.ledger.frozen or "the budget has no room for it"
        self.step(machine, VmInput.ADOPTED, event)
        if why:
            self.step(machine, VmInput.GONE, event, why)
            return why
        self.live[machine.name] = machine
        self._started += 1
        return ""

    def gone(self, machine: VmAccount, event: VmGone, *, billed: bool) -> None:
        """Book a VM's last block and forget the VM."""
        machine.meter({}, event.traffic)
        self.step(machine, VmInput.GONE, event)
        del self.live[machine.name]
        bill = machine.bill(event.at_s, billed=billed)
        owed_usd = machine.settle(event.at_s) if billed else {}
        self.ledger.settle(machine.name, owed_usd, self.wall_s(event.at_s))
        self._stopped += 1
        self._bills.append(bill)
        gone = self._gone
        self._gone = FleetTotals(
            0,
            0,
            gone.billed_s + bill.billed_s,
            gone.usd + bill.usd,
            gone.used_s + bill.used_s,
            gone.sent_bytes + bill.sent_bytes,
            gone.received_bytes + bill.received_bytes,
        )

    def mark_sending(self, routed: Iterable[str], event: Event) -> None:
        """Mark the ready VMs as idle or sending, according to the routes."""
        routed = frozenset(routed)
        for machine in self.live.values():
            if machine.state is VmState.IDLE and machine.name in routed:
                self.step(machine, VmInput.SEND, event)
            elif machine.state is VmState.SENDING and machine.name not in routed:
                self.step(machine, VmInput.HOLD, event)

    # --------------------------------------------------------------------------------------------------------- money

    def meter(self, event: SlotEnded, home_alone_s: Mapping[str, float]) -> None:
        """Count each VM's traffic in the slot that ended; ``home_alone_s``: how long events would wait, by query."""
        self._wall_ahead_s = 0.0 if event.wall_s is None else event.wall_s - event.at_s
        for name, machine in self.live.items():
            for slot in event.queries:
                if machine.is_warm(event.at_s):
                    machine.block_use.observe(name, slot, home_alone_s.get(slot.query, 0.0))
                if name in slot.raw_bytes:
                    machine.block_raw_bytes[slot.query] += slot.raw_bytes[name]
            payload_bytes = {slot.query: slot.sent_bytes[name] for slot in event.queries if name in slot.sent_bytes}
            machine.meter(payload_bytes, event.traffic.get(name))

    def within_budget(self, machine: VmAccount, at_s: float, forecast_bytes: Mapping[str, float]) -> bool:
        """Return whether the cost of a VM, and one more slot of egress, is reserved; reserves more if possible.

        The announced limit is never exceeded by plan; a slot that sends more than its forecast and than the slot before
        is only noticed when it is over. No decision is made about the next period of a VM that is still starting, so
        its budget is checked two slots ahead.

        Args:
            machine: the VM.
            at_s: now.
            forecast_bytes: by query, what may cross the WAN in the next slot.
        """
        needed_usd = self._needed_usd(machine, at_s, forecast_bytes)
        if self._enters_a_block(machine, at_s) and not self._payers_can_pay(machine, at_s):
            return False
        return self._reserve(machine, needed_usd, at_s, machine.block_end_s)

    def can_pay(self, query: str, at_s: float, forecast_bytes: float) -> bool:
        """Return whether a query's own limit of the day has room for one more slot of its egress to every VM.

        Args:
            query: its name.
            at_s: now.
            forecast_bytes: what may cross the WAN in the next slot.
        """
        needed_usd = 0.0
        for machine in self.live.values():
            owes_usd = self._needed_usd(machine, at_s, {query: forecast_bytes})[query]
            needed_usd += max(0.0, owes_usd - self.ledger.reserved_for(machine.name, query))
        left_usd = self.ledger.query_left_usd(query, self.wall_s(at_s))
        return needed_usd <= left_usd + _SAME_USD if self.live else left_usd > 0

    def decision_is_due(self, machine: VmAccount, at_s: float, drain_s: float) -> bool:
        """Return whether keep or stop must be decided now."""
        block_s = machine.block_end_s - machine.block_since_s
        due_s = decision_due_s(machine.block_end_s, slot_s=self._slot_s, drain_s=drain_s, block_s=block_s)
        return at_s >= due_s - 2 * _LATE * self._slot_s

    def must_end(self, machine: VmAccount, at_s: float) -> bool:
        """Return whether a draining VM would enter the next period, or be reclaimed, unless it is terminated now."""
        return at_s >= min(machine.block_end_s, machine.ends_s) - (1 + _LATE) * self._slot_s

    def renew(self, machine: VmAccount, event: Event, keepers: Iterable[str]) -> bool:
        """Book the block that ends and keep the VM if the next one, with the same egress again, fits into the budget.

        Args:
            machine: the VM.
            event: the event that causes it.
            keepers: the queries that want it; those that can pay their part of its time pay.
        """
        end_s = self._terms.boundary_s(machine.billing_since_s, machine.block_end_s + 4 * self._slot_s)
        next_s, last_s = end_s - machine.block_end_s, machine.block_end_s - machine.block_since_s
        again = {query: usd * next_s / last_s for query, usd in machine.block_traffic_usd.items()}
        payers, next_usd = self._payers(keepers, machine.terms.time_usd(next_s), again, machine.block_end_s)
        both_usd = machine.owed_usd(event.at_s)
        for query, usd in next_usd.items():
            both_usd[query] = both_usd.get(query, 0.0) + usd
        if not payers or not self._reserve(machine, both_usd, machine.block_end_s, end_s):
            return False
        owed_usd = machine.settle(event.at_s)
        self.ledger.settle(machine.name, owed_usd, self.wall_s(event.at_s), keep_usd=next_usd)
        machine.payers = payers
        machine.block_since_s, machine.block_end_s = machine.block_end_s, end_s
        machine.block_raw_bytes.clear()
        machine.block_use = BlockUse()
        self.step(machine, VmInput.KEEP, event, f"kept for {', '.join(keepers)}")
        return True

    def _first_block(
        self, expected_bytes_per_s: Mapping[str, float], at_s: float
    ) -> tuple[tuple[str, ...], dict[str, float]]:
        """Return which queries pay for a first block, and what each pays for its time and the expected egress."""
        block_s = self._terms.first_block_s
        usd = {query: self._terms.egress_usd(rate * block_s) for query, rate in expected_bytes_per_s.items()}
        return self._payers(usd, self._terms.time_usd(block_s), usd, at_s)

    def _payers(
        self, wanted_by: Iterable[str], time_usd: float, traffic_usd: Mapping[str, float], at_s: float
    ) -> tuple[tuple[str, ...], dict[str, float]]:
        """Return which of ``wanted_by`` pay for a block, and the cost of each query's time and traffic.

        A query whose own limit has no room for its part pays nothing, and sends nothing.
        """
        payers, traffic_usd = tuple(wanted_by), dict(traffic_usd)
        while payers:
            usd = costs(time_usd, payers, traffic_usd)
            poor = {query for query in usd if usd[query] > self.ledger.query_left_usd(query, self.wall_s(at_s))}
            if not poor:
                return payers, usd
            payers = tuple(query for query in payers if query not in poor)
            traffic_usd = {query: part_usd for query, part_usd in traffic_usd.items() if query not in poor}
        return (), {}

    def _enters_a_block(self, machine: VmAccount, at_s: float) -> bool:
        """Return whether a VM enters a block without a decision."""
        end_s = machine.billing_since_s + machine.billed_s(at_s + self._ahead_s(machine))
        return end_s > machine.block_end_s + _SAME_S

    def _payers_can_pay(self, machine: VmAccount, at_s: float) -> bool:
        owed_usd = machine.owed_usd(at_s + self._ahead_s(machine))
        return all(
            owed_usd[payer] - self.ledger.reserved_for(machine.name, payer)
            <= self.ledger.query_left_usd(payer, self.wall_s(at_s)) + _SAME_USD
            for payer in machine.payers
        )

    def _ahead_s(self, machine: VmAccount) -> float:
        return 2 * self._slot_s if machine.state is VmState.STARTING else 0.0

    def _needed_usd(self, machine: VmAccount, at_s: float, forecast_bytes: Mapping[str, float]) -> dict[str, float]:
        needed_usd = machine.owed_usd(at_s + self._ahead_s(machine))
        most_usd = {query: self._terms.egress_usd(expected) for query, expected in forecast_bytes.items()}
        for query, usd in machine.slot_traffic_usd.items():
            most_usd[query] = max(usd, most_usd.get(query, 0.0))
        for query, usd in most_usd.items():
            needed_usd[query] = needed_usd.get(query, 0.0) + usd
        return needed_usd

    def _reserve(self, machine: VmAccount, usd: Mapping[str, float], at_s: float, until_s: float) -> bool:
        return self.ledger.reserve(machine.name, usd, self.wall_s(at_s), self.wall_s(until_s))

    def _bill_from(self, machine: VmAccount, billing_since_s: float, at_s: float) -> None:
        machine.billing_since_s = machine.block_since_s = billing_since_s
        machine.block_end_s = self._terms.boundary_s(billing_since_s, max(at_s, billing_since_s))

    def validate(self, max_vms: int) -> None:
        """Check all invariants of the VMs and the money.

        Raises:
            AssertionError: one is broken.
        """
        assert len(self.live) <= max_vms, f"{len(self.live)} VMs live, at most {max_vms} allowed"
        assert all(m.state in LIVE_STATES for m in self.live.values()), f"a VM that is not live: {self.live}"
        assert self.next.state in (VmState.ABSENT, VmState.WAITING), f"the next VM is {self.next.state} already"
        assert self.ledger.reserved_usd >= 0, f"negative reservation: {self.ledger.reserved_usd}"
