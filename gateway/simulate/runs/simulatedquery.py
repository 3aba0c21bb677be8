"""A query of a simulated world: the production exchange between a load and a sink that counts."""

from __future__ import annotations

from collections.abc import Callable

import gateway.core.exchange.events as ev
from gateway.core.decide.profiler import Profiler
from gateway.core.exchange.instructions import Release
from gateway.core.intervals import IntervalSet
from gateway.query.flow.delivery import PART_S
from gateway.query.flow.measures import Measures
from gateway.query.flow.run import Run
from gateway.query.flow.statistics import Tally
from gateway.simulate.options import QueryOptions
from gateway.simulate.runs.agenda import Agenda, Trace
from gateway.simulate.runs.arrivals import Arrivals, SimulatedIngress, no_rows
from gateway.simulate.runs.dispatching import SimulatedDispatcher
from gateway.simulate.runs.enginehosts import Reply, SimulatedEngineHost, SimulatedLane
from gateway.simulate.runs.promises import BrokenPromiseError, promise
from policies.failures.overdue import Patience
from policies.signals import HOME
from policies.switching.shedding import Sampler

_REOPEN_S = 1.0


class SimulatedQuery(SimulatedDispatcher):
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
        self.tally = Tally()
        name = options.settings.name
        measures = Measures(name, profiler, self.tally)
        super().__init__(name, options, measures, agenda, trace, on_failed, patience)
        self._profiler = profiler
        self._outbox: list[tuple[int, int]] = []
        rows = no_rows if options.selections is None else options.selections.rows
        self._arrivals = Arrivals(options, seed, agenda.now_s, rows)
        self._ingress = SimulatedIngress(self._arrivals, options.run_s, options.batch_runs, self._backlog, self._take)
        self._released_events = self._released_again_events = 0
        self._released = IntervalSet()
        self._highest_seq = -1

    # --------------------------------------------------------------------------------------------------------- events

    def _backlog(self) -> tuple[int, list[float]]:
        return self.exchange.queued_runs(self.options.batch_runs), self.exchange.rates_per_s(self._agenda.now_s)

    @property
    def sampler(self) -> Sampler:
        """Decides which part of the events is shed."""
        return self._arrivals.sampler

    def arrive(self, to_s: float) -> float:
        """See ``SimulatedIngress.arrive``."""
        return self._ingress.arrive(to_s)

    def finish(self, to_s: float) -> None:
        """See ``SimulatedIngress.finish``."""
        self._ingress.finish(to_s)

    def _take(self, run: Run) -> None:
        self._undone[run.first_seq] = run
        self._undone_events += run.events
        self._measures.arrived(run)
        self._note_logged(run)
        self._handle(ev.RunLogged(at_s=self._agenda.now_s, run=run))

    def _note_logged(self, run: Run) -> None:
        self._witness.logged(run)

    # ---------------------------------------------------------------------------------------------------------- lanes

    def add_lane(self, host: SimulatedEngineHost) -> None:
        """Add a host's lane."""
        whole = sorted(self._planned & self._undone.keys())
        end_seq = self._undone[whole[-1]].last_seq + 1 if whole else 0
        self._open_lane(SimulatedLane(host, self, self._agenda, whole), end_seq)

    def remove_lane(self, name: str, reason: str) -> None:
        """Remove a lane, because it was lost or without a ``reason``; its open runs go elsewhere."""
        if name in self.lanes:
            self._overdue = False
            self._lose_lane(name, reason)

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

    def uses(self, lane: str) -> bool:
        """Return whether a lane may not be given up yet, because something of this query is there."""
        return self.open_runs(lane) > 0

    # ------------------------------------------------------------------------------------------------------- delivery

    def _released_now(self, release: Release[Reply]) -> None:
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
            gaps=self._arrivals.gaps.take(),
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
        self._check_undone()
        held = self.exchange.held_count
        if (held > 0) is not (self._held_events > 0):
            raise BrokenPromiseError(f"{self.name}: {held} results hold {self._held_events} events")
        self._validate(thorough=thorough)

    def check_end(self) -> None:
        """Check that every event was released exactly once.

        Raises:
            BrokenPromiseError: one was not.
        """
        promise(self.idle, f"{self.name} is not at rest")
        events = self._arrivals.next_seq
        expected = [(0, events - 1)] if events else []
        promise(list(self._released) == expected, f"{self.name}: {events} events, released {self._released}")
        deliveries = self.tally.delivery.weight
        promise(deliveries == events + self._released_again_events, f"{self.name}: {deliveries} deliveries")
