"""A fluid world: arrays step from slot to slot; schedulers are called when that can have an effect."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gateway.fleet.fitting import fit
from gateway.query.flow.delivery import PART_S
from gateway.simulate.faultcounts import FaultCounts
from gateway.simulate.fluid import guards
from gateway.simulate.fluid.brief import brief_slots
from gateway.simulate.fluid.fleet import FluidVms
from gateway.simulate.fluid.lanes import Flow
from gateway.simulate.fluid.measures import query_slots
from gateway.simulate.fluid.options import FluidOptions
from gateway.simulate.fluid.outcomes import Commanded, FluidOutcome, FluidQueryOutcome, SiteOutcome
from gateway.simulate.fluid.tally import NAMED_MOST, POINTS_MOST, LatencyTally, Picture
from gateway.simulate.sharing import QuotaFigures, SharedQuota
from gateway.simulate.sizes import launches_of, together
from policies.arrays import IntArray
from policies.choose import Policies
from policies.signals import (
    HOME,
    Ask,
    Command,
    DrainAll,
    DrainVm,
    Event,
    Fit,
    Fitted,
    QuotaGranted,
    SetRoute,
    SetShed,
    SlotAnswered,
    SlotEnded,
    StartVm,
    StopAll,
    TerminateVm,
    VmGone,
    VmReady,
)

_BLOCK_EVENTS = 2**16
"""Loads are generated in blocks of this many numbers: few enough for the caches, many enough for numpy."""
_NOTHING = 1e-6
_COMMANDS_MOST = 100_000


class FluidWorld:
    """One fluid world.

    Args:
        options: its options.
        progress: called with (slot, all slots) now and then.
    """

    def __init__(self, options: FluidOptions, progress: Callable[[int, int], None] | None = None) -> None:
        self._options = options
        self._progress = progress
        sites = options.sites
        counts = [len(site.queries) for site in sites]
        self._of_query: IntArray = np.repeat(np.arange(len(sites)), counts)
        ends = np.cumsum(counts).tolist()
        self._rows = [slice(end - count, end) for end, count in zip(ends, counts, strict=True)]
        self._names = [[query.name for query in site.queries] for site in sites]
        self.flow = Flow(sites, self._of_query)
        self._schedulers = [options.make_scheduler(site.scheduler) for site in sites]
        self._policies = [Policies(site.scheduler.queries, site.scheduler.site) for site in sites]
        self._vms = [
            FluidVms(
                f"cloud {options.seed} {at}", site.scheduler.boot_s, self._columns(at), site.machines, options.faults
            )
            for at, site in enumerate(sites)
        ]
        known = [guards.GuardedSite(rows, site.scheduler) for rows, site in zip(self._rows, sites, strict=True)]
        self._looks_at_cpu = [one.plans for one in known]
        self._whole_records = [one.plans or options.every_slot for one in known]
        self._guards = guards.Guards(known, self._of_query, every_slot=options.every_slot)
        qos_s = np.array([query.latency_qos_s for site in sites for query in site.scheduler.queries])
        self.tally = LatencyTally(qos_s)
        self._all: IntArray = np.arange(len(qos_s))
        every = max(1, -(-options.slots // POINTS_MOST))
        self._picture = Picture(self.tally, every, options.slot_s)
        self._in_cloud: IntArray = np.zeros(0, dtype=np.intp)
        self._next_s = np.full(len(sites), np.inf)
        self._draining: set[int] = set()
        self._cloud_events = np.zeros(len(qos_s))
        self._live = np.zeros(len(sites), dtype=np.intp)
        self._usd = np.zeros(len(sites))
        self._serving = np.zeros(len(sites), dtype=np.bool_)
        self._calls = 0
        self._quota = None if options.quota is None else SharedQuota(options.quota, len(sites), options.seed)
        self._live_most = 0
        self._orders: list[tuple[int, Fit]] = []
        self._commands: list[Commanded] = []
        self._marks: list[tuple[float, str, str]] = []

    def _columns(self, site: int) -> int:
        return max(1, self._options.sites[site].scheduler.max_vms)

    # ---------------------------------------------------------------------------------------------------------- running

    def run(self) -> FluidOutcome:
        """Simulate until all events are completed and all VMs terminated."""
        options = self._options
        nothing = np.zeros(len(self._all))
        slot, stopped, full_until = 0, False, options.slots
        slots = min(64, max(1, _BLOCK_EVENTS // len(self._all)))
        while True:
            if slot < options.slots:
                at = slot % slots
                if at == 0:
                    block = options.load.block(slot, min(slots, options.slots - slot))
                self._slot(slot, block[at])
            else:
                self._slot(slot, nothing)
            slot += 1
            if slot == options.slots:
                self._tell_all(slot, DrainAll)
            if slot >= options.slots and not stopped:
                if not self._empty:
                    full_until = slot
                # The last runs are served and, as in the daemon, the sink has committed their results.
                rested_s = (slot - full_until) * options.slot_s
                stopped = rested_s >= self.flow.run_s + PART_S or slot >= options.slots + options.rest_slots
                if stopped:
                    self._tell_all(slot, StopAll)
            if stopped and all(vms.settled for vms in self._vms):
                break
        return self._outcome(slot)

    @property
    def _left(self) -> float:
        """Events that wait or are in a lane."""
        flow = self.flow
        return float(flow.waiting.events.sum() + flow.home.kept.sum() + flow.cloud.kept.sum())

    @property
    def _empty(self) -> bool:
        return self._left <= _NOTHING * len(self._all)

    def _slot(self, slot: int, came: np.ndarray[tuple[int], np.dtype[np.float64]]) -> None:
        flow, ends_s = self.flow, (slot + 1) * self._options.slot_s
        if self._options.served is not None:
            flow.serve(*self._options.served(slot))
        flow.step(came, self._in_cloud)
        self._count(came)
        for site in np.flatnonzero(self._next_s <= ends_s).tolist():
            self._let_happen(site, ends_s)
        for site in sorted(self._draining):
            self._see_drained(site, ends_s)
        fired = self._guards.fired(ends_s, flow.slot.latency_s, flow.slot.input_bytes_per_s)
        for site in fired.tolist():
            self._end_slot(site, ends_s)
        if self._quota is not None:
            for site, at_s, allowance in self._quota.step(ends_s):
                event_id = self._vms[site].event_id()
                self._handle(site, QuotaGranted(event_id=event_id, at_s=at_s, allowance=allowance))
        if self._orders:
            self._train(ends_s)
        if (slot + 1) % self._picture.every_slots == 0:
            self._point(ends_s)
        if self._progress is not None and slot % 1000 == 0:
            self._progress(min(slot, self._options.slots), self._options.slots)

    def _count(self, came: np.ndarray[tuple[int], np.dtype[np.float64]]) -> None:
        slot, rows = self.flow.slot, self._in_cloud
        self.tally.add(slice(None), slot.home_s, slot.home_completed)
        self._picture.slot(float(came.sum()))
        if len(rows):
            for column in range(slot.cloud_completed.shape[1]):
                events = slot.cloud_completed[rows, column]
                if not np.count_nonzero(events):
                    continue
                self.tally.add(rows, slot.cloud_s[rows, column], events)
                self._cloud_events[rows] += events

    def _point(self, ends_s: float) -> None:
        for site in np.flatnonzero(self._live).tolist():
            self._usd[site] = self._schedulers[site].totals(ends_s).usd
        self._picture.point(ends_s, int(self._live.sum()), float(self._usd.sum()))

    # ------------------------------------------------------------------------------------------------------- schedulers

    def _end_slot(self, site: int, at_s: float) -> None:
        flow, vms, rows = self.flow, self._vms[site], self._rows[site]
        lanes = vms.lanes
        record = query_slots if self._whole_records[site] else brief_slots
        slots = record(self._names[site], rows, flow.slot, flow.home_measures, flow.cloud_measures, lanes)
        self._calls += 1
        cpu = {}
        if self._looks_at_cpu[site]:
            cpu = {HOME: flow.cpu(rows, None)} | {name: flow.cpu(rows, column) for column, name in lanes}
        wall_s = self._options.begins_wall_s + at_s
        self._handle(site, SlotEnded(event_id=vms.event_id(), at_s=at_s, queries=slots, wall_s=wall_s, cpu=cpu))
        self._see_needs(site, at_s)
        empty = not (np.count_nonzero(flow.cloud.kept[rows]) or np.count_nonzero(flow.slot.cloud_open[rows]))
        bytes_per_s = flow.slot.input_bytes_per_s
        self._guards.called(site, self._schedulers[site], at_s, bytes_per_s, lanes_empty=empty)

    def _handle(self, site: int, event: Event) -> None:
        scheduler = self._schedulers[site]
        slot_ended, commands = isinstance(event, SlotEnded | SlotAnswered), scheduler.handle(event)
        if commands or not slot_ended:
            self._guards.happened(site)
        if isinstance(event, (VmReady, VmGone)):
            self._mark(site, event.at_s, event.vm, "ready" if isinstance(event, VmReady) else "gone")
        for command in commands:
            if len(self._commands) < _COMMANDS_MOST and not isinstance(command, Fit | Ask):
                self._commands.append(Commanded(event.at_s, site, command))
            if isinstance(command, (StartVm, TerminateVm)):
                self._mark(site, event.at_s, command.vm, "start" if isinstance(command, StartVm) else "end")
            self._obey(site, command, event.at_s)
        if isinstance(event, VmGone):
            self._usd[site] = scheduler.totals(event.at_s).usd
        if not slot_ended or any(not isinstance(command, SetRoute | Ask) for command in commands):
            self._see_vms(site)

    def _obey(self, site: int, command: Command, at_s: float) -> None:
        match command:
            case SetRoute():
                row = self._row(site, command.query)
                self.flow.shares[row] = 0.0
                for lane, share in command.shares[1:]:
                    self.flow.shares[row, self._vms[site].column(lane)] = share
            case SetShed():
                self.flow.shed[self._row(site, command.query)] = command.share
            case Ask():
                answers, event_id = self._policies[site].answer(command), self._vms[site].event_id()
                self._handle(site, SlotAnswered(event_id=event_id, at_s=at_s, turn=command.turn, answers=answers))
            case Fit():
                self._orders.append((site, command))
            case TerminateVm():
                self.flow.close(self._rows[site], self._vms[site].column(command.vm))
                self._vms[site].obey(command, at_s)
            case StartVm():
                self._vms[site].obey(command, at_s)
            case DrainVm():
                lanes = self.flow.cloud.kept[self._rows[site], self._vms[site].column(command.vm)]
                self._vms[site].obey(command, at_s, empty=not lanes.any())

    def _row(self, site: int, query: str) -> int:
        first: int = self._rows[site].start
        return first + self._names[site].index(query)

    def _train(self, at_s: float) -> None:
        """Carry out the trainings that were ordered in the slot; the models are ready at its end."""
        orders, self._orders = self._orders, []
        for site, order in orders:
            models, event_id = fit(order), self._vms[site].event_id()
            self._handle(site, Fitted(event_id=event_id, at_s=at_s, query=order.query, models=models))

    def _mark(self, site: int, at_s: float, vm: str, what: str) -> None:
        if site == 0 and len(self._marks) < _COMMANDS_MOST:
            self._marks.append((at_s, vm, what))

    def _see_vms(self, site: int) -> None:
        vms = self._vms[site]
        self._next_s[site] = vms.next_s
        self._live[site] = len(self._schedulers[site].vms)
        self._live_most = max(self._live_most, int(self._live.sum()))
        (self._draining.add if vms.draining else self._draining.discard)(site)
        serves = bool(vms.lanes)
        if serves != self._serving[site]:
            self._serving[site] = serves
            self._in_cloud = np.flatnonzero(self._serving[self._of_query])

    def _see_needs(self, site: int, at_s: float) -> None:
        if self._quota is not None:
            self._quota.need(site, self._schedulers[site].needs(at_s), at_s)

    def _let_happen(self, site: int, until_s: float) -> None:
        vms = self._vms[site]
        while vms.next_s <= until_s:
            event, closed = vms.next_event()
            if closed:
                self.flow.close(self._rows[site], vms.column(closed))
            if event is not None:
                self._handle(site, event)
        self._see_vms(site)
        self._see_needs(site, until_s)

    def _see_drained(self, site: int, at_s: float) -> None:
        vms = self._vms[site]
        for name in vms.draining:
            column = vms.column(name)
            if not self.flow.cloud.kept[self._rows[site], column].any():
                self._handle(site, vms.drained(name, at_s))

    def _tell_all(self, slot: int, kind: type[DrainAll] | type[StopAll]) -> None:
        at_s = slot * self._options.slot_s
        for site, vms in enumerate(self._vms):
            self._handle(site, kind(event_id=vms.event_id(), at_s=at_s))

    # ----------------------------------------------------------------------------------------------------------- result

    def outcome_of(self, site: int, at_s: float) -> SiteOutcome:
        """Return the results of one gateway, at the end."""
        tally, rows, totals = self.tally, self._rows[site], self._schedulers[site].totals(at_s)
        events = max(1e-12, float(tally.events[rows].sum()))
        total_s = sum(tally.mean_s(q) * float(tally.events[q]) for q in range(rows.start, rows.stop))
        cloud = float(self._cloud_events[rows].sum())
        return SiteOutcome(total_s / events, totals.started, totals.usd, cloud / events)

    def _outcome(self, slots: int) -> FluidOutcome:
        at_s = slots * self._options.slot_s
        self._point(at_s)
        totals = [scheduler.totals(at_s) for scheduler in self._schedulers]
        tally = self.tally
        names = [query.name for site in self._options.sites for query in site.queries]
        named = names if len(names) <= NAMED_MOST else []
        queries = tuple(self._query_outcome(q, name) for q, name in enumerate(named))
        events = max(1e-12, float(tally.events.sum()))
        return FluidOutcome(
            lasted_s=at_s,
            slots=slots,
            calls=self._calls,
            vms=sum(total.started for total in totals),
            usd=sum(total.usd for total in totals),
            mean_s=tally.all_mean_s(),
            p95_s=tally.all_quantile_s(0.95),
            missed=float(tally.missed.sum()) / events,
            queries=queries,
            points=tuple(self._picture.points),
            vm_marks=tuple(self._marks),
            commands=tuple(self._commands),
            unanswered=self._left,
            vms_most=self._live_most,
            quota=QuotaFigures() if self._quota is None else self._quota.figures,
            faults=sum((vms.counts for vms in self._vms), FaultCounts()),
            sizes=together(
                launches_of(site.machines.sizes, vms.sizes, site.scheduler.billing)
                for site, vms in zip(self._options.sites, self._vms, strict=True)
                if site.scheduler.max_vms
            ),
        )

    def _query_outcome(self, q: int, name: str) -> FluidQueryOutcome:
        tally = self.tally
        events = float(tally.events[q])
        return FluidQueryOutcome(
            name=name,
            events=events,
            mean_s=tally.mean_s(q),
            p95_s=tally.quantile_s(q, 0.95),
            largest_s=float(tally.largest_s[q]),
            missed=float(tally.missed[q]) / events if events > 0 else 0.0,
            cloud_events=float(self._cloud_events[q]),
            sent_bytes=float(self.flow.sent_bytes[q]),
            shed_events=float(self.flow.shed_events[q]),
            again_events=float(self.flow.again_events[q]),
        )
