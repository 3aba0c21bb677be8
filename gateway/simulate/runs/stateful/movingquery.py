"""A query with state of a simulated world, which moves to VMs and back, while the gateway may be killed at any step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from gateway.simulate.options import QueryOptions
from gateway.simulate.runs.enginehosts import SimulatedEngineHost
from gateway.simulate.runs.promises import BrokenPromiseError
from gateway.simulate.runs.stateful.placedstate import PlacedState
from gateway.simulate.runs.stateful.simulatedmover import NO_ANSWER_S, STEP_S, SimulatedMover
from policies.signals import HOME

_LOOK_S: Final = 0.5
_OPENS_S: Final = (0.3, 2.0)
_DOWN_S: Final = (1.0, 6.0)
_SET_ASIDE_S: Final = 1.0
KeepOff = Callable[[str, str, str], None]


class MovingQuery(PlacedState):
    """Moves as ``Mover`` and ``PlacedQuery`` let a query with state move.

    The decisions, and what is kept for a return, are the production code; the steps are on the agenda.

    Args:
        options: the query and its load.
        seed: of random draws.
        on_kept_off: called with (query, VM, reason) when the query cannot move to a VM.
        rest: see ``SimulatedQuery``.

    Attributes:
        mover: copies its state.
    """

    def __init__(self, options: QueryOptions, seed: int, *rest: Any, on_kept_off: KeepOff) -> None:
        super().__init__(options, seed, *rest)
        self._on_kept_off = on_kept_off
        self._hosts: dict[str, SimulatedEngineHost] = {}
        self._looks = False
        self._reopened_at: float | None = None
        self._up_s = 0.0
        self.mover = SimulatedMover(
            self, options, options.state_bytes, self._hosts, self._disk, self._agenda, self._trace
        )
        self._rest()

    def _interrupt(self) -> None:
        """Take none of the steps that were to follow."""
        self.mover.interrupt()
        self._rest()

    def _rest(self) -> None:
        self._busy = False
        self._heading = ""
        self._began_s: float | None = None

    # -------------------------------------------------------------------------------------------------- where it goes

    def add_lane(self, host: SimulatedEngineHost) -> None:
        """Note a host where the query can be opened."""
        self._hosts[host.name] = host
        if not self._looks:
            self._looks = True
            self._look()

    def remove_lane(self, name: str, reason: str) -> None:
        """Note that a host is gone."""
        self.mover.lose(name)
        if self._hosts.pop(name, None) is None:
            return
        if name == self.place != HOME and self._engine is not None:
            self._interrupt()
            self._lose_place(reason)
        elif name in (self.place, self._heading) or (name == HOME and self._engine is None):
            self._interrupt()
            self._close()

    def drain_lane(self, name: str) -> None:
        """Leave a host."""
        self.mover.drain(name)

    def set_shares(self, shares: Mapping[str, float]) -> None:
        """Use these shares from now on."""
        self.mover.follow(shares)

    def uses(self, lane: str) -> bool:
        """See ``SimulatedQuery``."""
        return self.place == lane

    def _look(self) -> None:
        """Do what is due."""
        self._agenda.after(_LOOK_S, self._look)
        if self._busy or self._agenda.now_s < self._up_s or HOME not in self._hosts:
            return
        due = self.mover.due
        if self._engine is None and self.place == HOME:
            self._open_at(HOME)
        elif self._engine is not None and due and self.place == HOME:
            self._go_to(self.mover.target)
        elif self._engine is None or due:
            self._go_home()
        elif self.place not in self.lanes:
            raise BrokenPromiseError(f"{self.name} stays at {self.place}, which is lost")
        elif not self.mover.copying and not self._killed(self.options.killed_at_look):
            self.mover.copy()

    # ------------------------------------------------------------------------------------------- what its mover tells

    def killed_at_step(self) -> bool:
        """See ``MoverOwner``."""
        return self._killed(self.options.killed_at_step)

    def on_refused(self, vm: str, reason: str) -> None:
        """See ``MoverOwner``."""
        self._trace.note(f"{self.name} does not move to {vm}: {reason}")
        self._hosts.pop(vm, None)
        self._interrupt()
        self._on_kept_off(self.name, vm, reason)

    def on_copied_home(self, resume_seq: int) -> None:
        """See ``MoverOwner``."""
        self._kept.keep_from(resume_seq)
        self._disk.forget_ends(resume_seq)

    # --------------------------------------------------------------------------------------------------------- moving

    def _go_to(self, vm: str) -> None:
        self._interrupt()
        self._busy, self._heading, self._began_s = True, vm, self._agenda.now_s
        self._close()
        self.mover.then(STEP_S, lambda: self.mover.send_rest(lambda: self._rest_sent(vm)))

    def _rest_sent(self, vm: str) -> None:
        self.mover.then(STEP_S, lambda: self._noted(vm))

    def _noted(self, vm: str) -> None:
        self._disk.forget_ends(self.mover.home_seq)
        self._open_at(vm)

    def _go_home(self) -> None:
        self._interrupt()
        self._busy, self._began_s = True, self._agenda.now_s
        self._close()
        self.mover.then(STEP_S, lambda: self.mover.fetch_rest(self._fetched))

    def _fetched(self) -> None:
        self.mover.then(STEP_S, lambda: self._open_at(HOME))

    def _reopen(self) -> None:
        """Open the query again from its checkpoint, where it is; if that did not help, let it fail and go home."""
        if self._engine is None:
            return
        self._interrupt()
        self._close()
        reopened_at, self._reopened_at = self._reopened_at, self.tally.latency.weight
        if reopened_at == self._reopened_at:
            self._trace.note(f"{self.name} gets no answers although it was opened again")
            self._up_s = self._agenda.now_s + _SET_ASIDE_S
        else:
            self._trace.note(f"{self.name} is opened again")
            self._open_at(self.place)

    def _killed(self, chance: float) -> bool:
        """Kill the gateway, as far as this query is concerned, with this chance; return whether that happened."""
        if self._draw.random() >= chance:
            return False
        self._trace.note(f"fault: the gateway is killed, and {self.name} with it at {self.place}")
        self._close(killed=True)
        self.mover.begin()
        self._rest()
        self.place = HOME
        self._up_s = self._agenda.now_s + self._draw.uniform(*_DOWN_S)
        return True

    # -------------------------------------------------------------------------------------------- opening and closing

    def _open_at(self, name: str) -> None:
        self._busy = True
        self.mover.then(self._draw.uniform(*_OPENS_S), lambda: self._opened(name))

    def _opened(self, name: str) -> None:
        host = self._hosts.get(name)
        if host is None or not host.answers:
            self.mover.then(NO_ANSWER_S, lambda: self._not_opened(name))
            return
        checkpoint = self.mover.checkpoint_at(name)
        if self._began_s is not None:
            self.mover.arrived(name, self._began_s)
        self._interrupt()
        self.mover.opened()
        self._open_on(host, checkpoint, self.mover.home_seq)

    def _not_opened(self, name: str) -> None:
        if name == HOME:
            self._on_failed(HOME)
        elif self.place == HOME:
            self.on_refused(name, "it does not open the query")
        self._interrupt()

    def end_slot(self) -> None:
        """See ``SimulatedQuery``; also report what a move would cost."""
        if self._engine is not None:
            super().end_slot()
        self._profiler.moving(self.name, self.mover.pause_expected_s if self.place == HOME else 0.0)
