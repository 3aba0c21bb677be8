"""What the VMs cost, how much of that was used, and how long queries were over their targets: from event logs."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from gateway.core.decide.scheduler import SchedulerSettings
from gateway.views.why.eventlog import LoggedEvent, LogSettings, of_gateway
from policies.money.billing import BillingTerms, Traffic
from policies.signals import HOME, SlotEnded, VmAdopted, VmFailed, VmGone, VmReady
from policies.steering import SettingsChanged

USES: Mapping[str, str] = {
    "worked": "VMs while they worked",
    "booted": "VMs while they booted",
    "idle": "VMs while they were idle",
    "left": "VMs that were paid for longer than they lived",
    "traffic": "traffic",
}
"""What money was spent on, and in words."""


@dataclass(slots=True)
class OverTarget:
    """How long a query was seen, and for how long its latency was above its target, in seconds."""

    target_s: float
    seen_s: float = 0.0
    over_s: float = 0.0


@dataclass(slots=True)
class Spending:
    """A sum over a time.

    Attributes:
        from_wall_s: when it begins, in seconds since 1970; None if nothing happened.
        until_wall_s: when it ends.
        usd: by use, see ``USES``.
        launched: VMs that were ordered.
        queries: by name.
    """

    from_wall_s: float | None = None
    until_wall_s: float = 0.0
    usd: dict[str, float] = field(default_factory=lambda: dict.fromkeys(USES, 0.0))
    launched: int = 0
    queries: dict[str, OverTarget] = field(default_factory=dict)


@dataclass(slots=True)
class _Vm:
    terms: BillingTerms
    since_s: float
    seen_s: float
    """Until when its time is counted."""


class _Account:
    """Adds up the logs of gateways, one after the other.

    Args:
        settings: of the gateway, where its log does not say them any more.
        since_wall_s: what happened before is not counted.
    """

    def __init__(self, settings: SchedulerSettings, since_wall_s: float) -> None:
        self._since_wall_s = since_wall_s
        self.spending = Spending()
        self.begin(settings)

    def begin(self, settings: SchedulerSettings) -> None:
        """Take the settings of a gateway that has started."""
        self._terms = settings.billing
        self._targets_s = {query.name: query.latency_qos_s for query in settings.queries}
        self._slot_s = settings.slot_s
        self._vms: dict[str, _Vm] = {}
        self._launched_s: dict[str, float] = {}
        self._wall_ahead_s = 0.0
        self._slot_ended_s: float | None = None

    def add(self, step: LoggedEvent) -> None:
        """Add an event."""
        for command in map(json.loads, step.commands):
            if command["$"] == "StartVm":
                self._launched_s[command["vm"]] = step.event.at_s
                self.spending.launched += self._counts(step.event.at_s)
        match event := step.event:
            case SlotEnded():
                self._slot(event)
            case VmReady() | VmAdopted():
                terms = self._terms.at_price(event.usd_per_hour)
                self._launched_s.setdefault(event.vm, event.billing_since_s)
                self._vms[event.vm] = _Vm(terms, event.billing_since_s, event.at_s)
                if isinstance(event, VmReady):
                    self._spend("booted", terms.time_usd(event.at_s - event.billing_since_s), event.at_s)
            case VmFailed() if not event.billed:
                self._launched_s.pop(event.vm, None)
            case VmGone() if event.vm in self._launched_s:
                self._gone(event)
            case SettingsChanged():
                self._targets_s = {query.name: query.latency_qos_s for query in event.queries}

    def _gone(self, event: VmGone) -> None:
        since_s = self._launched_s[event.vm]
        vm = self._vms.pop(event.vm, None) or _Vm(self._terms, since_s, since_s)
        booted = vm.seen_s == since_s
        self._spend("booted" if booted else "idle", vm.terms.time_usd(event.at_s - vm.seen_s), event.at_s)
        self._spend("traffic", vm.terms.traffic_usd(event.traffic), event.at_s)
        left_s = vm.terms.boundary_s(vm.since_s, event.at_s) - event.at_s
        self._spend("left", vm.terms.time_usd(left_s), event.at_s)

    def _slot(self, event: SlotEnded) -> None:
        self._wall_ahead_s = 0.0 if event.wall_s is None else event.wall_s - event.at_s
        lasted_s = self._slot_s if self._slot_ended_s is None else event.at_s - self._slot_ended_s
        self._slot_ended_s = event.at_s
        busy_s: defaultdict[str, float] = defaultdict(float)
        for query in event.queries:
            for lane, lane_s in query.busy_s.items():
                busy_s[lane] += lane_s
            self._query(query.query, query.latency_s, lasted_s, event.at_s)
        for name in busy_s.keys() - self._launched_s.keys() - {HOME}:  # launched before what is left of the log
            self._launched_s[name] = event.at_s - lasted_s
            self._vms[name] = _Vm(self._terms, event.at_s - lasted_s, event.at_s - lasted_s)
        for name, vm in self._vms.items():
            counted_s, vm.seen_s = event.at_s - vm.seen_s, event.at_s
            worked_s = min(counted_s, busy_s[name])
            self._spend("worked", vm.terms.time_usd(worked_s), event.at_s)
            self._spend("idle", vm.terms.time_usd(counted_s - worked_s), event.at_s)
            sent_bytes = sum(query.sent_bytes.get(name, 0) for query in event.queries)
            traffic = event.traffic.get(name, Traffic(sent_bytes=sent_bytes))
            self._spend("traffic", vm.terms.traffic_usd(traffic), event.at_s)

    def _query(self, name: str, latency_s: float, lasted_s: float, at_s: float) -> None:
        if name not in self._targets_s or not self._counts(at_s):
            return
        of = self.spending.queries.setdefault(name, OverTarget(self._targets_s[name]))
        of.target_s = self._targets_s[name]
        of.seen_s += lasted_s
        of.over_s += lasted_s if latency_s > of.target_s else 0.0

    def _spend(self, use: str, usd: float, at_s: float) -> None:
        if self._counts(at_s):
            self.spending.usd[use] += usd

    def _counts(self, at_s: float) -> bool:
        wall_s = at_s + self._wall_ahead_s
        if self._slot_ended_s is None or wall_s < self._since_wall_s:
            return False
        if self.spending.from_wall_s is None:
            self.spending.from_wall_s = wall_s
        self.spending.until_wall_s = max(self.spending.until_wall_s, wall_s)
        return True


def summed(settings: SchedulerSettings, logged: Iterable[LogSettings | LoggedEvent], since_wall_s: float) -> Spending:
    """Return what logs of gateways say, from a time on.

    Args:
        settings: of the config, where a log does not have its own any more.
        logged: each gateway's settings and events.
        since_wall_s: in seconds since 1970.

    Raises:
        LogError: a log is that of simulated graphs.
    """
    account = _Account(settings, since_wall_s)
    for each in logged:
        if isinstance(each, LoggedEvent):
            account.add(each)
        else:
            account.begin(of_gateway(each))
    return account.spending


def told_spending(spending: Spending) -> Iterator[str]:
    """Return it as lines of text."""
    if spending.from_wall_s is None:
        yield "nothing is known of that time"
        return
    begin, end = (datetime.fromtimestamp(each, UTC) for each in (spending.from_wall_s, spending.until_wall_s))
    yield f"{begin:%Y-%m-%d %H:%M:%S} to {end:%Y-%m-%d %H:%M:%S} UTC: {spending.launched} VMs launched"
    in_all = sum(spending.usd.values())
    for use, words in USES.items():
        share = f" ({spending.usd[use] / in_all:.0%})" if in_all else ""
        yield f"  {words + ':':<48}{spending.usd[use]:>10.4f} USD{share}"
    yield f"  {'in all:':<48}{in_all:>10.4f} USD"
    for name, of in spending.queries.items():
        part = of.over_s / of.seen_s if of.seen_s else 0.0
        yield (
            f"{name}: above its target of {of.target_s:g} s for {of.over_s / 60:.1f} of {of.seen_s / 60:.1f} minutes "
            f"({part:.1%})"
        )
