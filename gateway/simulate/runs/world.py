"""A whole gateway in virtual time: production decisions, simulated hosts and clouds, and invariants to check."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import count

from gateway.core.decide.profiler import Profiler
from gateway.core.decide.scheduler import Scheduler, SchedulerSettings
from gateway.fleet.fitting import fit
from gateway.simulate.faultcounts import FaultCounts
from gateway.simulate.options import QueryOptions, WorldOptions
from gateway.simulate.runs.agenda import Agenda, Trace
from gateway.simulate.runs.cloud import SimulatedFleet
from gateway.simulate.runs.enginehosts import SimulatedEngineHost
from gateway.simulate.runs.keyed.dividedquery import DividedQuery
from gateway.simulate.runs.outcomes import QueryOutcome, WorldOutcome
from gateway.simulate.runs.promises import BrokenPromiseError, NeverAtRestError, promise
from gateway.simulate.runs.selecting.selectingquery import SelectingQuery
from gateway.simulate.runs.simulatedquery import SimulatedQuery
from gateway.simulate.runs.stateful.movingquery import MovingQuery
from gateway.simulate.runs.worldquery import WorldQuery
from gateway.simulate.sizes import SizeLaunches, launches_of
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
    QueryKeptOff,
    QueryOpened,
    SetRoute,
    SetShed,
    SlotAnswered,
    SlotEnded,
    StartVm,
    StopAll,
    TerminateVm,
)


class World:
    """One world.

    Args:
        options: its options.
        keep_trace: whether the lines of the trace are kept.
        thorough: whether all invariants are checked after each step; otherwise the costly ones only at each slot's end.
        make_scheduler: creates the scheduler.
    """

    def __init__(
        self,
        options: WorldOptions,
        *,
        keep_trace: bool = False,
        thorough: bool = False,
        make_scheduler: Callable[[SchedulerSettings], Scheduler] = Scheduler,
    ) -> None:
        self._options = options
        self._thorough = thorough
        self._agenda = agenda = Agenda()
        self.trace = trace = Trace(agenda, keep=keep_trace)
        self._scheduler = make_scheduler(options.scheduler)
        self._policies = Policies(options.scheduler.queries, options.scheduler.site)
        self._profiler = Profiler(options.scheduler.slot_s, {q.settings.name: q.statistic for q in options.queries})
        self._queries = {query.settings.name: self._make_query(query) for query in options.queries}
        self._counts = FaultCounts()
        self._fleet = SimulatedFleet(
            options,
            agenda,
            trace,
            tell=self._handle,
            attach=self._attach,
            detach=self._detach,
            idle=lambda name: not any(query.uses(name) for query in self._queries.values()),
            make_host=self._make_host,
            counts=self._counts,
        )
        self._draw = random.Random(f"faults {options.seed}")  # noqa: S311  # no secret
        self._event_ids = count(1)
        self._home: SimulatedEngineHost | None = None
        self._reading = True
        self._stopped = False
        self._slot_began_s = 0.0
        self._slot_ends_s = options.scheduler.slot_s
        self._steps = 0

    def _make_query(self, query: QueryOptions) -> WorldQuery:
        options = self._options
        rest = self._profiler, self._agenda, self.trace, self._fail, options.patience
        if query.parts:
            return DividedQuery(query, options.seed, *rest, on_kept_off=self._keep_off)
        if query.moves:
            return MovingQuery(query, options.seed, *rest, on_kept_off=self._keep_off)
        if query.selections is not None:
            return SelectingQuery(query, query.selections, options.seed, *rest)
        return SimulatedQuery(query, options.seed, *rest)

    def _keep_off(self, query: str, vm: str, reason: str) -> None:
        # As in the daemon, the caller has more to do first.
        self._agenda.after(
            0.0,
            lambda: self._handle(
                lambda event_id, at_s: QueryKeptOff(event_id=event_id, at_s=at_s, query=query, vm=vm, reason=reason)
            ),
        )

    # ---------------------------------------------------------------------------------------------------------- running

    def run(self) -> WorldOutcome:
        """Simulate until the world is at rest.

        Raises:
            BrokenPromiseError: an invariant is broken.
            NeverAtRestError: events still wait ``rest_s`` after the last one came.
        """
        self._start_home()
        for query in self._queries.values():
            self._handle(
                lambda event_id, at_s, query=query: QueryOpened(  # type: ignore[misc]
                    event_id=event_id,
                    at_s=at_s,
                    query=query.name,
                    switchable=query.options.settings.switchable,
                    whole=query.options.stateful and not query.options.parts,
                    divided=query.options.parts > 0,
                )
            )
            self._agenda.after(query.options.run_s, lambda query=query: self._arrive(query))  # type: ignore[misc]
        self._agenda.at(self._options.load_s, self._drain_all)
        self._agenda.at(self._slot_ends_s, self._end_slot)
        self._expect(self._options.faults.clock_step_per_s, self._step_clock)
        until_s = self._options.load_s + self._options.rest_s
        while not self._at_rest:
            promise(self._agenda.step(), "nothing is left to happen, and the world is not at rest")
            self._steps += 1
            self._check()
            if self._agenda.now_s >= until_s:
                raise NeverAtRestError(f"events still wait {self._options.rest_s:g} s after the last one came")
        return self._outcome()

    @property
    def _at_rest(self) -> bool:
        return self._stopped and self._fleet.settled

    def _arrive(self, query: WorldQuery) -> None:
        if self._reading:
            self._agenda.at(query.arrive(self._agenda.now_s), lambda: self._arrive(query))

    def _drain_all(self) -> None:
        self._reading = False
        for query in self._queries.values():
            query.finish(self._agenda.now_s)
        self.trace.note("the source has ended")
        self._handle(lambda event_id, at_s: DrainAll(event_id=event_id, at_s=at_s))

    def _end_slot(self) -> None:
        now_s = self._agenda.now_s
        for query in self._queries.values():
            query.end_slot()
            query.check_slot()
            query.check_all()
        slots, cpu = self._profiler.end_slot(now_s), self._cpu(now_s)
        wall_s = self._options.begins_wall_s + now_s
        self._handle(
            lambda event_id, at_s: SlotEnded(event_id=event_id, at_s=at_s, queries=slots, wall_s=wall_s, cpu=cpu)
        )
        for decision in self._scheduler.last_decisions:
            self.trace.note(f"{decision.query}: L {decision.latency_s:.6f} s, {decision.verdict}")
        if not self._reading and not self._stopped and all(query.idle for query in self._queries.values()):
            self._stopped = True
            self._handle(lambda event_id, at_s: StopAll(event_id=event_id, at_s=at_s))
        self._slot_ends_s = max(self._slot_ends_s + self._options.scheduler.slot_s, now_s)
        self._agenda.at(self._slot_ends_s, self._end_slot)

    def _cpu(self, now_s: float) -> dict[str, float]:
        """Return the part of the last slot in which each host was busy, as their heartbeats report it to the daemon."""
        hosts = [*([] if self._home is None else [self._home]), *self._fleet.hosts.values()]
        since_s, self._slot_began_s = self._slot_began_s, now_s
        return {host.name: host.cpu(since_s, now_s) for host in hosts if host.alive and not host.hung}

    # ------------------------------------------------------------------------------------------------------- scheduler

    def _handle(self, make_event: Callable[[str, float], Event]) -> None:
        event = make_event(f"e{next(self._event_ids)}", self._agenda.now_s)
        if not isinstance(event, SlotEnded | SlotAnswered):
            self.trace.note(str(event))
        commands = self._scheduler.handle(event)
        self._scheduler.validate()
        for command in commands:
            if command.cause.event_id != event.event_id:
                raise BrokenPromiseError(f"{command} does not name its cause")
            if not isinstance(command, Ask):
                self.trace.note(str(command))
            self._obey(command)
        self._check_vms()

    def _obey(self, command: Command) -> None:
        match command:
            case SetRoute():
                self._queries[command.query].set_shares(dict(command.shares))
            case SetShed():
                self._queries[command.query].sampler.share = command.share
            case StartVm():
                promise(not self._stopped, f"{command.vm} is started although the gateway stops")
                self._fleet.launch(command.vm)
            case DrainVm():
                for query in self._queries.values():
                    query.drain_lane(command.vm)
                self._fleet.drain(command.vm)
            case TerminateVm():
                self._fleet.terminate(command.vm)
            case Ask():
                answers = self._policies.answer(command)
                self._handle(
                    lambda event_id, at_s: SlotAnswered(
                        event_id=event_id, at_s=at_s, turn=command.turn, answers=answers
                    )
                )
            case Fit():
                self._agenda.after(0.0, lambda: self._fit(command))

    def _fit(self, command: Fit) -> None:
        models = fit(command)
        self._handle(lambda event_id, at_s: Fitted(event_id=event_id, at_s=at_s, query=command.query, models=models))

    # ----------------------------------------------------------------------------------------------------------- hosts

    def _make_host(self, name: str) -> SimulatedEngineHost:
        faults = self._options.faults
        draw = random.Random(f"host {self._options.seed} {name} {self._steps}")  # noqa: S311  # no secret
        host = SimulatedEngineHost(name, self._options.machines, faults, self._agenda, self.trace, draw)
        self._expect(faults.crash_per_s, lambda: self._crash(host))
        self._expect(faults.hang_per_s, lambda: self._hang(host))
        self._expect(faults.slow_link_per_s, lambda: self._slow(host))
        return host

    def _start_home(self) -> None:
        self._home = self._make_host(HOME)
        self._attach(self._home)

    def _attach(self, host: SimulatedEngineHost) -> None:
        for query in self._queries.values():
            if host.name == HOME or query.options.settings.switchable:
                query.add_lane(host)

    def _detach(self, name: str, reason: str = "") -> None:
        for query in self._queries.values():
            query.remove_lane(name, reason)
        self._profiler.lane_closed(name)

    def _fail(self, lane: str) -> None:
        # As in the daemon, where a task does it: the caller has more to do first.
        self._agenda.after(0.0, lambda: self._give_up(lane))

    def _give_up(self, lane: str) -> None:
        self.trace.note(f"{lane} completes nothing: it is given up")
        if lane != HOME:
            self._fleet.lose(lane, "it completes nothing")
        elif self._home is not None:
            self._lose_home(self._home)

    def _lose_home(self, host: SimulatedEngineHost) -> None:
        if self._home is not host:
            return
        host.alive = False
        self._home = None
        self.trace.note("the private host is lost")
        self._detach(HOME, "the private host is lost")
        self._agenda.after(self._options.machines.home_restart_s, self._start_home)

    # ---------------------------------------------------------------------------------------------------------- faults

    def _expect(self, per_s: float, fault: Callable[[], None]) -> None:
        if per_s > 0:
            self._agenda.after(self._draw.expovariate(per_s), fault)

    def _crash(self, host: SimulatedEngineHost) -> None:
        if not host.alive:
            return
        self.trace.note(f"fault: {host.name} dies")
        host.alive = False
        detect_s = self._options.machines.detect_s
        if host.name == HOME:
            self._counts.home_died += 1
            self._agenda.after(detect_s, lambda: self._lose_home(host))
        else:
            self._counts.vms_died += 1
            self._agenda.after(detect_s, lambda: self._fleet.lose(host.name, "no heartbeat"))

    def _hang(self, host: SimulatedEngineHost) -> None:
        if host.alive:
            self.trace.note(f"fault: {host.name} hangs")
            host.hung = True

    def _slow(self, host: SimulatedEngineHost) -> None:
        if host.alive:
            self.trace.note(f"fault: the link to {host.name} is slow")
            host.slow_link(self._draw.uniform(1, 30))
            self._expect(self._options.faults.slow_link_per_s, lambda: self._slow(host))

    def _step_clock(self) -> None:
        by_s = self._draw.uniform(0, self._options.faults.clock_step_s)
        self.trace.note(f"fault: the clock steps by {by_s:.6f} s")
        self._agenda.skip(by_s)
        self._fleet.jumped(self._scheduler.leases, self._agenda.now_s - by_s, self._agenda.now_s)
        self._expect(self._options.faults.clock_step_per_s, self._step_clock)

    # -------------------------------------------------------------------------------------------------------- promises

    def _check(self) -> None:
        for query in self._queries.values():
            if self._thorough:
                query.check_all(thorough=True)
            else:
                query.check()

    def _check_vms(self) -> None:
        forgotten = self._fleet.books.machines - self._scheduler.vms.keys()
        if forgotten:
            raise BrokenPromiseError(f"the scheduler has forgotten {sorted(forgotten)}")
        now_s = self._agenda.now_s
        usd, billed_usd = self._scheduler.totals(now_s).usd, self._fleet.books.time_usd(now_s)
        if billed_usd > usd + 1e-9:
            raise BrokenPromiseError(f"the cloud bills {billed_usd!r} USD for time, the scheduler knows of {usd!r}")
        most_usd = self._options.scheduler.budget.usd_per_day
        if most_usd is not None and usd > most_usd + self._fleet.unforeseen_usd + 1e-9:
            raise BrokenPromiseError(f"{usd!r} USD are spent, {most_usd + self._fleet.unforeseen_usd!r} may be")

    def _outcome(self) -> WorldOutcome:
        for query in self._queries.values():
            query.check_end()
        totals = self._scheduler.totals(self._agenda.now_s)
        promise(totals.started == totals.stopped, f"{totals.started} VMs started, {totals.stopped} stopped")
        promise(not self._scheduler.vms, f"VMs are left: {dict(self._scheduler.vms)}")
        queries = tuple(
            QueryOutcome(
                name=name,
                events=query.tally.events,
                shed_events=query.tally.shed,
                mean_s=query.tally.latency.mean_s,
                p95_s=query.tally.latency.quantile_s(0.95),
                delivery_mean_s=query.tally.delivery.mean_s,
                late_results=query.tally.late_results,
                cloud_events=sum(events for lane, events in query.tally.events_by_lane.items() if lane != HOME),
                sent_bytes=query.tally.sent_bytes,
                again_events=query.tally.again_events,
            )
            for name, query in self._queries.items()
        )
        return WorldOutcome(
            self._options.seed,
            self._agenda.now_s,
            self._steps,
            totals.started,
            totals.usd,
            queries,
            self.trace.digest,
            self._counts,
            self._sizes(),
        )

    def _sizes(self) -> tuple[SizeLaunches, ...]:
        scheduler, sizes = self._options.scheduler, self._options.machines.sizes
        return launches_of(sizes, self._fleet.sizes, scheduler.billing) if scheduler.max_vms else ()
