"""Random lives of a scheduler with a simple fleet; each billing period must be wanted, and reserved before."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass
from itertools import count
from typing import Any

from gateway.core.decide.scheduler import Scheduler, SchedulerSettings
from policies.money.billing import BillingTerms
from policies.money.ledger import Budget
from policies.signals import (
    Command,
    DrainVm,
    Event,
    QuerySlot,
    SlotEnded,
    StartVm,
    StopAll,
    TerminateVm,
    VmDrained,
    VmFailed,
    VmGone,
    VmLost,
    VmReady,
)
from policies.switching.query import QuerySettings
from policies.switching.switching import SwitchingSettings

SLOTS = 400
FAULTS = 0.005
PERIOD_S = 20.0
PERIOD_USD = 0.002
KEEP_ABOVE_S = 1.0
GIVEN_UP_S = 120.0
# The scheduler decides two slots before a period begins; a slot is up to a tenth too long.
DECIDED_S = 2.5
TERMS = BillingTerms(period_s=PERIOD_S, minimum_s=PERIOD_S, usd_per_hour=0.36, usd_per_gb_sent=0.0)
THRESHOLDS = SwitchingSettings(
    start_vm_above_s=3.0, send_above_s=2.0, keep_vm_above_s=KEEP_ABOVE_S, keep_vm_bytes=1000, tolerance_s=1.0
)


@dataclass(slots=True)
class Rented:
    """A VM as the cloud sees it."""

    name: str
    since_s: float
    boots_s: float
    drains_s: float
    ready_s: float | None = None
    draining_s: float | None = None
    used_s: float = float("-inf")

    def period(self, at_s: float) -> int:
        """Return the number of this billing period; its very end belongs to it."""
        return max(0, -int(-(at_s - self.since_s - 1e-9) // PERIOD_S) - 1)


class Life:
    """One scheduler, one query and a cloud that obeys; the cloud's own books are compared with the scheduler's."""

    def __init__(self, seed: int) -> None:
        self._draw = draw = random.Random(seed)  # no secret
        periods = draw.choice([None, None, 3.5, 12.0])
        self._budget_usd = None if periods is None else periods * PERIOD_USD
        query = QuerySettings(name="q", switching=THRESHOLDS, latency_qos_s=2.0, share=0.5)
        self._scheduler = Scheduler(
            SchedulerSettings(
                queries=(query,), max_vms=2, billing=TERMS, budget=Budget(self._budget_usd), boot_s=5.0, slot_s=1.0
            )
        )
        self._now_s = 1000.0
        self._stopped_s = float("inf")
        self._ids = count(1)
        self._vms: dict[str, Rented] = {}
        self._reserved_usd: dict[str, float] = {}
        self._latencies_s: deque[float] = deque([0.0], maxlen=4)
        self.renewals = 0

    def live(self) -> None:
        """Pass busy and calm times, then stop."""
        slots = 0
        while slots < SLOTS:
            latency_s, raw_bytes = self._draw.choice([(5.0, 10_000), (2.5, 0), (0.5, 0), (0.5, 0)])
            for _ in range(self._draw.randint(5, 60)):
                self._slot(latency_s, raw_bytes)
                slots += 1
        self._stopped_s = self._now_s
        self._tell(StopAll)
        kept = [vm.name for vm in self._vms.values() if vm.draining_s is None]
        assert not kept, f"{kept} are kept although the gateway stops"
        for _ in range(50):
            self._slot(0.0, 0)
        assert not self._vms, f"{set(self._vms)} still cost money 50 slots after the end"

    def _slot(self, latency_s: float, raw_bytes: int) -> None:
        self._pass_to(self._now_s + self._draw.uniform(0.95, 1.05))
        self._latencies_s.append(latency_s)
        sent = {lane: raw_bytes for lane, _ in self._scheduler.routes["q"][1:]}
        for name in sent:
            self._vms[name].used_s = self._now_s if raw_bytes else self._vms[name].used_s
        slot = QuerySlot(query="q", latency_s=latency_s, raw_bytes=sent, sent_bytes=sent)
        self._tell(SlotEnded, queries=(slot,), wall_s=self._now_s)
        for vm in tuple(self._vms.values()):
            if self._draw.random() < FAULTS:
                kind = VmFailed if vm.ready_s is None else VmLost
                self._tell(kind, vm=vm.name, reason="it broke")
                assert vm.name not in self._vms, f"{vm.name} broke, and is not terminated"
            elif vm.ready_s is None and vm.draining_s is None and self._now_s >= vm.since_s + vm.boots_s:
                vm.ready_s = self._now_s
                self._tell(VmReady, vm=vm.name, billing_since_s=vm.since_s)
            elif vm.draining_s is not None and self._now_s >= vm.draining_s + vm.drains_s:
                self._tell(VmDrained, vm=vm.name)

    def _pass_to(self, at_s: float) -> None:
        before_s, self._now_s = self._now_s, at_s
        for vm in self._vms.values():
            if vm.period(at_s) > vm.period(before_s):
                self._enters_period(vm)
            waits_s = at_s - vm.since_s
            assert vm.ready_s is not None or waits_s < GIVEN_UP_S + 5, f"{vm.name} starts for {waits_s:.0f} s"

    def _enters_period(self, vm: Rented) -> None:
        began_s = vm.since_s + vm.period(self._now_s) * PERIOD_S
        reserved_usd = self._reserved_usd.get(vm.name, 0.0)
        # Of a VM that starts nothing is booked yet: all its periods are still reserved.
        needed_usd = PERIOD_USD * (1 if vm.ready_s is not None else vm.period(self._now_s) + 1)
        assert reserved_usd >= needed_usd - 1e-9, f"{vm.name}: {reserved_usd!r} USD are reserved, not {needed_usd!r}"
        # What was kept just before the gateway stopped is paid for, and may drain in the period that begins.
        assert vm.draining_s is None or began_s - DECIDED_S < self._stopped_s < began_s, (
            f"{vm.name} drains, and enters another period"
        )
        if vm.ready_s is None or vm.ready_s > began_s - DECIDED_S:
            return
        self.renewals += 1
        wanted = max(self._latencies_s) >= KEEP_ABOVE_S or vm.used_s > began_s - PERIOD_S - DECIDED_S
        assert wanted, f"{vm.name} enters another period, and nobody wants it"

    def _tell(self, kind: type[Event], **fields: Any) -> None:
        event = kind(event_id=f"e{next(self._ids)}", at_s=self._now_s, **fields)
        for command in self._scheduler.handle(event):
            self._obey(command)
        self._scheduler.validate()
        ledger = self._scheduler.ledger
        self._reserved_usd = {held.name: sum(part.usd for part in held.parts) for held in ledger.reserved}
        committed_usd = sum(entry.usd for entry in ledger.spent) + sum(self._reserved_usd.values())
        most_usd = self._budget_usd
        assert most_usd is None or committed_usd <= most_usd + 1e-9, f"{committed_usd!r} of {most_usd!r} USD"

    def _obey(self, command: Command) -> None:
        match command:
            case StartVm():
                boots_s = self._draw.choice([2.0, 5.0, 18.5, 30.0, 1e9])
                drains_s = self._draw.choice([0.0, 1.0, 1e9])
                self._vms[command.vm] = Rented(command.vm, self._now_s, boots_s, drains_s)
            case DrainVm():
                self._vms[command.vm].draining_s = self._now_s
            case TerminateVm():
                del self._vms[command.vm]
                self._tell(VmGone, vm=command.vm)
