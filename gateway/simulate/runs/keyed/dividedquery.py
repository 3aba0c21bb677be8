"""A query of a simulated world whose parts each have a place: the production code between a load and a sink."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from gateway.core.decide.profiler import Profiler
from gateway.core.exchange.instructions import Release
from gateway.core.exchange.views import open_together
from gateway.query.flow.delivery import TICK_S
from gateway.query.flow.keyed.together import Division, Together
from gateway.query.flow.measures import Measures
from gateway.query.flow.run import Run
from gateway.query.flow.statistics import Tally
from gateway.query.moving.batchends import needed_after
from gateway.simulate.options import QueryOptions
from gateway.simulate.runs.agenda import Agenda, Trace
from gateway.simulate.runs.arrivals import Arrivals, SimulatedIngress
from gateway.simulate.runs.enginehosts import Reply, SimulatedEngineHost
from gateway.simulate.runs.keyed.counting import KEY, TIME, CountsOracle, KeyedRows
from gateway.simulate.runs.keyed.part import SimulatedPart
from gateway.simulate.runs.keyed.partmoving import OPENS_S, PartMoving
from gateway.simulate.runs.promises import BrokenPromiseError, promise
from gateway.simulate.runs.stateful.keptstate import HomeDisk
from gateway.simulate.runs.stateful.simulatedmover import NO_ANSWER_S
from policies.failures.overdue import Patience
from policies.keys.places import PartPlaces
from policies.signals import HOME
from policies.switching.shedding import Sampler

_LOOK_S: Final = 0.5
_CLOSED_S: Final = 0.5
_DOWN_S: Final = (1.0, 6.0)
_SET_ASIDE_S: Final = 1.0
_KILLED_WRITING: Final = 0.5
_FORGET_COMMITS: Final = 16
"""After so many commits the file of the ends of micro-batches is shortened; more often than by the daemon."""


class DividedQuery:
    """Places its parts, gives them runs and joins their results as ``RunningQuery`` and ``Pipeline`` do.

    Args:
        options: the query and its load.
        seed: of random draws.
        profiler: the production Profiler.
        agenda: time.
        trace: the history.
        on_failed: called with a lane's name when it must be abandoned.
        patience: how long to wait for answers.
        on_kept_off: called with (query, VM, reason) when a part cannot be on a VM.

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
        *,
        on_kept_off: Callable[[str, str, str], None],
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
        self._on_kept_off = on_kept_off
        self._draw = random.Random(f"parts {seed} {name}")  # noqa: S311  # no secret
        rows = KeyedRows(options.keys, np.random.default_rng([seed, 1, int.from_bytes(name.encode())]))
        self._arrivals = Arrivals(options, seed, agenda.now_s, rows)
        self._ingress = SimulatedIngress(self._arrivals, options.run_s, self._backlog, self._take)
        self._measures = Measures(name, profiler, self.tally)
        self._places = PartPlaces(options.parts, options.part_stay_s)
        self._shares: Mapping[str, float] = {HOME: 1.0}
        self.parts = tuple(
            SimulatedPart(
                number, self, Measures(name, profiler, self.tally, number), agenda, trace, on_failed, patience
            )
            for number in range(options.parts)
        )
        self._moves = tuple(PartMoving(part, agenda, trace, self._draw) for part in self.parts)
        self._together: Together[Reply] | None = None
        self._outbox: list[tuple[int, int, Reply]] = []
        self._offering = self._looks = self._opening = False
        self._given_before = self._commits = 0
        self._up_s = 0.0
        self._began_s: float | None = None
        self._reopened_at: float | None = None
        self._finished_s: float | None = None

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

    # -------------------------------------------------------------------------------------------------- where parts go

    def set_shares(self, shares: Mapping[str, float]) -> None:
        """Use the scheduler's shares from now on."""
        self._shares = dict(shares)
        self._place_parts()

    def _place_parts(self) -> None:
        """Let each part go where the scheduler's shares want it, as ``PlacedQuery`` does."""
        now_s, movers = self._agenda.now_s, [part.mover for part in self.parts]
        if any(mover.leaves for mover in movers):
            self._places.moved(now_s)
        usable = {HOME, *movers[0].usable}
        shares = {place: share for place, share in self._shares.items() if place in usable}
        targets = self._places.targets([mover.target for mover in movers], shares, now_s)
        for mover, target in zip(movers, targets, strict=True):
            mover.follow({target: 1.0})

    def add_lane(self, host: SimulatedEngineHost) -> None:
        """Note a host where parts can be opened."""
        for part in self.parts:
            part.hosts[host.name] = host
        if not self._looks:
            self._looks = True
            self._look()

    def remove_lane(self, name: str, reason: str) -> None:
        """Note that a host is gone."""
        for part, move in zip(self.parts, self._moves, strict=True):
            part.hosts.pop(name, None)
            part.mover.lose(name)
            if move.heading == name:
                move.drop()
        here = [part for part in self.parts if part.place == name]
        if self._opening or (name == HOME and here):
            self._close()
        else:
            for part in here:
                part.lose_place(reason)

    def drain_lane(self, name: str) -> None:
        """Leave a host."""
        for part in self.parts:
            part.mover.drain(name)

    def uses(self, lane: str) -> bool:
        """Return whether a lane may not be given up yet, because a part is there, or is being opened there."""
        return any(part.place == lane for part in self.parts) or any(move.heading == lane for move in self._moves)

    def _look(self) -> None:
        """Do what is due."""
        self._agenda.after(_LOOK_S, self._look)
        if self._opening or self._agenda.now_s < self._up_s or HOME not in self.parts[0].hosts:
            return
        if self._together is None:
            self._open_all()
        elif any(move.must_return for move in self._moves):
            self._began_s = self._agenda.now_s
            self._close()
            self._open_all()
        elif not self.killed(self.options.killed_at_look):
            for move in self._moves:
                move.look()

    # -------------------------------------------------------------------------------------------- opening and closing

    def _open_all(self) -> None:
        """Open each part where it was, or at home what was on a VM that is gone or must return."""
        self._opening = True
        left = set(self.parts)
        for part, move in zip(self.parts, self._moves, strict=True):
            place = HOME if move.must_return or part.place not in part.hosts else part.place
            self._open_part(part, place, left)

    def _open_part(self, part: SimulatedPart, place: str, left: set[SimulatedPart]) -> None:
        def opened() -> None:
            host = part.hosts.get(place)
            if host is None or not host.answers:
                part.mover.later(NO_ANSWER_S, lambda: self._not_opened(part, place))
                return
            if place != part.place:
                self._note_arrival(part, place)
            part.open(host)
            self._moves[part.number].begin()
            left.remove(part)
            if not left:
                self._let_flow()

        def opens() -> None:
            part.mover.then(self._draw.uniform(*OPENS_S), opened)

        if place == HOME != part.place:
            part.mover.fetch_rest(opens)
        else:
            opens()

    def _note_arrival(self, part: SimulatedPart, place: str) -> None:
        began_s = self._agenda.now_s if self._began_s is None else self._began_s
        part.mover.arrived(place, began_s)
        self._places.moved(self._agenda.now_s)

    def _not_opened(self, part: SimulatedPart, place: str) -> None:
        self._close()
        if place == HOME:
            self._on_failed(HOME)
        else:
            for each in self.parts:
                if each.place == place:
                    each.place = HOME
            part.on_refused(place, "it does not open the query")

    def _let_flow(self) -> None:
        """Give the parts what the sink does not have or their states need, and let events flow."""
        self._opening, self._began_s = False, None
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

    def _close(self, *, killed: bool = False) -> None:
        """Close all parts; what all of them have released goes to the sink, unless the gateway is killed."""
        self._opening, self._together = False, None
        for part, move in zip(self.parts, self._moves, strict=True):
            move.close(killed=killed)
            part.close(killed=killed)
        if not killed:
            self._store()
        self._outbox = []

    def on_overdue(self) -> None:
        """See ``PartsOwner``; if it did not help the last time, the query fails, and is opened again after a pause."""
        if self._together is None:
            return
        self._close()
        reopened_at, self._reopened_at = self._reopened_at, self.tally.latency.weight
        if reopened_at == self._reopened_at:
            self._trace.note(f"{self.name} gets no answers although it was opened again")
            self._up_s = self._agenda.now_s + _SET_ASIDE_S
        else:
            self._trace.note(f"{self.name} is opened again")
            self._open_all()

    def killed(self, chance: float) -> bool:
        """See ``PartsOwner``."""
        if self._draw.random() >= chance:
            return False
        places = ", ".join(part.place for part in self.parts)
        self._trace.note(f"fault: the gateway is killed, and {self.name} with it, with its parts at {places}")
        self._close(killed=True)
        for part, move in zip(self.parts, self._moves, strict=True):
            part.mover.begin()
            move.begin()
            part.place = HOME
        self._up_s = self._agenda.now_s + self._draw.uniform(*_DOWN_S)
        return True

    def on_refused(self, part: int, vm: str, reason: str) -> None:
        """See ``PartsOwner``."""
        self._moves[part].drop()
        self._on_kept_off(self.name, vm, reason)

    def on_moved(self) -> None:
        """See ``PartsOwner``."""
        self._places.moved(self._agenda.now_s)

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

    # ----------------------------------------------------------------------------------------------------------- slots

    def end_slot(self) -> None:
        """Do what the daemon does for a divided query before a slot ends."""
        if self._together is not None:
            self._report(self._together)
        pause_s = max(part.mover.pause_expected_s for part in self.parts)
        at_home = all(part.place == HOME for part in self.parts)
        self._profiler.moving(self.name, pause_s if at_home else 0.0, self._places.heaviest)
        self._places.end_slot()
        self._place_parts()

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
        """See ``SimulatedPart.check_slot``."""
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
