"""A query with state of a simulated world, which moves to VMs and back, while the gateway may be killed at any step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from gateway.query.moving.ahead import CopiedAhead
from gateway.query.moving.mover import COPY_LATE_S, COPY_S, REST_SHORT_S, ROUNDS_MOST
from gateway.query.moving.pause import PauseEstimate
from gateway.simulate.options import QueryOptions
from gateway.simulate.runs.enginehosts import SimulatedEngineHost
from gateway.simulate.runs.promises import BrokenPromiseError
from gateway.simulate.runs.stateful.keptstate import Checkpoint, VirtualClock
from gateway.simulate.runs.stateful.placedstate import PlacedState
from policies.signals import HOME
from policies.switching.placing import move_is_due, target_place

_LOOK_S: Final = 0.5
_STEP_S: Final = 0.02
_NO_ANSWER_S: Final = 20.0
"""So long an engine host that hangs is waited for, while a query is opened there or its state is copied."""
_OPENS_S: Final = (0.3, 2.0)
_DOWN_S: Final = (1.0, 6.0)
_SET_ASIDE_S: Final = 1.0
_CHANGED_PART: Final = 0.1
"""The part of the state that changes from one copy to the next."""
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
        moves: how often it has moved, in both directions.
    """

    def __init__(self, options: QueryOptions, seed: int, *rest: Any, on_kept_off: KeepOff) -> None:
        super().__init__(options, seed, *rest)
        self.moves = 0
        self._on_kept_off = on_kept_off
        self._clock = VirtualClock(self._agenda)
        self._hosts: dict[str, SimulatedEngineHost] = {}
        self._copies: dict[str, Checkpoint] = {}
        self._shares: Mapping[str, float] = {HOME: 1.0}
        self._draining: set[str] = set()
        self._looks = False
        self._life = 0
        self._reopened_at: float | None = None
        self._up_s = self._copied_s = self._tried_s = 0.0
        self._begin()

    def _begin(self) -> None:
        """Begin with the memory of a new gateway."""
        self._ahead, self._pause = CopiedAhead(self._clock), PauseEstimate(self._clock)
        self._sent_to, self._home_seq = "", 0
        self._interrupt()

    def _interrupt(self) -> None:
        """Take none of the steps that were to follow."""
        self._life += 1
        self._busy = self._copying = False
        self._heading = ""
        self._began_s: float | None = None

    def _then(self, wait_s: float, step: Callable[[], None]) -> None:
        """Take a step later, unless something interrupts it; instead of it the gateway may be killed."""
        life = self._life

        def taken() -> None:
            if life == self._life and not self._killed(self.options.killed_at_step):
                step()

        self._agenda.after(wait_s, taken)

    # -------------------------------------------------------------------------------------------------- where it goes

    def add_lane(self, host: SimulatedEngineHost) -> None:
        """Note a host where the query can be opened."""
        self._hosts[host.name] = host
        if not self._looks:
            self._looks = True
            self._look()

    def remove_lane(self, name: str, reason: str) -> None:
        """Note that a host is gone."""
        self._draining.discard(name)
        self._copies.pop(name, None)
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
        self._draining.add(name)

    def set_shares(self, shares: Mapping[str, float]) -> None:
        """Use these shares from now on."""
        self._shares = dict(shares)

    def uses(self, lane: str) -> bool:
        """See ``SimulatedQuery``."""
        return self.place == lane

    @property
    def _vms(self) -> set[str]:
        return self._hosts.keys() - {HOME}

    @property
    def target(self) -> str:
        """Where the query is to be."""
        return target_place(self.place, self._shares, self._vms - self._draining)

    def _look(self) -> None:
        """Do what is due."""
        self._agenda.after(_LOOK_S, self._look)
        if self._busy or self._agenda.now_s < self._up_s or HOME not in self._hosts:
            return
        target = self.target
        due = move_is_due(
            self.place,
            target,
            self._vms,
            copied_ahead=self._ahead.is_for(target),
            pause_s=self._pause.expected_s,
            pause_most_s=self.options.settings.pause_most_s,
        )
        if self._engine is None and self.place == HOME:
            self._open_at(HOME)
        elif self._engine is not None and due and self.place == HOME:
            self._go_to(target)
        elif self._engine is None or due:
            self._go_home()
        elif self.place not in self.lanes:
            raise BrokenPromiseError(f"{self.name} stays at {self.place}, which is lost")
        elif not self._copying and not self._killed(self.options.killed_at_look):
            self._copy(target)

    def _copy(self, target: str) -> None:
        """Copy in the background."""
        now_s = self._agenda.now_s
        if target == self.place:
            self._ahead.forget()
            if self.place != HOME and now_s - self._tried_s >= COPY_S:
                self._copy_home(self._copied_home)
        elif not self._ahead.is_for(target):
            if self.place == HOME:
                self._send_ahead(target, 1)
            else:
                self._copy_home(lambda _: self._copied_ahead(target))

    # ------------------------------------------------------------------------------------------------- copying ahead

    def _send_ahead(self, vm: str, turn: int) -> None:
        self._copying, self._sent_to = True, vm
        begun_s = self._agenda.now_s
        part = 1.0 if turn == 1 else _CHANGED_PART
        self._send(vm, part, lambda: self._sent_ahead(vm, begun_s, turn))

    def _sent_ahead(self, vm: str, begun_s: float, turn: int) -> None:
        if self._pause.copied(begun_s) <= REST_SHORT_S or turn == ROUNDS_MOST:
            self._copied_ahead(vm)
        else:
            self._send_ahead(vm, turn + 1)

    def _copied_ahead(self, target: str) -> None:
        self._copying = False
        self._ahead.done(target)

    def _send(self, vm: str, part: float, then: Callable[[], None]) -> None:
        """Send a part of the state to a VM; if it does not take it, the query does not move there."""
        host = self._hosts.get(vm)
        if host is None:
            self._refuse(vm, "its link is lost")
            return
        took_s = host.send_s(part * self.options.state_bytes) + 2 * host.delay_s
        refuse = lambda: self._refuse(vm, "it does not answer")  # noqa: E731
        self._then(took_s, lambda: then() if host.answers else self._then(_NO_ANSWER_S, refuse))

    def _refuse(self, vm: str, reason: str) -> None:
        self._trace.note(f"{self.name} does not move to {vm}: {reason}")
        self._hosts.pop(vm, None)
        self._interrupt()
        self._on_kept_off(self.name, vm, reason)

    def _copy_home(self, then: Callable[[bool], None]) -> None:
        """Copy the checkpoint from the VM where the query is; call ``then`` with whether that worked."""
        self._copying = True
        host = self._hosts[self.place]
        self._then(host.delay_s, lambda: self._read_copy(host, then))

    def _read_copy(self, host: SimulatedEngineHost, then: Callable[[bool], None]) -> None:
        if not host.answers:
            self._then(_NO_ANSWER_S, lambda: then(False))
            return
        copy = self._copies[host.name].copied()
        took_s = host.send_s(_CHANGED_PART * self.options.state_bytes) + host.delay_s
        self._then(took_s, lambda: self._install(copy, then))

    def _install(self, copy: Checkpoint, then: Callable[[bool], None]) -> None:
        self._disk.checkpoint = copy
        self._then(_STEP_S, lambda: self._installed(copy.resume_seq, then))

    def _installed(self, resume_seq: int, then: Callable[[bool], None]) -> None:
        self._home_seq = resume_seq
        self._kept.keep_from(resume_seq)
        self._disk.forget_ends(resume_seq)
        then(True)

    def _copied_home(self, worked: bool) -> None:
        self._copying = False
        self._tried_s = self._agenda.now_s
        self._copied_s = self._tried_s if worked else self._copied_s
        if self._tried_s - self._copied_s >= COPY_LATE_S:
            self._trace.note(f"{self.name} leaves {self.place}: no checkpoint came from there")
            self._draining.add(self.place)

    # --------------------------------------------------------------------------------------------------------- moving

    def _go_to(self, vm: str) -> None:
        self._interrupt()
        self._busy, self._heading, self._began_s = True, vm, self._agenda.now_s
        self._close()
        self._then(_STEP_S, lambda: self._send_rest(vm))

    def _send_rest(self, vm: str) -> None:
        begun_s, sent_to = self._agenda.now_s, self._sent_to
        self._send(sent_to, _CHANGED_PART, lambda: self._rest_sent(vm, sent_to, begun_s))

    def _rest_sent(self, vm: str, sent_to: str, begun_s: float) -> None:
        self._pause.copied(begun_s)
        self._copies[sent_to] = self._disk.checkpoint.copied()
        self._home_seq = self._disk.checkpoint.resume_seq
        self._then(_STEP_S, lambda: self._noted(vm))

    def _noted(self, vm: str) -> None:
        self._disk.forget_ends(self._home_seq)
        self._open_at(vm)

    def _go_home(self) -> None:
        self._interrupt()
        self._busy, self._began_s = True, self._agenda.now_s
        self._close()
        self._then(_STEP_S, self._fetch_rest)

    def _fetch_rest(self) -> None:
        begun_s = self._agenda.now_s
        if self.place in self._hosts:
            self._copy_home(lambda _: self._fetched(begun_s))
        else:
            self._fetched(begun_s)

    def _fetched(self, begun_s: float) -> None:
        self._pause.copied(begun_s)
        self._then(_STEP_S, lambda: self._open_at(HOME))

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
        self._begin()
        self.place = HOME
        self._up_s = self._agenda.now_s + self._draw.uniform(*_DOWN_S)
        return True

    # -------------------------------------------------------------------------------------------- opening and closing

    def _open_at(self, name: str) -> None:
        self._busy = True
        self._then(self._draw.uniform(*_OPENS_S), lambda: self._opened(name))

    def _opened(self, name: str) -> None:
        host = self._hosts.get(name)
        if host is None or not host.answers:
            self._then(_NO_ANSWER_S, lambda: self._not_opened(name))
            return
        checkpoint = (self._disk.checkpoint if name == HOME else self._copies.get(name, Checkpoint())).copied()
        if name == HOME:
            self._disk.checkpoint = checkpoint
        else:
            self._copies[name] = checkpoint
        if self._began_s is not None:
            self._arrived(name)
        self._interrupt()
        self._tried_s = self._copied_s = self._agenda.now_s
        self._open_on(host, checkpoint, self._home_seq)

    def _not_opened(self, name: str) -> None:
        if name == HOME:
            self._on_failed(HOME)
        elif self.place == HOME:
            self._refuse(name, "it does not open the query")
        self._interrupt()

    def _arrived(self, name: str) -> None:
        assert self._began_s is not None, "it moves"
        pause_s = self._agenda.now_s - self._began_s
        self.moves += 1
        self._pause.moved(pause_s)
        self._ahead.forget()
        self._trace.note(f"{self.name} moved from {self.place} to {name} in {pause_s:.6f} s")

    def end_slot(self) -> None:
        """See ``SimulatedQuery``; also report what a move would cost."""
        if self._engine is not None:
            super().end_slot()
        self._profiler.moving(self.name, self._pause.expected_s if self.place == HOME else 0.0)
