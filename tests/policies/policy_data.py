"""Small helpers that make settings and events, and a scheduler that is checked after each event."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

from gateway.core.decide.scheduler import Scheduler, SchedulerSettings
from policies.money.billing import BillingTerms
from policies.money.ledger import Budget, Ledger
from policies.signals import (
    HOME,
    Command,
    DrainVm,
    Event,
    QuerySlot,
    SetRoute,
    SlotEnded,
    StartVm,
    TerminateVm,
    VmDrained,
    VmReady,
)
from policies.switching.query import QuerySettings
from policies.switching.switching import SwitchingSettings
from policies.vms.vm import VmState

SWITCHING = SwitchingSettings(
    start_vm_above_s=3.0, send_above_s=2.0, keep_vm_above_s=1.0, keep_vm_bytes=1000, tolerance_s=1.0
)
TERMS = BillingTerms(period_s=20.0, minimum_s=20.0, usd_per_hour=0.36, usd_per_gb_sent=0.09)


def query_settings(name: str = "q", **changes: Any) -> QuerySettings:
    return QuerySettings(**{"name": name, "switching": SWITCHING, "latency_qos_s": 2.0, "share": 0.5, **changes})


def scheduler_settings(*queries: QuerySettings, **changes: Any) -> SchedulerSettings:
    defaults: dict[str, Any] = {
        "queries": queries or (query_settings(),),
        "max_vms": 2,
        "billing": TERMS,
        "budget": Budget(),
        "boot_s": 5.0,
        "slot_s": 1.0,
    }
    return SchedulerSettings(**{**defaults, **changes})


def plain(command: Command) -> tuple[object, ...]:
    """Return a command without its cause, short enough for a table."""
    match command:
        case StartVm():
            return ("start", command.vm)
        case DrainVm():
            return ("drain", command.vm)
        case TerminateVm():
            return ("terminate", command.vm)
        case SetRoute():
            return ("route", command.query, dict(command.shares))
        case _:
            raise AssertionError(f"no test writes {command} into a table")


class Checked:
    """A scheduler whose invariants are checked after each event, on a clock of whole slots."""

    def __init__(self, settings: SchedulerSettings | None = None) -> None:
        self.scheduler = Scheduler(settings or scheduler_settings())
        self.now_s = 100.0
        self._ids = count(1)

    def tell(self, kind: type[Event], **fields: Any) -> list[tuple[object, ...]]:
        event = kind(event_id=f"e{next(self._ids)}", at_s=self.now_s, **fields)
        commands = self.scheduler.handle(event)
        self.scheduler.validate()
        assert all(command.cause.event_id == event.event_id and command.cause.why for command in commands)
        return [plain(command) for command in commands]

    def slots(self, *slots: QuerySlot) -> list[tuple[object, ...]]:
        self.now_s += 1.0
        return self.tell(SlotEnded, queries=slots)

    def slot(self, latency_s: float, **measured: Any) -> list[tuple[object, ...]]:
        return self.slots(QuerySlot(query="q", latency_s=latency_s, **measured))


def ledger_of(checked: Checked) -> Ledger:
    """The ledger as it is now, for reading."""
    money = checked.scheduler.money(checked.now_s)
    return Ledger(money.budget, money.ledger)


HALF = ("route", "q", {HOME: 0.5, "vm-1": 0.5})
ALL_HOME = ("route", "q", {HOME: 1.0})


def starting(**changes: Any) -> Checked:
    """A scheduler whose vm-1 is starting: L >= L_s at 101 and 102 s, tau = 1 s."""
    checked = Checked(scheduler_settings(**changes))
    checked.slot(3.0)
    assert checked.slot(3.0) == [("start", "vm-1")]
    return checked


def idle(**changes: Any) -> Checked:
    """The same, ready and idle; billed since 102 s, so the period ends at 122 s and keep or stop is due at 120 s."""
    checked = starting(**changes)
    assert checked.tell(VmReady, vm="vm-1", billing_since_s=checked.now_s) == []
    return checked


def sending(**changes: Any) -> Checked:
    checked = idle(**changes)
    assert checked.slot(2.5) == [HALF]
    return checked


def draining(**changes: Any) -> Checked:
    """The same, terminated at 120 s."""
    checked = sending(**changes)
    assert checked.slot(0.5) == [ALL_HOME]
    until(checked, 119.0, 0.5)
    assert checked.slot(0.5) == [("drain", "vm-1")]
    return checked


def ending(**changes: Any) -> Checked:
    checked = draining(**changes)
    assert checked.tell(VmDrained, vm="vm-1") == [("terminate", "vm-1")]
    return checked


def until(checked: Checked, at_s: float, latency_s: float) -> None:
    """Pass slots that must change nothing."""
    while checked.now_s < at_s:
        assert checked.slot(latency_s) == []


def states(checked: Checked) -> Sequence[VmState]:
    return list(checked.scheduler.vms.values())
