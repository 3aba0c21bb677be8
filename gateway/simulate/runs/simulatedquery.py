"""A query of a simulated world: the production exchange between a load and a sink that counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import gateway.core.exchange.events as ev
from gateway.core.decide.profiler import Profiler
from gateway.core.exchange import Exchange
from gateway.core.exchange.instructions import (
    AskedAgain,
    Dispatched,
    Done,
    FailLane,
    Instruction,
    Moved,
    Pack,
    Release,
    Reopen,
    Send,
)
from gateway.core.intervals import IntervalSet
from gateway.query.flow.delivery import PART_S
from gateway.query.flow.lane import LaneEvent
from gateway.query.flow.linger import Linger
from gateway.query.flow.measures import Measures
from gateway.query.flow.run import Run
from gateway.query.flow.statistics import Tally
from gateway.simulate.options import WAITING_PART, Machines, QueryOptions
from gateway.simulate.runs.agenda import Agenda, Trace
from gateway.simulate.runs.arrivals import Arrivals
from gateway.simulate.runs.enginehosts import Reply, SimulatedEngineHost, SimulatedLane
from gateway.simulate.runs.promises import BrokenPromiseError, promise
from gateway.simulate.runs.witness import Witness
from policies.failures.overdue import Patience
from policies.signals import HOME
from policies.switching.shedding import Sampler

_REOPEN_S = 1.0
_VALIDATED_EVERY = 16


@dataclass(frozen=True, slots=True)
class _Result:
    first_seq: int
    last_seq: int
    completed_s: float


class SimulatedQuery:
    """Dispatches runs and releases results as ``gateway.query.flow.pipeline`` does, on the virtual clock.

    Args:
        options: the query and its load.
        seed: of random draws.
        profiler: the production Profiler.
        agenda: time.
        trace: the history.
        on_failed: called with a lane's name when it must be abandoned.
        patience: how long to wait for answers.
    """

    def __init__(
        self,
        options: QueryOptions,
        seed: int,
        profiler: Profiler,
        agenda: Agenda,
        trace: Trace,
        on_failed: Callable[[str], None],
        patience: Patience,
    ) -> None:
        self.options = options
        self.name = options.settings.name
        self.lanes: dict[str, SimulatedLane] = {}
        self.tally = Tally()
        self._measures = Measures(self.name, profiler, self.tally)
        self._profiler = profiler
        self._agenda = agenda
        self._trace = trace
        self._on_failed = on_failed
        self._patience = patience
        self._witness = Witness(options)
        # Sent runs of a stateful query, of which Spark may have planned one micro-batch.
        self._planned: set[int] = set()
        # Overdue runs of a stateful query are in no lane until it is open again.
        self._overdue = False
        self.exchange: Exchange[Run, _Result] = Exchange(options.exchange_settings(patience, HOME))
        self._outbox: list[tuple[int, int]] = []
        self._checks = 0
        self._arrivals = Arrivals(options, seed, agenda.now_s)
        self._linger = Linger(options.run_s)
        self._served_per_s = 0.0
        self._undone: dict[int, Run] = {}
        self._undone_events = self._held_events = self._released_events = 0
        self._released = IntervalSet()
        self._highest_seq = -1

    # --------------------------------------------------------------------------------------------------------- events

    @property
    def _linger_s(self) -> float:
        now_s = self._agenda.now_s
        rates = [rate for rate in self.exchange.rates_per_s(now_s) if rate > 0]
        if rates:
            self._served_per_s = min(rates)
        return self._linger.next_s(self.exchange.waiting_runs, self._served_per_s)

    @property
    def sampler(self) -> Sampler:
        """Decides which part of the events is shed."""
        return self._arrivals.sampler

    def arrive(self, to_s: float) -> float:
        """Read the arrivals since the last call; close the runs that are full or have lingered.

        Returns:
            When to look again.
        """
        self._log(self._arrivals.full_runs(to_s))
        linger_s = self._linger_s
        if self._arrivals.lingered(linger_s):
            self._log(self._arrivals.rest())
            linger_s = self._linger_s
        return self._arrivals.look_again_s(linger_s)

    def finish(self, to_s: float) -> None:
        """Close the last run: no event comes after it."""
        self.arrive(to_s)
        self._log(self._arrivals.rest())

    def _log(self, runs: Iterable[Run]) -> None:
        for run in runs:
            self._undone[run.first_seq] = run
            self._undone_events += run.events
            self._linger.cut(run.events)
            self._measures.arrived(run)
            self._note_logged(run)
            self._handle(ev.RunLogged(at_s=self._agenda.now_s, run=run))

    def _note_logged(self, run: Run) -> None:
        self._witness.logged(run)

    # ---------------------------------------------------------------------------------------------------- the exchange

    def _handle(self, event: ev.ExchangeEvent[Run, _Result]) -> None:
        for instruction in self.exchange.handle(event):
            self._carry_out(instruction)

    def _carry_out(self, what: Instruction[Run, _Result]) -> None:
        match what:
            case Pack() | Send():
                if isinstance(what, Pack):
                    self._witness.packs(what)
                self.lanes[what.lane].order(what)
            case Dispatched():
                self._dispatched(what)
            case Done():
                self._done(what)
            case Release():
                self._released_now(what)
            case FailLane():
                self._overdue = self.options.stateful
                self._on_failed(what.lane)
            case Reopen():
                self._overdue = True
                self._agenda.after(0.0, self._reopen)
            case AskedAgain():
                self._trace.note(f"{self.name}: run {what.first_seq} is overdue in {what.lane}")
                self._witness.asked_again(what.lane, what.first_seq, self._agenda.now_s)
            case Moved():
                self._trace.note(f"{self.name}: {what.runs} runs of {what.lane} went elsewhere")

    def set_shares(self, shares: Mapping[str, float]) -> None:
        """Use these shares from now on."""
        self._witness.shares_set(shares, self.exchange, self._agenda.now_s)
        self._handle(ev.SharesSet(at_s=self._agenda.now_s, shares=shares))

    # ---------------------------------------------------------------------------------------------------------- lanes

    def add_lane(self, host: SimulatedEngineHost) -> None:
        """Add a host's lane."""
        whole = sorted(self._planned & self._undone.keys())
        self.lanes[host.name] = SimulatedLane(host, self, self._agenda, whole)
        now_s, credit_bytes = self._agenda.now_s, self.options.credit_bytes
        self._witness.lane_opened(host.name, now_s)
        end_seq = self._undone[whole[-1]].last_seq + 1 if whole else 0
        self._handle(ev.LaneOpened(at_s=now_s, lane=host.name, credit_bytes=credit_bytes, planned_end_seq=end_seq))

    def remove_lane(self, name: str, reason: str) -> None:
        """Remove a lane, because it was lost or without a ``reason``; its open runs go elsewhere."""
        lane = self.lanes.pop(name, None)
        if lane is not None:
            lane.closed = True
            self._overdue = False
            self._witness.lane_lost(name, self._agenda.now_s)
            self._handle(ev.LaneLost(at_s=self._agenda.now_s, lane=name, reason=reason))

    def _reopen(self) -> None:
        """Open the query again from its checkpoint, on the same host."""
        if HOME in self.lanes:
            host = self.lanes[HOME].host
            self._trace.note(f"{self.name} is opened again")
            self.remove_lane(HOME, "runs are not answered")
            self._agenda.after(_REOPEN_S, lambda: self._opened_again(host))

    def _opened_again(self, host: SimulatedEngineHost) -> None:
        if host.alive and HOME not in self.lanes:  # otherwise a new host opens it
            self.add_lane(host)

    def drain_lane(self, name: str) -> None:
        """Send no further run to a lane."""
        self._witness.draining(name, self.exchange, self._agenda.now_s)
        self._handle(ev.LaneDraining(at_s=self._agenda.now_s, lane=name))

    def on_event(self, event: LaneEvent) -> None:
        """See ``LaneOwner``."""
        if isinstance(event, ev.Credited):
            self._witness.credited(event.lane, event.consumed_bytes)
        elif isinstance(event, ev.Isolating):
            self._witness.isolating(event.lane, event.first_seq)
        self._handle(event)

    def open_runs(self, lane: str) -> int:
        """See ``LaneOwner``."""
        return self.exchange.lane(lane).open_runs if lane in self.lanes else 0

    def uses(self, lane: str) -> bool:
        """Return whether a lane may not be given up yet, because something of this query is there."""
        return self.open_runs(lane) > 0

    def payload_bytes(self, lane: str, run: Run) -> int:
        """See ``LaneOwner``."""
        return run.raw_bytes if lane == HOME else round(run.raw_bytes * self.options.sent_part)

    def sends(self, lane: str, run: Run) -> int:
        """See ``LaneOwner``."""
        payload_bytes = self.payload_bytes(lane, run)
        self._witness.sends(lane, payload_bytes)
        if self.options.stateful:
            self._planned = {first for first in self._planned if first in self._undone} | {run.first_seq}
        return payload_bytes

    def _dispatched(self, what: Dispatched[Run]) -> None:
        if what.run.disordered and what.lane != HOME:
            raise BrokenPromiseError(f"{self.name}: a run out of order went to {what.lane}")
        self._measures.dispatched(what)

    def work_s(self, run: Run, machines: Machines, lane_runs: int) -> float:
        """See ``LaneOwner``: as measured for this query or, if not, for all; with its part of a micro-batch's cost."""
        options = self.options
        batch_s = machines.batch_s if options.batch_s is None else options.batch_s
        event_s = 1.0 / machines.events_per_s if options.event_s is None else options.event_s
        runs = min(max(1.0, WAITING_PART * lane_runs), options.batch_runs)
        return (batch_s + (runs - 1.0) * options.further_run_s) / runs + run.events * event_s

    def on_reply(self, lane: str, reply: Reply) -> None:
        """See ``LaneOwner``: the first completion counts."""
        now_s = self._agenda.now_s
        self._handle(
            ev.Answered(
                at_s=now_s,
                lane=lane,
                first_seq=reply.first_seq,
                last_seq=reply.last_seq,
                results=_Result(reply.first_seq, reply.last_seq, now_s),
                result_bytes=self._result_bytes(reply.first_seq, reply.last_seq),
                batch_id=reply.batch_id,
                batch_s=reply.batch_s,
            )
        )

    def _result_bytes(self, first_seq: int, last_seq: int) -> int:
        return (last_seq + 1 - first_seq) * self.options.event_bytes

    def _done(self, done: Done[Run]) -> None:
        now_s = self._agenda.now_s
        self._witness.done(done, self._result_bytes(done.first_seq, done.last_seq), now_s)
        for run in done.runs:
            undone = self._undone.pop(run.first_seq, None)
            if not done.counts or undone is not run:
                raise BrokenPromiseError(f"{self.name}: run {run.first_seq} is completed twice")
            self._undone_events -= run.events
            self._held_events += run.events
        self._measures.done(done, now_s)

    # ------------------------------------------------------------------------------------------------------- delivery

    def _released_now(self, release: Release[_Result]) -> None:
        first, last, result = release.first_seq, release.last_seq, release.results
        events = last - first + 1
        if self._released.overlaps(first, last):
            raise BrokenPromiseError(f"{self.name}: {first}-{last} is released twice")
        if (result.first_seq, result.last_seq, release.events) != (first, last, events):
            raise BrokenPromiseError(f"{self.name}: {first}-{last} is released with another run's result")
        if self.options.ordered and not release.late and first <= self._highest_seq:
            raise BrokenPromiseError(f"{self.name}: {first} is out of order and not marked")
        if self.options.ordered and self.options.flush_s is None and first != self._released.watermark():
            raise BrokenPromiseError(f"{self.name}: {first} did not wait, in strict order")
        self._witness.released(first, last, self._agenda.now_s)
        self._released.add(first, last)
        self._highest_seq = max(self._highest_seq, last)
        self._held_events -= events
        self._released_events += events
        latency_s = max(0.0, self._agenda.now_s - release.arrival_s)
        self.tally.released(latency_s, events, events, late=release.late)
        if not self._outbox:
            self._agenda.after(PART_S, self._commit)
        self._outbox.append((first, last))

    def _commit(self) -> None:
        ranges, self._outbox = tuple(self._outbox), []
        self._witness.committed(ranges)
        self._handle(ev.Committed(at_s=self._agenda.now_s, ranges=ranges))

    def end_slot(self) -> None:
        """Do what a pipeline does before a slot ends: overdue runs, waiting events, held results."""
        now_s, exchange = self._agenda.now_s, self.exchange
        self._handle(ev.Tick(at_s=now_s))
        self._handle(ev.SlotPassed(at_s=now_s))
        for lane in exchange.open_lanes:
            if exchange.waiting_events and not exchange.lane(lane).has_room:
                self._profiler.no_credit(self.name, lane)
        # As in the daemon, events that are due and in no run yet wait, too.
        unread_events, unread_since_s = self._arrivals.unread
        since_s = (exchange.oldest_waiting_s, unread_since_s if unread_events else None)
        self._profiler.under_way(
            self.name,
            waiting_events=exchange.waiting_events + unread_events,
            oldest_arrival_s=min((at_s for at_s in since_s if at_s is not None), default=None),
            open_runs=exchange.open_by_lane(),
        )

    # ------------------------------------------------------------------------------------------------------- promises

    @property
    def idle(self) -> bool:
        """Whether everything that arrived is committed."""
        return self.exchange.idle

    def check(self) -> None:
        """Check that every event is accounted for.

        Raises:
            BrokenPromiseError: one is missing, or counted twice.
        """
        counted, came = self._undone_events + self._held_events + self._released_events, self._arrivals.next_seq
        if counted != came:
            raise BrokenPromiseError(f"{self.name}: {came} events came, {counted} are accounted for")

    def check_all(self, *, thorough: bool = False) -> None:
        """Also check that every undone run waits or is in one lane, and at times all invariants of the exchange.

        Args:
            thorough: check all invariants now.

        Raises:
            BrokenPromiseError: an invariant is broken.
        """
        self.check()
        exchange = self.exchange
        if set(exchange.open_lanes) != self.lanes.keys():
            raise BrokenPromiseError(f"{self.name}: the lanes are {set(self.lanes)}")
        somewhere = exchange.waiting_events + sum(exchange.lane(name).open_events for name in self.lanes)
        if somewhere != self._undone_events and not self._overdue:
            raise BrokenPromiseError(
                f"{self.name}: {self._undone_events} events are not done, but {somewhere} wait or are in a lane"
            )
        held = exchange.held_count
        if (held > 0) is not (self._held_events > 0):
            raise BrokenPromiseError(f"{self.name}: {held} results hold {self._held_events} events")
        self._validate(thorough=thorough)

    def _validate(self, *, thorough: bool) -> None:
        # It goes through all runs.
        self._checks += 1
        if thorough or self._checks % _VALIDATED_EVERY == 0:
            try:
                self.exchange.validate()
            except AssertionError as error:
                raise BrokenPromiseError(f"{self.name}: {error}") from error

    def check_slot(self) -> None:
        """See ``Witness.check_slot``."""
        self._witness.check_slot(self.exchange, self._agenda.now_s)

    def check_end(self) -> None:
        """Check that every event was released exactly once.

        Raises:
            BrokenPromiseError: one was not.
        """
        promise(self.idle, f"{self.name} is not at rest")
        events = self._arrivals.next_seq
        expected = [(0, events - 1)] if events else []
        promise(list(self._released) == expected, f"{self.name}: {events} events, released {self._released}")
        promise(self.tally.delivery.weight == events, f"{self.name}: {self.tally.delivery.weight} deliveries")
