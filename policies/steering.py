"""The events by which an operator overrules the scheduler, or changes its settings. The policies do not see them."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from policies.money.ledger import Budget
from policies.signals import Event
from policies.switching.query import QuerySettings
from policies.vms.freezing import FreezeWindow


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryPinned(Event):
    """A fixed part of a query's events goes to VMs from now on, whatever the thresholds and the ranking say.

    Attributes:
        query: its name.
        share: the part in [0, 1]; 0 keeps the query at home, None ends the pin.
        until_s: when the pin ends by itself.
    """

    query: str
    share: float | None
    until_s: float = inf


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionsPaused(Event):
    """VMs and routes stay as they are until ``until_s``, as far as the budget allows.

    No VM is launched, a VM whose billing period ends is kept, and no share changes. Failures of VMs, the budget, pins
    and orders to stop a VM still count.
    """

    until_s: float = inf


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionsResumed(Event):
    """The end of ``DecisionsPaused``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VmStopOrdered(Event):
    """A VM is no longer wanted.

    Attributes:
        vm: its name.
        at_once: whether it is terminated now, and its open runs are dispatched elsewhere; otherwise it finishes them.
    """

    vm: str
    at_once: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsChanged(Event):
    """Queries, the budget or the limit of VMs are others from now on.

    A query that was there before keeps its route, its pin and what is known of it. Live VMs beyond ``max_vms`` are kept
    until they are not wanted any more.

    Attributes:
        queries: all queries.
        max_vms: the limit of VMs that live at a time.
        budget: the limits of spending.
        sheds: whether events are shed that would be late because the budget is spent.
        freezes: when no VM is launched or given back.
    """

    queries: tuple[QuerySettings, ...]
    max_vms: int
    budget: Budget
    sheds: bool = False
    freezes: tuple[FreezeWindow, ...] = ()
