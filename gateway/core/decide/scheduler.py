"""The scheduler: events in, commands out (ESM, section 4). No I/O, no await, no clock of its own.

It joins the policies: equation 1 says how many VMs live, equation 2 and the ranking whose events go to them, the share
controllers how many, the ledger whether it can be paid. Thresholds are judged on ``SlotEnded`` only; every other event
is answered with what it makes unavoidable.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from gateway.core.decide.starts import Starts
from gateway.core.decide.verdict import decisions
from policies.advice import Question, Site
from policies.demand import Demand
from policies.failures.backoff import Backoff
from policies.money.billing import BillingTerms
from policies.money.ledger import Budget
from policies.signals import (
    HOME,
    Cause,
    Command,
    Decision,
    DrainAll,
    DrainVm,
    Event,
    Fitted,
    QueryKeptOff,
    QueryOpened,
    SetRoute,
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
from policies.switching.query import ALL_HOME, Query, QuerySettings, Route
from policies.switching.ranking import Candidate, Ranking
from policies.switching.sharing import split
from policies.switching.shedding import Shedder
from policies.vms.fleet import Fleet, FleetTotals, StoryLine
from policies.vms.machine import Machine
from policies.vms.vm import READY_STATES, WANTED_STATES, VmInput, VmState

_BOOT_PATIENCE = 6.0
_BOOT_PATIENCE_LEAST_S = 120.0
_ORDER_PATIENCE_S = 300.0
"""For the order before the boot, which a provider may throttle, and for linking up after it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerSettings:
    """What the scheduler decides by.

    Attributes:
        queries: all queries of the gateway.
        max_vms: at most so many VMs live at a time; 0 forbids the cloud.
        billing: what the cloud charges.
        budget: what may be spent.
        boot_s: expected time from ``StartVm`` to ``VmReady``; one that takes six times as long, and 2 minutes, failed.
        slot_s: length of a slot.
        boot_within_s: when the cloud itself gives a machine up; a VM may be starting for so long and 5 minutes.
        sheds: whether events are shed that would be too late because the budget is spent.
    """

    queries: tuple[QuerySettings, ...]
    max_vms: int
    billing: BillingTerms
    budget: Budget
    boot_s: float
    slot_s: float
    sheds: bool = False
    boot_within_s: float = 0.0


class Scheduler:
    """Decides when VMs are started and given back and which share of each query goes to them."""

    def __init__(self, settings: SchedulerSettings) -> None:
        self._settings = settings
        self._queries = {query.name: Query(query, settings.slot_s) for query in settings.queries}
        self._fleet = Fleet(settings.billing, settings.budget, settings.slot_s)
        self._ranking = Ranking(settings.slot_s)
        self._shedder = Shedder(settings.slot_s, settings.max_vms)
        self._demand = Demand(
            self._queries,
            Site(max_vms=settings.max_vms, terms=settings.billing, boot_s=settings.boot_s, slot_s=settings.slot_s),
        )
        tolerance_s = max((query.switching.tolerance_s for query in settings.queries), default=0.0)
        self._backoff = Backoff(max(tolerance_s, settings.slot_s))
        self._starts = Starts(self._fleet, self._queries, self._demand, max_vms=settings.max_vms, backoff=self._backoff)
        self._unbilled: set[str] = set()
        self._stopping = ""
        self._decisions: tuple[Decision, ...] = ()
        self._put_into_words: Callable[[], tuple[Decision, ...]] | None = None

    # ------------------------------------------------------------------------------------------------------- looking

    @property
    def routes(self) -> Mapping[str, Route]:
        """Return the route of each query."""
        return {name: query.route for name, query in self._queries.items()}

    @property
    def vms(self) -> Mapping[str, VmState]:
        """Return the state of each live VM, in the order of their start."""
        return {machine.name: machine.state for machine in self._fleet.live.values()}

    @property
    def last_decisions(self) -> tuple[Decision, ...]:
        """Return what was decided for each query when the last slot ended; put into words when it is asked for."""
        if self._put_into_words is not None:
            self._decisions, self._put_into_words = self._put_into_words(), None
        return self._decisions

    def totals(self, at_s: float) -> FleetTotals:
        """Return VMs started and stopped, time billed and money spent so far."""
        return self._fleet.totals(at_s)

    @property
    def fleet(self) -> Fleet:
        """Return the VMs' books; for looking only."""
        return self._fleet

    def story(self, vm: str) -> tuple[StoryLine, ...]:
        """Return what happened to a VM and why, oldest first; the last lines of the last VMs are kept."""
        return self._fleet.story(vm)

    # ------------------------------------------------------------------------------------------------------ deciding

    def questions(self, event: SlotEnded) -> tuple[Question, ...]:
        """Take in what was measured in a slot; return what the policies are to be asked of it, wherever nobody waits.

        Their answers belong into the event that is then handled. It is asked here and now if it has none.
        """
        for slot in event.queries:
            self._query(slot.query).observe(slot)
        self._fleet.meter(event)
        return self._demand.questions(event, self._fleet, learn=not self._stopping)

    def handle(self, event: Event) -> list[Command]:
        """Return what is to be done now, in this order.

        Raises:
            ImpossibleTransitionError: the event cannot happen to this VM in its state.
            ValueError: the event names a query or a VM that does not exist.
        """
        if isinstance(event, SlotEnded):
            return self._on_slot(event)
        _ = self.last_decisions  # words that nobody asked for yet are about the time before this event
        match event:
            case Fitted():
                self._demand.fitted(event)
                return []
            case QueryOpened():
                self._query(event.query).opened(switchable=event.switchable, reason=event.reason)
                return []
            case QueryKeptOff():
                query = self._query(event.query)
                query.kept_off[event.vm] = event.reason
                commands = self._reroute(query, event, f"{event.vm} cannot run it: {event.reason}")
                self._mark_sending(event)
                return commands
            case DrainAll():
                self._stopping = self._stopping or "the gateway drains"
                return []
            case StopAll():
                return self._on_stop_all(event)
            case VmAdopted():
                why = self._fleet.adopt(event, self._queries, self._settings.max_vms, self._stopping)
                return [TerminateVm(vm=event.vm, cause=Cause(event.event_id, why))] if why else []
            case VmReady() | VmFailed() | VmLost() | VmReclaimed() | VmDrained() | VmGone():
                machine = self._fleet.live.get(event.vm)
                if machine is not None:
                    return self._on_vm(event, machine)
                if not self._fleet.knows(event.vm):
                    raise ValueError(f"event {event.event_id} names {event.vm!r}, which was never started")
                return []  # a link may be seen to close after its VM was taken back
            case _:
                raise ValueError(f"the scheduler does not know events like {event!r}")

    def _on_vm(
        self, event: VmReady | VmFailed | VmLost | VmReclaimed | VmDrained | VmGone, machine: Machine
    ) -> list[Command]:
        before = machine.state
        commands: list[Command] = []
        why = ""
        match event:
            case VmReady():
                self._fleet.became_ready(machine, event)
                if machine.state in READY_STATES:
                    self._ranking.vm_ready()
                    self._backoff.succeeded()
            case VmDrained():
                self._fleet.step(machine, VmInput.DRAINED, event)
                why = f"{machine.name} is drained"
            case VmFailed():
                self._fleet.step(machine, VmInput.FAILED, event, event.reason)
                if before is VmState.STARTING:
                    if not event.billed:
                        self._unbilled.add(machine.name)
                    self._backoff.failed(event.at_s, event.after_s)
                why = f"launch of {machine.name} failed: {event.reason}"
            case VmLost():
                self._fleet.step(machine, VmInput.LOST, event, event.reason)
                if before is VmState.STARTING:
                    self._backoff.failed(event.at_s)
                why = f"{machine.name} was lost: {event.reason}"
            case VmReclaimed():
                why = f"the cloud takes {machine.name} back"
                self._fleet.step(machine, VmInput.RECLAIMED, event, why)
                machine.ends_s = min(machine.ends_s, event.ends_s)
                if machine.state is VmState.DRAINING and before is not VmState.DRAINING:
                    commands.append(DrainVm(vm=machine.name, cause=Cause(event.event_id, why)))
            case VmGone():
                self._fleet.gone(machine, event, billed=machine.name not in self._unbilled)
                self._unbilled.discard(machine.name)
                why = f"{machine.name} was taken back"
        if machine.state is not before and machine.state in (VmState.ENDING, VmState.FAILED, VmState.LOST):
            commands.append(TerminateVm(vm=machine.name, cause=Cause(event.event_id, why)))
        return [*self._leave_unready_lanes(event, why), *commands]

    def _on_stop_all(self, event: StopAll) -> list[Command]:
        self._stopping = why = "the gateway stops"
        if self._fleet.next.state is VmState.WAITING:
            self._fleet.step(self._fleet.next, VmInput.CALM, event, why)
        wanted = [self._fleet.live[name] for name in self._fleet.wanted]
        commands = [self._stop(machine, event, why) for machine in wanted]
        return [*self._leave_unready_lanes(event, why), *commands]

    def _on_slot(self, event: SlotEnded) -> list[Command]:
        vm_before = bool(self._fleet.wanted)
        answers = event.answers
        self._demand.answered([each.answer() for each in self.questions(event)] if answers is None else answers)
        self._see_who_can_pay(event)
        ends = self._judge_vms(event)
        refused = self._rank(event, vm_before)
        routes = self._share_out(event)
        starts, vm_note = self._starts.next(event, self._stopping)
        slow = self._fleet.slow_boots(event.at_s, self._settings.boot_s, self._boot_patience_s)
        with_vms = partial(decisions, vm_note=vm_note, vms=self.vms, slow=slow)
        self._put_into_words = partial(with_vms, self._queries, self._demand, event.at_s, refused=refused)
        sheds = self._shedder.orders(event, self._queries, self._fleet) if self._settings.sheds else []
        fits = [] if self._stopping else self._demand.fits(event.event_id)
        return [*routes, *ends, *starts, *sheds, *fits]

    # ----------------------------------------------------------------------------------------- equation 1: how many VMs

    def _judge_vms(self, event: SlotEnded) -> list[Command]:
        """End what is overdue, and keep or stop each VM whose billing period ends."""
        commands: list[Command] = []
        for machine in tuple(self._fleet.live.values()):
            waited_s = event.at_s - machine.since_s
            if machine.state is VmState.STARTING and waited_s > self._boot_patience_s:
                why = f"{machine.name} was not ready after {waited_s:.0f} s"
                commands.append(self._end_overdue(machine, event, why))
                self._backoff.failed(event.at_s)
            elif machine.state in WANTED_STATES and (why := self._why_stop(machine, event)):
                commands.append(self._stop(machine, event, why))
            # Also one that was just stopped: it may have become ready so late that there is no slot left to drain it.
            if machine.state is VmState.DRAINING and self._fleet.must_end(machine, event.at_s):
                why = f"{machine.name} would enter the next billing period, or be taken"
                commands.append(self._end_overdue(machine, event, why))
        return commands

    def _see_who_can_pay(self, event: SlotEnded) -> None:
        if self._settings.budget.usd_per_query_day is None:
            return
        for name, query in self._queries.items():
            forecast_bytes = query.expected_bytes_per_s * self._settings.slot_s
            can_pay = self._fleet.can_pay(name, event.at_s, forecast_bytes)
            query.unpaid = "" if can_pay else "usd_per_query_day is spent"

    def _why_stop(self, machine: Machine, event: SlotEnded) -> str:
        """Return why a VM is given back; empty if it is kept."""
        movable = (query for query in self._queries.values() if not query.why_home)
        forecast_bytes = {q.settings.name: q.expected_bytes_per_s * self._settings.slot_s for q in movable}
        if not self._fleet.within_budget(machine, event.at_s, forecast_bytes):
            return "the budget is spent"
        if machine.state is VmState.STARTING:
            return ""
        slots = [query.slot for query in self._queries.values()]
        drain_s = sum(s.open_events.get(machine.name, 0) / (s.rates.get(machine.name) or math.inf) for s in slots)
        if not self._fleet.decision_is_due(machine, event.at_s, drain_s):
            return ""
        others = len(self._fleet.wanted) - 1
        keepers = [
            name
            for name in self._queries
            if self._demand.keeps(name, others, machine.block_raw_bytes[name], event.at_s)
        ]
        if not keepers:
            self._demand.ended(others, event.at_s)
            return f"its billing period ends, {self._demand.why_not_kept()}"
        if self._fleet.renew(machine, event, keepers):
            return ""
        return self._fleet.ledger.frozen or "its billing period ends and the next one does not fit into the budget"

    def _stop(self, machine: Machine, event: Event, why: str) -> Command:
        self._fleet.step(machine, VmInput.STOP, event, why)
        cause = Cause(event.event_id, f"{machine.name}: {why}")
        if machine.state is VmState.DRAINING:
            return DrainVm(vm=machine.name, cause=cause)
        return TerminateVm(vm=machine.name, cause=cause)

    def _end_overdue(self, machine: Machine, event: Event, why: str) -> Command:
        self._fleet.step(machine, VmInput.OVERDUE, event, why)
        return TerminateVm(vm=machine.name, cause=Cause(event.event_id, why))

    # ------------------------------------------------------------------------ equation 2 and ranking: whose events go

    def _rank(self, event: SlotEnded, vm_before: bool) -> Mapping[str, str]:
        candidates = [
            Candidate(
                query=name,
                latency_s=query.slot.latency_s,
                latency_qos_s=query.settings.latency_qos_s,
                tolerance_s=query.settings.switching.tolerance_s,
                wants_cloud=query.wants_cloud(
                    vm_before=vm_before,
                    vm_ready=bool(query.usable(self._fleet.ready)),
                    switched=self._ranking.is_switched(name),
                ),
            )
            for name, query in self._queries.items()
        ]
        return self._ranking.update(candidates, event.at_s)

    def _share_out(self, event: SlotEnded) -> list[Command]:
        commands: list[Command] = []
        for query in self._queries.values():
            commands += self._reroute(query, event)
        self._mark_sending(event)
        return commands

    def _leave_unready_lanes(self, event: Event, why: str) -> list[Command]:
        """Take lanes that are not ready out of all routes."""
        usable = {HOME, *self._fleet.ready}
        commands: list[Command] = []
        for query in self._queries.values():
            if not usable.issuperset(lane for lane, _ in query.route):
                commands += self._reroute(query, event, why)
        self._mark_sending(event)
        return commands

    def _reroute(self, query: Query, event: Event, why: str = "") -> list[Command]:
        """Give a query the route that it should have now, because of ``why``; of its latency, if that is empty."""
        route = ALL_HOME
        if self._ranking.is_switched(query.settings.name) and (ready := query.usable(self._fleet.ready)):
            share = query.controller.update(query.slot, ready, query.share)
            route = split(share, ready, query.slot.rates)
        if route == query.route:
            return []
        query.route = route
        latency_s, send_above_s = query.slot.latency_s, query.settings.switching.send_above_s
        relation = ">=" if latency_s >= send_above_s else "<"
        why = why or f"L {latency_s:.2f} s {relation} send_above {send_above_s:g} s"
        return [SetRoute(query=query.settings.name, shares=route, cause=Cause(event.event_id, why))]

    def _mark_sending(self, event: Event) -> None:
        self._fleet.mark_sending({lane for query in self._queries.values() for lane, _ in query.route}, event)

    # ------------------------------------------------------------------------------------------------------ checking

    @property
    def _boot_patience_s(self) -> float:
        own_s = max(_BOOT_PATIENCE_LEAST_S, _BOOT_PATIENCE * self._settings.boot_s)
        within_s = self._settings.boot_within_s
        return max(own_s, within_s + _ORDER_PATIENCE_S) if within_s else own_s

    def _query(self, name: str) -> Query:
        try:
            return self._queries[name]
        except KeyError:
            raise ValueError(f"there is no query {name!r}; the queries are {', '.join(self._queries)}") from None

    def validate(self) -> None:
        """Check all invariants; for tests and the simulator.

        Raises:
            AssertionError: one is broken.
        """
        self._fleet.validate(self._settings.max_vms)
        usable = {HOME, *self._fleet.ready}
        for name, query in self._queries.items():
            shares = [share for _, share in query.route]
            assert abs(sum(shares) - 1) < 1e-9, f"the shares of {name} do not sum to 1: {query.route}"
            assert all(0 <= share <= 1 for share in shares), f"a share of {name} is not in [0, 1]: {query.route}"
            assert usable.issuperset(lane for lane, _ in query.route), f"{name} goes to a VM not ready: {query.route}"
        routed = {lane for query in self._queries.values() for lane, _ in query.route} - {HOME}
        sending = {name for name, state in self.vms.items() if state is VmState.SENDING}
        assert routed == sending, f"routed to {routed}, marked as sending {sending}"
