"""The scheduler: events in, commands out (ESM, section 4). No I/O, no await, no clock of its own.

It has one entry point: only ``Scheduler.handle`` changes it. Its settings and the events so far determine what it does:
a new scheduler that gets the events of a log returns the same commands (``spillway why --replay``). Everything else
that it returns is a value that cannot change it.

It combines the policies: equation 1 decides how many VMs live (``vmlife`` and ``starts``), equation 2 and the ranking
decide whose events go to them (``routes``), and the ledger decides whether there is money for it. Thresholds are
evaluated only at the end of a slot; to every other event it reacts only as far as it must.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType

from gateway.core.decide.equations import billed_periods
from gateway.core.decide.routes import Routes
from gateway.core.decide.starts import Starts
from gateway.core.decide.verdict import decisions
from gateway.core.decide.vmlife import VmEvent, VmLife, boot_patience_s
from policies.advice import Site
from policies.demand import Demand
from policies.failures.backoff import Backoff
from policies.money.billing import BillingTerms
from policies.money.ledger import Budget, LedgerState, Money
from policies.quota.requests import Allowance, Needs
from policies.signals import (
    BootEstimate,
    BootsRestored,
    BudgetFrozen,
    Cause,
    Command,
    Decision,
    DrainAll,
    Event,
    Fitted,
    LedgerRestored,
    QueryKeptOff,
    QueryOpened,
    QuotaGranted,
    SlotAnswered,
    SlotEnded,
    StopAll,
    TerminateVm,
    VmAdopted,
    VmDrained,
    VmFailed,
    VmGone,
    VmLost,
    VmReady,
    VmReclaimed,
)
from policies.steering import DecisionsPaused, DecisionsResumed, QueryPinned, SettingsChanged, VmStopOrdered
from policies.switching.pinning import Pin
from policies.switching.query import QuerySettings, Route, SwitchedQuery
from policies.switching.ranking import Ranking
from policies.switching.shedding import Shedder
from policies.vms.boots import slow_boots
from policies.vms.fleet import Fleet, FleetTotals
from policies.vms.freezing import FreezeWindow, why_frozen
from policies.vms.machine import VmLease
from policies.vms.quotaneeds import quota_needs
from policies.vms.story import StoryLine
from policies.vms.use import Rest
from policies.vms.vm import VmState


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerSettings:
    """The scheduler's settings.

    Attributes:
        queries: all queries of the gateway.
        max_vms: the limit of VMs that live at a time; 0 forbids the cloud.
        billing: the cloud's prices.
        budget: the limits of spending.
        boot_s: expected time from ``StartVm`` to ``VmReady`` until boots were seen; a launch that takes six times as
            long, and at least 2 minutes, failed.
        slot_s: length of a slot.
        boot_within_s: when the cloud itself abandons a VM; a VM may be starting for this time plus 5 minutes.
        sheds: whether events are shed that would be late because the budget is spent.
        freezes: when no VM is launched or given back.
        quota: whether VMs and money are limited by a quota, of which ``QuotaGranted`` grants a part.
    """

    queries: tuple[QuerySettings, ...]
    max_vms: int
    billing: BillingTerms
    budget: Budget
    boot_s: float
    slot_s: float
    sheds: bool = False
    boot_within_s: float = 0.0
    freezes: tuple[FreezeWindow, ...] = ()
    quota: bool = False

    @property
    def site(self) -> Site:
        """Return the settings that the policies of all queries share."""
        return Site(max_vms=self.max_vms, terms=self.billing, boot_s=self.boot_s, slot_s=self.slot_s)


class Scheduler:
    """Decides when VMs are launched and terminated, and which share of each query goes to them."""

    def __init__(self, settings: SchedulerSettings) -> None:
        self._settings = settings
        self._patience_s = boot_patience_s(settings.boot_s, settings.boot_within_s)
        self._queries = {query.name: SwitchedQuery(query, settings.slot_s) for query in settings.queries}
        self._fleet = Fleet(settings.billing, settings.budget, settings.slot_s, settings.boot_s)
        if settings.quota:
            self._fleet.quota.grant(Allowance())
        self._shedder = Shedder(settings.slot_s, settings.max_vms)
        self._demand = Demand(self._queries, settings.site)
        tolerance_s = max((query.switching.tolerance_s for query in settings.queries), default=0.0)
        backoff = Backoff(max(tolerance_s, settings.slot_s))
        rest = Rest(max(settings.boot_s, settings.billing.first_block_s))
        self._starts = Starts(
            self._fleet, self._queries, self._demand, max_vms=settings.max_vms, backoff=backoff, rest=rest
        )
        ranking = Ranking(settings.slot_s)
        self._life = VmLife(
            self._fleet,
            self._queries,
            self._demand,
            ranking=ranking,
            backoff=backoff,
            rest=rest,
            slot_s=settings.slot_s,
            patience_s=self._patience_s,
        )
        self._ranking = ranking
        self._routes = Routes(self._queries, self._fleet, ranking)
        self._stopping = ""
        self._live_most = settings.max_vms
        self._paused_until_s: float | None = None
        self._decisions: tuple[Decision, ...] = ()
        self._put_into_words: Callable[[], tuple[Decision, ...]] | None = None

    # ------------------------------------------------------------------------------------------------------- looking

    @property
    def routes(self) -> Mapping[str, Route]:
        """Return the route of each query."""
        return MappingProxyType({name: query.route for name, query in self._queries.items()})

    @property
    def queries(self) -> Mapping[str, SwitchedQuery]:
        """Return what is known of each query."""
        return MappingProxyType(self._queries)

    @property
    def vms(self) -> Mapping[str, VmState]:
        """Return the state of each live VM, in the order of their start."""
        return MappingProxyType({machine.name: machine.state for machine in self._fleet.live.values()})

    @property
    def leases(self) -> tuple[VmLease, ...]:
        """Return until when each live VM is paid for, in the order of their start."""
        return tuple(machine.lease for machine in self._fleet.live.values())

    def boot(self, at_s: float) -> BootEstimate:
        """Return how long a VM that is ordered now is expected to take until it serves."""
        return self._fleet.boot(at_s)

    @property
    def boots_s(self) -> tuple[float, ...]:
        """Return the latest boots that were seen, in seconds, the oldest first."""
        return self._fleet.boots.seen_s

    @property
    def pins(self) -> Mapping[str, Pin]:
        """Return what an operator has pinned, by query."""
        return MappingProxyType({name: query.pin for name, query in self._queries.items() if query.pin is not None})

    @property
    def paused_until_s(self) -> float | None:
        """Return until when an operator paused all decisions; None if they are not paused."""
        return self._paused_until_s

    @property
    def last_decisions(self) -> tuple[Decision, ...]:
        """Return the decision about each query when the last slot ended; its text is composed on request."""
        if self._put_into_words is not None:
            self._decisions, self._put_into_words = self._put_into_words(), None
        return self._decisions

    def totals(self, at_s: float) -> FleetTotals:
        """Return VMs started and stopped, time billed and money spent so far."""
        return self._fleet.totals(at_s)

    @property
    def ledger(self) -> LedgerState:
        """Return the money spent and reserved: everything that must outlive this process."""
        return self._fleet.ledger.state

    def money(self, at_s: float) -> Money:
        """Return the state of the budget."""
        ledger, quota = self._fleet.ledger, self._fleet.quota.allowance
        forecast = self._fleet.forecast(at_s)
        return Money(ledger.budget, ledger.state, ledger.overrun_usd, ledger.frozen, forecast, quota)

    def needs(self, at_s: float) -> Needs:
        """Return what is needed of the quota now."""
        another = None if self._stopping else self._starts.wishes
        return quota_needs(self._fleet, self._settings.billing, self._settings.slot_s, at_s, another)

    def story(self, vm: str) -> tuple[StoryLine, ...]:
        """Return what happened to a VM and why, oldest first; the last lines of the last VMs are kept."""
        return self._fleet.story(vm)

    # ------------------------------------------------------------------------------------------------------ deciding

    def handle(self, event: Event) -> list[Command]:
        """Return the commands to carry out now, in this order.

        Raises:
            ImpossibleTransitionError: the event cannot happen to this VM in its state.
            ValueError: the event names an unknown query or VM, or comes at an impossible time.
        """
        if isinstance(event, SlotEnded):
            return self._on_slot(event)
        self._compose_decisions()
        match event:
            case SlotAnswered():
                self._demand.answered(event.turn, event.answers)
                fits = [] if self._stopping else self._demand.fits(event.event_id, event.answers)
                return [*self._judge(event), *fits]
            case VmReady() | VmFailed() | VmLost() | VmReclaimed() | VmDrained() | VmGone() | VmStopOrdered():
                return self._on_vm(event)
            case VmAdopted():
                why = self._fleet.adopt(event, self._queries, self._settings.max_vms, self._stopping)
                return [TerminateVm(vm=event.vm, cause=Cause(event.event_id, why))] if why else []
            case SettingsChanged():
                self._change(event)
                return []
            case QueryPinned():
                return self._routes.pin(self._query(event.query), event)
            case QueryKeptOff():
                return self._routes.keep_off(self._query(event.query), event)
            case StopAll():
                self._stopping = why = "the gateway stops"
                commands = self._life.stop_all(event, why)
                return [*self._routes.leave_unready(event, why), *commands]
            case _:
                self._take_in(event)
                return []

    def _take_in(self, event: Event) -> None:
        """Take in an event that needs no command."""
        match event:
            case QueryOpened():
                query = self._query(event.query)
                query.opened(switchable=event.switchable, reason=event.reason, whole=event.whole, divided=event.divided)
            case Fitted():
                self._demand.fitted(event)
            case LedgerRestored():
                self._fleet.ledger.restore(event.state)
            case BootsRestored():
                self._fleet.boots.restore(event.boots_s)
            case BudgetFrozen():
                self._fleet.ledger.frozen = event.why
            case QuotaGranted():
                self._fleet.quota.grant(event.allowance)
            case DecisionsPaused():
                self._paused_until_s = event.until_s
            case DecisionsResumed():
                self._paused_until_s = None
            case DrainAll():
                self._stopping = self._stopping or "the gateway drains"
            case _:
                raise ValueError(f"the scheduler does not know events like {event!r}")

    def _change(self, event: SettingsChanged) -> None:
        """Use other settings; the next slot is the first that is judged by them."""
        before, now = dict(self._queries), {settings.name: settings for settings in event.queries}
        self._settings = replace(
            self._settings,
            queries=event.queries,
            max_vms=event.max_vms,
            budget=event.budget,
            sheds=event.sheds,
            freezes=event.freezes,
        )
        # All parts share this dict.
        self._queries.clear()
        for name, settings in now.items():
            self._queries[name] = before.get(name) or SwitchedQuery(settings, self._settings.slot_s)
            self._queries[name].adjust(settings)
        for name in before.keys() - now.keys():
            self._ranking.forget(name)
            self._shedder.forget(name)
        self._demand.change(self._settings.site)
        self._fleet.ledger.budget = event.budget
        self._starts.max_vms = self._shedder.max_vms = event.max_vms
        # VMs that live stay, even if there are more now than may be.
        self._live_most = max(event.max_vms, len(self._fleet.live))
        self._routes.mark_sending(event)

    def _on_vm(self, event: VmEvent | VmStopOrdered) -> list[Command]:
        machine = self._fleet.live.get(event.vm)
        if machine is None:
            if not self._fleet.knows(event.vm):
                raise ValueError(f"event {event.event_id} names {event.vm!r}, which was never started")
            return []  # a link's end may be noticed after its VM was terminated
        if isinstance(event, VmStopOrdered):
            why, commands = self._life.stop_ordered(event, machine)
        else:
            why, commands = self._life.on_event(event, machine)
        return [*self._routes.leave_unready(event, why), *commands]

    def _on_slot(self, event: SlotEnded) -> list[Command]:
        """Take in the measurements; evaluate the slot, or first ask the policies."""
        if self._demand.unanswered:
            raise ValueError(
                f"event {event.event_id} ends a slot before the policies have answered for the previous one"
            )
        if self._demand.plans:
            self._compose_decisions()
        for slot in event.queries:
            self._query(slot.query).observe(slot)
        self._fleet.meter(event, {name: query.home_alone_s for name, query in self._queries.items()})
        if self._demand.plans:
            return [self._demand.ask(event, self._fleet, learn=not self._stopping)]
        return self._judge(event)

    def _judge(self, event: SlotEnded | SlotAnswered) -> list[Command]:
        """Make the decisions of a slot: which VMs are kept or started, which queries go to the cloud, what is shed."""
        vm_before = bool(self._fleet.wanted)
        paused = self._end_what_is_over(event.at_s)
        halted = "an operator paused all decisions" if paused else self._frozen(event.at_s)
        self._check_who_can_pay(event)
        periods = billed_periods(self._fleet.live.values())
        ends = self._life.judge(event, paused=bool(halted))
        refused = {} if paused else self._routes.rank(event, vm_before=vm_before)
        routes = self._routes.hold(event) if paused else self._routes.share_out(event)
        starts, vm_note = self._starts.next(event, self._stopping or halted)
        slow = slow_boots(self._fleet.live.values(), event.at_s, self._settings.boot_s, self._patience_s)
        self._put_into_words = partial(
            decisions,
            self._queries,
            self._demand,
            event.at_s,
            refused=refused,
            vm_note=vm_note,
            vms=self.vms,
            slow=slow,
            periods=periods,
            site=self._settings.site,
            boot=self._fleet.boot(event.at_s),
            halted=halted,
        )
        sheds = self._shedder.orders(event, self._queries, self._fleet) if self._settings.sheds else []
        return [*routes, *ends, *starts, *sheds]

    def _end_what_is_over(self, at_s: float) -> bool:
        """End pins and the pause when their time is over; return whether decisions are paused now."""
        for query in self._queries.values():
            if query.pin is not None and at_s >= query.pin.until_s:
                query.pin = None
        if self._paused_until_s is not None and (at_s >= self._paused_until_s or self._stopping):
            self._paused_until_s = None
        return self._paused_until_s is not None

    def _frozen(self, at_s: float) -> str:
        """Return until when no VM is launched or given back, in words; empty if they may be."""
        return "" if self._stopping else why_frozen(self._settings.freezes, self._fleet.wall_s(at_s))

    def _compose_decisions(self) -> None:
        """Compose the text of the last decisions before anything changes: they describe the time before."""
        _ = self.last_decisions

    def _check_who_can_pay(self, event: Event) -> None:
        if self._settings.budget.usd_per_query_day is None:
            return
        for name, query in self._queries.items():
            forecast_bytes = query.expected_bytes_per_s * self._settings.slot_s
            can_pay = self._fleet.can_pay(name, event.at_s, forecast_bytes)
            query.unpaid = "" if can_pay else "usd_per_query_day is spent"

    # ------------------------------------------------------------------------------------------------------ checking

    def _query(self, name: str) -> SwitchedQuery:
        try:
            return self._queries[name]
        except KeyError:
            raise ValueError(f"query {name!r} does not exist; the queries are {', '.join(self._queries)}") from None

    def validate(self) -> None:
        """Check all invariants; for tests and the simulator.

        Raises:
            AssertionError: one is broken.
        """
        self._fleet.validate(self._live_most)
        self._routes.validate()
