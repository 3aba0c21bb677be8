"""A query of a simulated world: the production exchange between a load and a sink that counts."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

import gateway.core.exchange.events as told
from engines.simulated.generators import Poisson
from gateway.core.decide.profiler import Profiler
from gateway.core.exchange import Exchange, ExchangeSettings
from gateway.core.exchange.instructions import (
    AskedAgain,
    Dispatched,
    Done,
    FailLane,
    Instruction,
    Moved,
    Pack,
    Release,
    Send,
)
from gateway.core.intervals import IntervalSet
from gateway.query.flow.delivery import HELD_BYTES_MAX, PART_S
from gateway.query.flow.lane import LaneEvent
from gateway.query.flow.linger import Linger
from gateway.query.flow.run import Run
from gateway.query.flow.statistics import Tally
from gateway.simulate.options import WAITING_PART, Machines, QueryOptions
from gateway.simulate.runs.agenda import Agenda, Trace
from gateway.simulate.runs.enginehosts import Host, Lane, Reply
from gateway.simulate.runs.promises import BrokenPromiseError, promise
from infra.link.credit import CREDIT_BYTES
from policies.failures.overdue import Patience
from policies.signals import HOME
from policies.switching.shedding import Sampler

_ALMOST = 1e-6
_VALIDATED_EVERY = 16
# A run that is full is closed late by no more than this part of ``run_s``.
_LOOKS = 0.1
_NO_ROWS = pa.RecordBatch.from_pylist([], schema=pa.schema([]))


@dataclass(frozen=True, slots=True)
class _Result:
    first_seq: int
    last_seq: int
    completed_s: float


class SimulatedQuery:
    """Deals runs and releases results as ``gateway.query.flow.pipeline`` does, on the virtual clock.

    Args:
        options: the query and its load.
        seed: of what it draws.
        profiler: the production one.
        agenda: time.
        trace: what happened.
        on_failed: called with a lane's name when it is to be given up.
        patience: how long answers are waited for.
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
        self.lanes: dict[str, Lane] = {}
        self.tally = Tally()
        self.sent_bytes = 0
        self._profiler = profiler
        self._agenda = agenda
        self._trace = trace
        self._on_failed = on_failed
        settings = ExchangeSettings(
            patience=patience, ordered=options.ordered, flush_s=options.flush_s, held_bytes_max=HELD_BYTES_MAX
        )
        self.exchange: Exchange[Run, _Result] = Exchange(settings)
        self._outbox: list[tuple[int, int]] = []
        self._checks = 0
        self._draw = random.Random(f"query {seed} {self.name}")  # noqa: S311  # no secret
        draw = np.random.default_rng([seed, int.from_bytes(self.name.encode())])
        self._load = Poisson(options.load, draw) if options.poisson else options.load
        self._due_events = 0.0
        self._open_since_s = self._read_s = agenda.now_s
        self._linger = Linger(options.run_s)
        self._served_per_s = 0.0
        self._next_seq = self._shed_since = 0
        self.sampler = Sampler()
        self._undone: dict[int, Run] = {}
        self._undone_events = self._held_events = self._released_events = 0
        self._released = IntervalSet()
        self._highest_seq = -1

    # --------------------------------------------------------------------------------------------------------- events

    @property
    def _linger_s(self) -> float:
        now_s = self._agenda.now_s
        rates = [self.exchange.lane(name).rate_per_s(now_s) for name in self.exchange.open_lanes]
        self._served_per_s = min((rate for rate in rates if rate > 0), default=self._served_per_s)
        return self._linger.next_s(self.exchange.waiting_runs, self._served_per_s)

    def arrive(self, to_s: float) -> float:
        """Take what came since the last call; close the runs that are full or have lingered, as ``Ingress`` does.

        Returns:
            When to look again.
        """
        span_s, self._read_s = to_s - self._read_s, to_s
        events = self._load.events(to_s - span_s, to_s)
        per_s = events / span_s if span_s > 0 else 0.0
        self._due_events += events
        most = self.options.run_events
        while self._due_events >= most:
            over_s = (self._due_events - most) / per_s if per_s > 0 else 0.0
            self._cut(most, to_s - min(over_s, span_s))
        if to_s >= self._open_since_s + self._linger_s - _ALMOST:
            self._cut(int(self._due_events + _ALMOST), to_s)
        least_s, most_s = _LOOKS * self.options.run_s, self._open_since_s + self._linger_s - to_s
        full_s = (most - self._due_events) / per_s if per_s > 0 else most_s
        return to_s + min(max(full_s, least_s), max(most_s, least_s), self.options.run_s)

    def finish(self, to_s: float) -> None:
        """Close the last run: nothing comes after it."""
        self.arrive(to_s)
        self._cut(int(self._due_events + _ALMOST), to_s)

    def _cut(self, due: int, until_s: float) -> None:
        """Close a run of the oldest ``due`` events, the last of which came at ``until_s``."""
        from_s, self._open_since_s = self._open_since_s, until_s
        self._due_events -= due
        shed = self.sampler.shed(due)
        self._shed_since += shed
        events = due - shed
        if not events:
            return
        shed, self._shed_since = self._shed_since, 0
        disordered = self._draw.random() < self.options.disordered
        arrival_s = (from_s + until_s) / 2
        raw_bytes = events * self.options.event_bytes
        run = Run(self._next_seq, self._next_seq + events - 1, _NO_ROWS, arrival_s, raw_bytes, disordered)
        self._next_seq += events
        self._undone[run.first_seq] = run
        self._undone_events += events
        self._linger.cut(events)
        self.tally.arrived(run.first_seq, run.last_seq, shed)
        self._profiler.arrived(
            self.name,
            events=events + shed,
            raw_bytes=raw_bytes * (events + shed) // events,
            first_due_s=arrival_s,
            last_due_s=arrival_s,
        )
        self._handle(told.RunLogged(at_s=self._agenda.now_s, run=run))

    # ---------------------------------------------------------------------------------------------------- the exchange

    def _handle(self, event: told.Event[Run, _Result]) -> None:
        for instruction in self.exchange.handle(event):
            self._carry_out(instruction)

    def _carry_out(self, what: Instruction[Run, _Result]) -> None:
        match what:
            case Pack() | Send():
                promise(what.lane in self.lanes, f"{self.name}: {what} is for a lane that is not open")
                self.lanes[what.lane].order(what)
            case Dispatched():
                self._dispatched(what)
            case Done():
                self._done(what)
            case Release():
                self._released_now(what)
            case FailLane():
                self._on_failed(what.lane)
            case AskedAgain():
                self._trace.note(f"{self.name}: run {what.first_seq} is overdue in {what.lane}")
            case Moved():
                self._trace.note(f"{self.name}: {what.runs} runs of {what.lane} went elsewhere")

    def set_shares(self, shares: Mapping[str, float]) -> None:
        """Follow other shares from now on."""
        self._handle(told.SharesSet(at_s=self._agenda.now_s, shares=shares))

    # ---------------------------------------------------------------------------------------------------------- lanes

    def add_lane(self, host: Host) -> None:
        """Let a host take part."""
        self.lanes[host.name] = Lane(host, self, self._agenda)
        self._handle(told.LaneOpened(at_s=self._agenda.now_s, lane=host.name, credit_bytes=CREDIT_BYTES))

    def remove_lane(self, name: str, reason: str) -> None:
        """Take a lane out, because it was lost or for no ``reason``; what is open in it goes elsewhere."""
        lane = self.lanes.pop(name, None)
        if lane is not None:
            lane.closed = True
            self._handle(told.LaneLost(at_s=self._agenda.now_s, lane=name, reason=reason))

    def drain_lane(self, name: str) -> None:
        """Give a lane no further run."""
        self._handle(told.LaneDraining(at_s=self._agenda.now_s, lane=name))

    def tell(self, event: LaneEvent) -> None:
        """See ``LaneOwner``."""
        self._handle(event)

    def open_runs(self, lane: str) -> int:
        """See ``LaneOwner``."""
        return self.exchange.lane(lane).open_runs if lane in self.lanes else 0

    def payload_bytes(self, lane: str, run: Run) -> int:
        """See ``LaneOwner``."""
        return run.raw_bytes if lane == HOME else round(run.raw_bytes * self.options.sent_part)

    def _dispatched(self, what: Dispatched[Run]) -> None:
        run, away = what.run, what.lane != HOME
        promise(not away or not run.disordered, f"{self.name}: a run out of order went to {what.lane}")
        self._profiler.dispatched(
            self.name,
            first_seq=run.first_seq,
            lane=what.lane,
            events=run.events,
            raw_bytes=run.raw_bytes,
            sent_bytes=what.sent_bytes if away else 0,
            oldest_arrival_s=run.arrival_s,
        )
        if away:
            self.sent_bytes += what.sent_bytes
            self.tally.sent(run.raw_bytes, what.sent_bytes)

    def work_s(self, run: Run, machines: Machines, lane_runs: int) -> float:
        """See ``LaneOwner``: as measured for this query, else as for any; its part of what a micro-batch costs."""
        options = self.options
        batch_s = machines.batch_s if options.batch_s is None else options.batch_s
        event_s = 1.0 / machines.events_per_s if options.event_s is None else options.event_s
        runs = min(max(1.0, WAITING_PART * lane_runs), options.batch_runs)
        return (batch_s + (runs - 1.0) * options.further_run_s) / runs + run.events * event_s

    def on_reply(self, lane: str, reply: Reply) -> None:
        """See ``LaneOwner``: the first completion counts."""
        now_s = self._agenda.now_s
        self._handle(
            told.Answered(
                at_s=now_s,
                lane=lane,
                first_seq=reply.first_seq,
                last_seq=reply.last_seq,
                results=_Result(reply.first_seq, reply.last_seq, now_s),
                result_bytes=(reply.last_seq + 1 - reply.first_seq) * self.options.event_bytes,
                batch_id=reply.batch_id,
                batch_s=reply.batch_s,
            )
        )

    def _done(self, done: Done[Run]) -> None:
        now_s = self._agenda.now_s
        for run in done.runs:
            undone = self._undone.pop(run.first_seq, None)
            promise(done.counts and undone is run, f"{self.name}: run {run.first_seq} is completed twice")
            self._undone_events -= run.events
            self._held_events += run.events
            self.tally.completed(done.lane, max(0.0, now_s - run.arrival_s), run.events)
            self._profiler.completed(
                self.name,
                first_seq=run.first_seq,
                last_seq=run.last_seq,
                lane=done.lane,
                mean_arrival_s=run.arrival_s,
                completed_s=now_s,
                batch_id=done.batch_id,
                batch_s=done.batch_s,
            )

    # ------------------------------------------------------------------------------------------------------- delivery

    def _released_now(self, release: Release[_Result]) -> None:
        first, last, result = release.first_seq, release.last_seq, release.results
        events = last - first + 1
        promise(not self._released.overlaps(first, last), f"{self.name}: {first}-{last} is released twice")
        same = (result.first_seq, result.last_seq, release.events) == (first, last, events)
        promise(same, f"{self.name}: {first}-{last} is released with another run's result")
        if self.options.ordered and not release.late:
            promise(first > self._highest_seq, f"{self.name}: {first} is out of order and not marked")
        if self.options.ordered and self.options.flush_s is None:
            promise(first == self._released.watermark(), f"{self.name}: {first} did not wait, in strict order")
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
        self._handle(told.Committed(at_s=self._agenda.now_s, ranges=ranges))

    def end_slot(self) -> None:
        """Do what a pipeline does before a slot ends: overdue runs, waiting events, held results."""
        now_s, exchange = self._agenda.now_s, self.exchange
        self._handle(told.Tick(at_s=now_s))
        self._handle(told.SlotPassed(at_s=now_s))
        for lane in exchange.open_lanes:
            if exchange.waiting_events and not exchange.lane(lane).has_room:
                self._profiler.no_credit(self.name, lane)
        # As in the daemon, what is due and in no run yet waits, too.
        unread = int(self._due_events + _ALMOST)
        since_s = [exchange.oldest_waiting_s, self._open_since_s if unread else None]
        oldest_s = min((at_s for at_s in since_s if at_s is not None), default=None)
        self._profiler.waiting(self.name, events=exchange.waiting_events + unread, oldest_arrival_s=oldest_s)

    # ------------------------------------------------------------------------------------------------------- promises

    @property
    def idle(self) -> bool:
        """Whether everything that came is committed."""
        return self.exchange.idle

    def check(self) -> None:
        """Check that every event is accounted for.

        Raises:
            BrokenPromiseError: one is not, or twice.
        """
        counted = self._undone_events + self._held_events + self._released_events
        promise(counted == self._next_seq, f"{self.name}: {self._next_seq} events came, {counted} are accounted for")

    def check_all(self, *, thorough: bool = False) -> None:
        """Check also that what is not done waits or is in one lane, and at times all invariants of the exchange.

        Args:
            thorough: all invariants now.

        Raises:
            BrokenPromiseError: it is not so.
        """
        self.check()
        exchange = self.exchange
        promise(set(exchange.open_lanes) == set(self.lanes), f"{self.name}: the lanes are {set(self.lanes)}")
        somewhere = exchange.waiting_events + sum(exchange.lane(name).open_events for name in self.lanes)
        promise(
            somewhere == self._undone_events,
            f"{self.name}: {self._undone_events} events are not done, but {somewhere} wait or are in a lane",
        )
        held = exchange.held_count
        promise((held > 0) is (self._held_events > 0), f"{self.name}: {held} results hold {self._held_events} events")
        # It goes through all runs.
        self._checks += 1
        if thorough or self._checks % _VALIDATED_EVERY == 0:
            try:
                exchange.validate()
            except AssertionError as error:
                raise BrokenPromiseError(f"{self.name}: {error}") from error

    def check_slot(self) -> None:
        """Check, at the end of a slot, that nothing is held longer than order needs.

        Raises:
            BrokenPromiseError: something is.
        """
        deadline_s = self.exchange.next_deadline_s
        promise(
            deadline_s is None or deadline_s > self._agenda.now_s,
            f"{self.name}: results are held although their gap was waited for until {deadline_s!r}",
        )

    def check_end(self) -> None:
        """Check that every event was released exactly once.

        Raises:
            BrokenPromiseError: one was not.
        """
        promise(self.idle, f"{self.name} is not at rest")
        expected = [(0, self._next_seq - 1)] if self._next_seq else []
        promise(list(self._released) == expected, f"{self.name}: {self._next_seq} events, released {self._released}")
        promise(self.tally.delivery.weight == self._next_seq, f"{self.name}: {self.tally.delivery.weight} deliveries")
