"""The runs and results of a simulated divided query: what ``Pipeline`` does, from the load to a sink."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from gateway.core.decide.profiler import Profiler
from gateway.core.exchange.instructions import Release
from gateway.core.exchange.views import open_together
from gateway.query.flow.delivery import TICK_S
from gateway.query.flow.keyed.together import Division, Together
from gateway.query.flow.measures import Measures
from gateway.query.flow.run import BATCH_RUNS_MAX, Run
from gateway.query.flow.statistics import Tally
from gateway.query.moving.batchends import needed_after
from gateway.simulate.options import QueryOptions
from gateway.simulate.runs.agenda import Agenda, Trace
from gateway.simulate.runs.arrivals import Arrivals, SimulatedIngress
from gateway.simulate.runs.enginehosts import Reply
from gateway.simulate.runs.keyed.counting import KEY, TIME, CountsOracle, KeyedRows
from gateway.simulate.runs.keyed.part import SimulatedPart
from gateway.simulate.runs.keyed.partmoving import PartMoving
from gateway.simulate.runs.promises import BrokenPromiseError, promise
from gateway.simulate.runs.stateful.keptstate import HomeDisk
from gateway.simulate.runs.witness import STANDSTILL_S
from policies.failures.overdue import Patience
from policies.keys.places import PartPlaces
from policies.switching.shedding import Sampler

_CLOSED_S: Final = 0.5
_KILLED_WRITING: Final = 0.5
_FORGET_COMMITS: Final = 16
"""After so many commits the file of the ends of micro-batches is shortened; more often than by the daemon."""


class DividedFlow(ABC):
    """Gives the parts their runs, joins their results, and checks what the sink gets.

    Args:
        options: the query and its load.
        seed: of random draws.
        profiler: the production Profiler.
        agenda: time.
        trace: the history.
        on_failed: called with a lane's name when it must be abandoned.
        patience: how long to wait for answers.

    Attributes:
        disk: what survives when the gateway is killed, beside the checkpoints of the parts.
        oracle: knows what the results must be.
        parts: its parts.
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
        name = self.name = options.settings.name
        self.options = options
        self.tally = Tally()
        self.disk = HomeDisk(name)
        self.oracle = CountsOracle(name, options.keys.keys + 1)
        self._profiler = profiler
        self._agenda = agenda
        self._trace = trace
        self._on_failed = on_failed
        self._draw = random.Random(f"parts {seed} {name}")  # noqa: S311  # no secret
        rows = KeyedRows(options.keys, np.random.default_rng([seed, 1, int.from_bytes(name.encode())]))
        self._arrivals = Arrivals(options, seed, agenda.now_s, rows)
        self._ingress = SimulatedIngress(self._arrivals, options.run_s, BATCH_RUNS_MAX, self._backlog, self._take)
        self._measures = Measures(name, profiler, self.tally)
        self._places = PartPlaces(options.parts, options.part_stay_s)
        measures = [Measures(name, profiler, self.tally, number) for number in range(options.parts)]
        self.parts = tuple(
            SimulatedPart(number, self, each, agenda, trace, on_failed, patience)
            for number, each in enumerate(measures)
        )
        self._moves = tuple(PartMoving(part, agenda, trace, self._draw, self._is_opening) for part in self.parts)
        self._together: Together[Reply] | None = None
        self._outbox: list[tuple[int, int, Reply]] = []
        self._offering = False
        self._given_before = self._commits = 0
        self._progress_seq, self._progress_s = 0, agenda.now_s
        self._finished_s: float | None = None

    @abstractmethod
    def killed(self, chance: float) -> bool:
        """See ``PartsOwner``."""

    @abstractmethod
    def on_overdue(self) -> None:
        """See ``PartsOwner``."""

    @abstractmethod
    def on_refused(self, part: int, vm: str, reason: str) -> None:
        """See ``PartsOwner``."""

    def _is_opening(self, host: str) -> bool:
        return any(move.heading == host for move in self._moves)

    def on_moved(self) -> None:
        """See ``PartsOwner``."""
        self._places.moved(self._agenda.now_s)

    # --------------------------------------------------------------------------------------------------------- events

    @property
    def sampler(self) -> Sampler:
        """Decides which part of the events is shed."""
        return self._arrivals.sampler

    def _backlog(self) -> tuple[int, list[float]]:
        waiting = max(part.exchange.waiting_runs for part in self.parts)
        waiting += 0 if self._together is None else self._together.waiting_runs
        now_s = self._agenda.now_s
        # The parts work on the same run.
        rates = [len(self.parts) * rate for part in self.parts for rate in part.exchange.rates_per_s(now_s)]
        return waiting, rates

    def arrive(self, to_s: float) -> float:
        """See ``SimulatedIngress.arrive``; a query that is closed reads nothing."""
        return to_s + _CLOSED_S if self._together is None else self._ingress.arrive(to_s)

    def finish(self, to_s: float) -> None:
        """See ``SimulatedIngress.finish``; a query that is closed reads the last events when it is open again."""
        self._finished_s = to_s
        if self._together is not None:
            self._ingress.finish(to_s)
            self._finished_s = None

    def _take(self, run: Run) -> None:
        assert self._together is not None, "a query that is closed reads nothing"
        self.oracle.logged(run)
        self.disk.log(run)
        self._measures.arrived(run)
        self._together.add(run)
        self.on_handled()

    def on_handled(self) -> None:
        """See ``PartsOwner``."""
        if self._together is None or self._offering:
            return
        self._offering = True
        exchanges = [part.exchange for part in self.parts]
        while self._together is not None and (pieces := self._together.next_pieces(exchanges)) is not None:
            promise(
                {piece.first_seq for piece in pieces} == {self._given_before},
                f"{self.name}: {pieces[0].first_seq} is given, {self._given_before} is next",
            )
            self._given_before = pieces[0].last_seq + 1
            for part, piece in zip(self.parts, pieces, strict=True):
                part.offer(piece)
        self._offering = False

    def _begin_flow(self) -> None:
        """Give the parts what the sink does not have or their states need, and let events flow."""
        checkpoints = [part.engine.checkpoint for part in self.parts]
        resume_seqs = tuple(each.resume_seq for each in checkpoints)
        planned_ends = [max(each.planned_end_seq, each.resume_seq) for each in checkpoints]
        places = tuple(part.place for part in self.parts)
        ends = (*self.disk.ends, *planned_ends)
        division = Division(KEY, {"": TIME}, (), places, resume_seqs, ends, self._places.arrived)
        together = self._together = Together(division, _joined)
        self.disk.forget_ends(needed_after(places, resume_seqs, [part.mover.home_seq for part in self.parts]))
        before = self.disk.committed_before
        self._given_before = min(*resume_seqs, before)
        for run in self.disk.runs_from(self._given_before):
            together.add(run)
        self.on_handled()
        if self._finished_s is not None:
            self.finish(self._finished_s)

    # ------------------------------------------------------------------------------------------------------- delivery

    def on_release(self, part: int, release: Release[Reply]) -> None:
        """See ``PartsOwner``."""
        assert self._together is not None, "it is open"
        complete = self._together.joined(part, release)
        if complete is None:
            return
        latency_s = max(0.0, self._agenda.now_s - complete.arrival_s)
        self.tally.released(latency_s, complete.events, complete.events, late=complete.late)
        if not self._outbox:
            self._agenda.after(TICK_S, self._commit)
        self._outbox.append((complete.first_seq, complete.last_seq, complete.results))

    @property
    def _needed_from(self) -> int:
        return min(part.kept.needed_from(self.disk.committed_before) for part in self.parts)

    def on_copied(self) -> None:
        """See ``PartsOwner``."""
        self.disk.forget_ends(self._needed_from)

    def _commit(self) -> None:
        if not self._outbox:
            return  # it was closed meanwhile
        chance, ends = self.options.killed_at_look, [last_seq + 1 for _, last_seq, _ in self._outbox]
        if self._draw.random() < chance:
            # The gateway is killed while it writes, or the disk fails and it writes again.
            self.disk.tear_ends(ends, self._draw.randint(1, len(str(ends[-1]))))
            if self.killed(_KILLED_WRITING):
                return
        ranges = self._store()
        if self.killed(chance):
            return
        self._outbox = []
        self._commits += 1
        self.disk.retire(self._needed_from)
        if self._commits % _FORGET_COMMITS == 0:
            self.disk.forget_ends(self._needed_from)
        last_seq = self.disk.committed_before - 1
        for part, move in zip(self.parts, self._moves, strict=True):
            part.tell_committed(last_seq)
            move.tell_committed(last_seq)
            part.committed(ranges)

    def _store(self) -> tuple[tuple[int, int], ...]:
        """Note the ends of micro-batches, and give the sink their results; return what it got."""
        ranges = tuple((first_seq, last_seq) for first_seq, last_seq, _ in self._outbox)
        self.disk.note_ends([last_seq + 1 for _, last_seq in ranges])
        for first_seq, last_seq, reply in self._outbox:
            answers = reply.results
            assert isinstance(answers, tuple), "it is joined"
            self.oracle.check_all(answers, first_seq, last_seq)
        self.disk.commit(ranges)
        return ranges

    def _report(self, together: Together[Reply]) -> None:
        unread_events, unread_since_s = self._arrivals.unread
        waiting_events = together.waiting_events + unread_events
        oldest = [together.oldest_waiting_s, unread_since_s if unread_events else None]
        for part in self.parts:
            part.tick()
            part.slot_passed()
            exchange = part.exchange
            waiting_events += exchange.waiting_events
            oldest.append(exchange.oldest_waiting_s)
            for lane in exchange.open_lanes:
                if exchange.waiting_events and not exchange.lane(lane).has_room:
                    self._profiler.no_credit(self.name, lane)
        self._profiler.under_way(
            self.name,
            waiting_events=waiting_events,
            oldest_arrival_s=min((at_s for at_s in oldest if at_s is not None), default=None),
            open_runs=open_together([part.exchange.open_by_lane() for part in self.parts]),
            gaps=self._arrivals.gaps.take(),
        )

    # ------------------------------------------------------------------------------------------------------- promises

    @property
    def idle(self) -> bool:
        """Whether everything that arrived is committed."""
        together = self._together
        if together is None or together.waiting_runs or self._finished_s is not None:
            return False
        return all(part.exchange.idle for part in self.parts)

    def check(self) -> None:
        """Check that every event was given to the parts, or waits.

        Raises:
            BrokenPromiseError: one is missing, or counted twice.
        """
        if self._together is not None:
            counted, came = self._given_before + self._together.waiting_events, self._arrivals.next_seq
            if counted != came:
                raise BrokenPromiseError(f"{self.name}: {came} events came, {counted} are accounted for")

    def check_all(self, *, thorough: bool = False) -> None:
        """See ``SimulatedPart.check_all``.

        Raises:
            BrokenPromiseError: an invariant is broken.
        """
        self.check()
        if self._together is not None:
            for part, move in zip(self.parts, self._moves, strict=True):
                part.check_all(thorough=thorough)
                move.check()

    def check_slot(self) -> None:
        """See ``SimulatedPart.check_slot``; also check that the sink gets something at times.

        Raises:
            BrokenPromiseError: an invariant is broken.
        """
        now_s, before = self._agenda.now_s, self.disk.committed_before
        if before != self._progress_seq or before == self._arrivals.next_seq:
            self._progress_seq, self._progress_s = before, now_s
        if now_s - self._progress_s > STANDSTILL_S:
            raise BrokenPromiseError(f"{self.name}: the sink got nothing for {now_s - self._progress_s:.0f} s")
        if self._together is not None:
            for part in self.parts:
                part.check_slot()

    def check_end(self) -> None:
        """Check that the sink has every event; it took them in order, and each once.

        Raises:
            BrokenPromiseError: one is missing.
        """
        events, committed = self._arrivals.next_seq, self.disk.committed_before
        promise(committed == events, f"{self.name}: {events} events came, the sink has {committed}")


def _joined(each: Sequence[Reply]) -> Reply:
    return replace(each[0], results=tuple(reply.results for reply in each))
