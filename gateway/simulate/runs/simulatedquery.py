"""A query of a simulated world: the production RunBook, Router and Reorderer between a load and a sink that counts."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from engines.simulated.generators import Poisson
from gateway.core.decide.profiler import Profiler
from gateway.core.intervals import IntervalSet
from gateway.query.flow.linger import Linger
from gateway.query.flow.reorder import Release, Reorderer
from gateway.query.flow.routing import Router
from gateway.query.flow.runbook import Run, RunBook
from gateway.query.flow.statistics import Tally
from gateway.simulate.options import WAITING_PART, Machines, QueryOptions
from gateway.simulate.runs.agenda import Agenda, Trace
from gateway.simulate.runs.enginehosts import Lane, Reply
from policies.signals import HOME
from policies.switching.shedding import Sampler

_ALMOST = 1e-6
_NO_ROWS = pa.RecordBatch.from_pylist([], schema=pa.schema([]))


class BrokenPromiseError(AssertionError):
    """Something that must never happen in any world has happened."""


def promise(kept: bool, what: str) -> None:
    """Raise unless a promise is kept.

    Raises:
        BrokenPromiseError: it is not.
    """
    if not kept:
        raise BrokenPromiseError(what)


@dataclass(frozen=True, slots=True)
class _Result:
    events: int
    arrival_s: float
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
    """

    def __init__(
        self,
        options: QueryOptions,
        seed: int,
        profiler: Profiler,
        agenda: Agenda,
        trace: Trace,
        on_failed: Callable[[str], None],
    ) -> None:
        self.options = options
        self.name = options.settings.name
        self.lanes: dict[str, Lane] = {}
        self.tally = Tally()
        self.router = Router()
        self.sent_bytes = 0
        self._profiler = profiler
        self._agenda = agenda
        self._trace = trace
        self._on_failed = on_failed
        self._book = RunBook(IntervalSet())
        self._reorderer: Reorderer[_Result] = Reorderer(flush_s=options.flush_s, ordered=options.ordered)
        self._draw = random.Random(f"query {seed} {self.name}")  # noqa: S311  # no secret
        draw = np.random.default_rng([seed, int.from_bytes(self.name.encode())])
        self._load = Poisson(options.load, draw) if options.poisson else options.load
        self._due_events = 0.0
        self._open_since_s: float | None = None
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
        rates = [lane.rate_per_s for lane in self.lanes.values()]
        self._served_per_s = min((rate for rate in rates if rate > 0), default=self._served_per_s)
        return self._linger.next_s(self._book.waiting_runs, self._served_per_s)

    def arrive(self, from_s: float, to_s: float) -> None:
        """Take what came from the source in this time, and close the run if it was open for long enough."""
        self._due_events += self._load.events(from_s, to_s)
        if self._open_since_s is None:
            self._open_since_s = from_s
        if to_s - self._open_since_s >= self._linger_s - _ALMOST or self._due_events >= self.options.run_events:
            self.cut(to_s)

    def cut(self, to_s: float) -> None:
        """Close the run that is open."""
        from_s = to_s if self._open_since_s is None else self._open_since_s
        self._open_since_s = None
        left = int(self._due_events + _ALMOST)
        self._due_events -= left
        shed = self.sampler.shed(left)
        self._shed_since += shed
        left -= shed
        while left > 0:
            events = min(left, self.options.run_events)
            left -= events
            shed, self._shed_since = self._shed_since, 0
            disordered = self._draw.random() < self.options.disordered
            arrival_s = (from_s + to_s) / 2
            raw_bytes = events * self.options.event_bytes
            run = Run(self._next_seq, self._next_seq + events - 1, _NO_ROWS, arrival_s, raw_bytes, disordered)
            self._next_seq += events
            self._undone[run.first_seq] = run
            self._undone_events += events
            self._linger.cut(events)
            self._book.add(run)
            self.tally.arrived(run.first_seq, run.last_seq, shed)
            self._profiler.arrived(
                self.name,
                events=events + shed,
                raw_bytes=raw_bytes * (events + shed) // events,
                first_due_s=arrival_s,
                last_due_s=arrival_s,
            )
        self.deal()

    def deal(self) -> None:
        """Give waiting runs to lanes that have room, in order of seq."""
        while (run := self._book.next_waiting()) is not None:
            with_room = {name for name, lane in self.lanes.items() if lane.has_room}
            tried = self._book.tried(run)
            if tried:
                name = self.router.pick_again(run.events, with_room, tried, home_only=run.disordered)
            else:
                name = self.router.pick(run.events, with_room, home_only=run.disordered)
            if name is None:
                return
            promise(name in with_room, f"{self.name}: a run went to {name}, which has no room")
            promise(name == HOME or not run.disordered, f"{self.name}: a run out of order went to {name}")
            self.router.dealt(name, run.events)
            self.lanes[name].put(self._book.assign(name))

    # ---------------------------------------------------------------------------------------------------------- lanes

    def add_lane(self, lane: Lane) -> None:
        """Let a lane take part."""
        self.lanes[lane.name] = lane
        self.deal()

    def remove_lane(self, name: str) -> None:
        """Take a lane out; what is open in it goes elsewhere."""
        lane = self.lanes.pop(name, None)
        if lane is not None:
            lane.closed = True
            self._book.give_back(name)
            self.deal()

    def on_sent(self, lane: Lane, run: Run) -> int:
        """See ``LaneOwner``."""
        sent_bytes = 0 if lane.name == HOME else round(run.raw_bytes * self.options.sent_part)
        self.sent_bytes += sent_bytes
        self._profiler.dispatched(
            self.name,
            first_seq=run.first_seq,
            lane=lane.name,
            events=run.events,
            raw_bytes=run.raw_bytes,
            sent_bytes=sent_bytes,
            oldest_arrival_s=run.arrival_s,
        )
        if lane.name != HOME:
            self.tally.sent(run.raw_bytes, sent_bytes)
        return sent_bytes

    def on_room(self) -> None:
        """See ``LaneOwner``."""
        self.deal()

    def work_s(self, run: Run, machines: Machines, lane_runs: int) -> float:
        """See ``LaneOwner``: as measured for this query, else as for any; its part of what a micro-batch costs."""
        options = self.options
        batch_s = machines.batch_s if options.batch_s is None else options.batch_s
        event_s = 1.0 / machines.events_per_s if options.event_s is None else options.event_s
        runs = min(max(1.0, WAITING_PART * lane_runs), options.batch_runs)
        return (batch_s + (runs - 1.0) * options.further_run_s) / runs + run.events * event_s

    def on_answer(self, lane: Lane, reply: Reply) -> None:
        """See ``LaneOwner``: the first completion counts."""
        runs, counts = self._book.complete(lane.name, reply.first_seq, reply.last_seq)
        for run in runs:
            for other in self.lanes.values():
                if other is not lane:
                    other.forget(run.first_seq)
        if counts:
            for run in runs:
                self._completed(run, lane.name, reply)
        self.deal()

    def _completed(self, run: Run, lane: str, reply: Reply) -> None:
        now_s = self._agenda.now_s
        promise(self._undone.pop(run.first_seq, None) is run, f"{self.name}: run {run.first_seq} is completed twice")
        self._undone_events -= run.events
        self._held_events += run.events
        self.tally.completed(lane, max(0.0, now_s - run.arrival_s), run.events)
        self._profiler.completed(
            self.name,
            first_seq=run.first_seq,
            last_seq=run.last_seq,
            lane=lane,
            mean_arrival_s=run.arrival_s,
            completed_s=now_s,
            batch_id=reply.batch_id,
            batch_s=reply.batch_s,
        )
        result = _Result(run.events, run.arrival_s, now_s)
        self._send_out(self._reorderer.complete(run.first_seq, run.last_seq, result, now_s))

    # ------------------------------------------------------------------------------------------------------- delivery

    def _send_out(self, releases: list[Release[_Result]]) -> None:
        now_s = self._agenda.now_s
        for release in releases:
            first, last, result = release.first_seq, release.last_seq, release.item
            events = last - first + 1
            promise(not self._released.overlaps(first, last), f"{self.name}: {first}-{last} is released twice")
            promise(result.events == events, f"{self.name}: {first}-{last} is released with another run's result")
            if self.options.ordered and not release.late:
                promise(first > self._highest_seq, f"{self.name}: {first} is out of order and not marked")
            if self.options.ordered and self.options.flush_s is None:
                promise(first == self._released.watermark(), f"{self.name}: {first} did not wait, in strict order")
            self._released.add(first, last)
            self._highest_seq = max(self._highest_seq, last)
            self._held_events -= events
            self._released_events += events
            self.tally.released(max(0.0, now_s - result.arrival_s), events, events, late=release.late)

    def end_slot(self) -> None:
        """Do what a pipeline does before a slot ends: overdue runs, waiting events, held results."""
        self._see_overdue()
        waiting_events = self._book.waiting_events
        for lane in self.lanes.values():
            lane.end_slot()
            if waiting_events and not lane.has_room:
                self._profiler.no_credit(self.name, lane.name)
        waiting_s = self._book.oldest_arrival_s(())
        self._profiler.waiting(self.name, events=waiting_events, oldest_arrival_s=waiting_s)
        self._send_out(self._reorderer.flush(self._agenda.now_s))

    def _see_overdue(self) -> None:
        for lane in tuple(self.lanes.values()):
            silent = lane.silent_too_long
            overdue = lane.overdue()
            if silent:
                self._on_failed(lane.name)
            for first_seq in overdue:
                self._trace.note(f"{self.name}: run {first_seq} is overdue in {lane.name}")
                self._book.ask_again(lane.name, first_seq)
        self.deal()

    # ------------------------------------------------------------------------------------------------------- promises

    @property
    def idle(self) -> bool:
        """Whether everything that came is released."""
        return self._book.idle and self._reorderer.held_count == 0

    def check(self) -> None:
        """Check that every event is accounted for.

        Raises:
            BrokenPromiseError: one is not, or twice.
        """
        counted = self._undone_events + self._held_events + self._released_events
        promise(counted == self._next_seq, f"{self.name}: {self._next_seq} events came, {counted} are accounted for")

    def check_all(self) -> None:
        """Check also that what is not done waits or is in exactly one lane, and that shares sum to 1.

        Raises:
            BrokenPromiseError: it is not so.
        """
        self.check()
        somewhere = self._book.waiting_events + sum(lane.open_events for lane in self.lanes.values())
        promise(
            somewhere == self._undone_events,
            f"{self.name}: {self._undone_events} events are not done, but {somewhere} wait or are in a lane",
        )
        held = self._reorderer.held_count
        promise((held > 0) is (self._held_events > 0), f"{self.name}: {held} results hold {self._held_events} events")
        whole = sum(self.router.shares.values())
        promise(abs(whole - 1) < 1e-9, f"{self.name}: the shares sum to {whole!r}")

    def check_slot(self) -> None:
        """Check, at the end of a slot, that nothing is held longer than order needs.

        Raises:
            BrokenPromiseError: something is.
        """
        deadline_s = self._reorderer.next_deadline_s()
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
