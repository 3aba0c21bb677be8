"""A query of a simulated world whose parts each have a place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from gateway.core.decide.profiler import Profiler
from gateway.simulate.options import QueryOptions
from gateway.simulate.runs.agenda import Agenda, Trace
from gateway.simulate.runs.enginehosts import SimulatedEngineHost
from gateway.simulate.runs.keyed.dividedflow import DividedFlow
from gateway.simulate.runs.keyed.part import SimulatedPart
from gateway.simulate.runs.keyed.partmoving import OPENS_S
from gateway.simulate.runs.stateful.simulatedmover import NO_ANSWER_S
from policies.failures.overdue import Patience
from policies.signals import HOME

_LOOK_S: Final = 0.5
_DOWN_S: Final = (1.0, 6.0)
_SET_ASIDE_S: Final = 1.0


class DividedQuery(DividedFlow):
    """Opens its parts where they are to be, and lets them move, as ``PlacedQuery`` does.

    Args:
        options: the query and its load.
        seed: of random draws.
        profiler: the production Profiler.
        agenda: time.
        trace: the history.
        on_failed: called with a lane's name when it must be abandoned.
        patience: how long to wait for answers.
        on_kept_off: called with (query, VM, reason) when a part cannot be on a VM.

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
        super().__init__(options, seed, profiler, agenda, trace, on_failed, patience)
        self._on_kept_off = on_kept_off
        self._shares: Mapping[str, float] = {HOME: 1.0}
        self._looks = self._opening = False
        self._up_s = 0.0
        self._began_s: float | None = None
        self._reopened_at: float | None = None

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
        self._begin_flow()

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
