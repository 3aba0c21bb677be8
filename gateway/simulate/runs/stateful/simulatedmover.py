"""Copies the state of a simulated query, or of one part of it, ahead of a move, with it, and home while it is away."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Protocol

from gateway.query.moving.ahead import CopiedAhead
from gateway.query.moving.mover import COPY_LATE_S, COPY_S, REST_SHORT_S, ROUNDS_MOST
from gateway.query.moving.pause import PauseEstimate
from gateway.simulate.options import QueryOptions
from gateway.simulate.runs.agenda import Agenda, Trace
from gateway.simulate.runs.enginehosts import SimulatedEngineHost
from gateway.simulate.runs.stateful.keptstate import Checkpoint, VirtualClock
from policies.signals import HOME
from policies.switching.placing import move_is_due, next_place, target_place

STEP_S: Final = 0.02
NO_ANSWER_S: Final = 20.0
"""So long an engine host that hangs is waited for, while a query is opened there or its state is copied."""
_CHANGED_PART: Final = 0.1
"""The part of the state that changes from one copy to the next."""


class CheckpointAtHome(Protocol):
    """Keeps the checkpoint of the newest start at home."""

    checkpoint: Checkpoint


class MoverOwner(Protocol):
    """Moves, and is notified of what its mover does."""

    name: str
    place: str

    def killed_at_step(self) -> bool:
        """Kill the gateway now, with some chance; return whether that happened."""
        ...

    def on_refused(self, vm: str, reason: str) -> None:
        """Note that it does not move to a VM, which is not tried again."""
        ...

    def on_copied_home(self, resume_seq: int) -> None:
        """Note that the checkpoint at home continues at this seq."""
        ...


class SimulatedMover:
    """Does what ``Mover`` does, with its decisions; the steps are on the agenda.

    Args:
        owner: the query, or the part.
        options: the query's.
        state_bytes: how much state it has.
        hosts: the hosts that are linked, by name.
        disk: has the checkpoint at home.
        agenda: time.
        trace: the history.
        copies_while_held: see ``PauseEstimate``.

    Attributes:
        moves: how often it has moved, in both directions.
        copies: the checkpoints on VMs.
        copying: whether something is copied in the background.
        home_seq: where it would continue with its checkpoint at home, while it is away.
    """

    def __init__(
        self,
        owner: MoverOwner,
        options: QueryOptions,
        state_bytes: int,
        hosts: dict[str, SimulatedEngineHost],
        disk: CheckpointAtHome,
        agenda: Agenda,
        trace: Trace,
        *,
        copies_while_held: bool = True,
    ) -> None:
        self.moves = 0
        self._copies_while_held = copies_while_held
        self.copies: dict[str, Checkpoint] = {}
        self._owner = owner
        self._options = options
        self._state_bytes = state_bytes
        self._hosts = hosts
        self._disk = disk
        self._agenda = agenda
        self._trace = trace
        self._clock = VirtualClock(agenda)
        self._shares: Mapping[str, float] = {HOME: 1.0}
        self._draining: set[str] = set()
        self._life = 0
        self._copied_s = self._tried_s = 0.0
        self.begin()

    def begin(self) -> None:
        """Begin with the memory of a new gateway."""
        self._ahead = CopiedAhead(self._clock)
        self._pause = PauseEstimate(self._clock, copies_while_held=self._copies_while_held)
        self._sent_to, self.home_seq = "", 0
        self.interrupt()

    def interrupt(self) -> None:
        """Take none of the steps that were to follow."""
        self._life += 1
        self.copying = False

    def then(self, wait_s: float, step: Callable[[], None]) -> None:
        """Take a step later, unless something interrupts it; instead of it the gateway may be killed."""
        life = self._life

        def taken() -> None:
            if life == self._life and not self._owner.killed_at_step():
                step()

        self._agenda.after(wait_s, taken)

    def later(self, wait_s: float, step: Callable[[], None]) -> None:
        """Take a step later, unless something interrupts it; nothing else happens instead of it."""
        life = self._life
        self._agenda.after(wait_s, lambda: step() if life == self._life else None)

    # -------------------------------------------------------------------------------------------------- where it goes

    def follow(self, shares: Mapping[str, float]) -> None:
        """Use these shares from now on."""
        self._shares = dict(shares)

    def drain(self, vm: str) -> None:
        """Leave a VM, or do not move there."""
        self._draining.add(vm)

    def lose(self, vm: str) -> None:
        """Note that a VM is gone."""
        self._draining.discard(vm)
        self.copies.pop(vm, None)

    @property
    def _vms(self) -> set[str]:
        return self._hosts.keys() - {HOME}

    @property
    def usable(self) -> set[str]:
        """The VMs where it could be."""
        return self._vms - self._draining

    @property
    def target(self) -> str:
        """Where it is to be."""
        return target_place(self._owner.place, self._shares, self.usable)

    @property
    def next_place(self) -> str:
        """Where it goes next on its way to ``target``."""
        return next_place(self._owner.place, self.target)

    @property
    def is_lost(self) -> bool:
        """Whether the VM where it is is gone."""
        return self._owner.place not in {HOME, *self._vms}

    @property
    def leaves(self) -> bool:
        """Whether it is to be elsewhere, or where it is is gone."""
        return self.is_lost or self.target != self._owner.place

    @property
    def due(self) -> bool:
        """Whether it moves now."""
        return move_is_due(
            self._owner.place,
            self.target,
            self._vms,
            copied_ahead=self._ahead.is_for(self.target),
            pause_s=self.pause_expected_s,
            pause_most_s=self._options.settings.pause_most_s,
        )

    @property
    def pause_expected_s(self) -> float:
        """How long events would be held if it moved now."""
        return self._pause.expected_s

    # ---------------------------------------------------------------------------------------------- in the background

    def copy(self) -> None:
        """Copy in the background what is to be copied now."""
        target, now_s = self.target, self._agenda.now_s
        if target == self._owner.place:
            self._ahead.forget()
            if self._owner.place != HOME and now_s - self._tried_s >= COPY_S:
                self.fetch(self._copied_home)
        elif not self._ahead.is_for(target):
            self._ahead.forget()
            if self._owner.place == HOME:
                self._send_ahead(target, 1)
            else:
                self.fetch(lambda _: self._copied_ahead(target))

    def _send_ahead(self, vm: str, turn: int) -> None:
        self.copying, self._sent_to = True, vm
        begun_s = self._agenda.now_s
        part = 1.0 if turn == 1 else _CHANGED_PART
        self._send(vm, part, lambda: self._sent_ahead(vm, begun_s, turn))

    def _sent_ahead(self, vm: str, begun_s: float, turn: int) -> None:
        if self._pause.copied(begun_s) <= REST_SHORT_S or turn == ROUNDS_MOST:
            self._copied_ahead(vm)
        else:
            self._send_ahead(vm, turn + 1)

    def _copied_ahead(self, target: str) -> None:
        self.copying = False
        self._ahead.done(target)

    def _send(self, vm: str, part: float, then: Callable[[], None]) -> None:
        """Send a part of the state to a VM; if the VM does not take it, it does not move there."""
        host = self._hosts.get(vm)
        if host is None:
            self._owner.on_refused(vm, "its link is lost")
            return
        took_s = host.send_s(part * self._state_bytes) + 2 * host.delay_s
        refuse = lambda: self._owner.on_refused(vm, "it does not answer")  # noqa: E731
        self.then(took_s, lambda: then() if host.answers else self.then(NO_ANSWER_S, refuse))

    def fetch(self, then: Callable[[bool], None]) -> None:
        """Copy the checkpoint from the VM where it is; call ``then`` with whether that worked."""
        self.copying = True
        host = self._hosts[self._owner.place]
        self.then(host.delay_s, lambda: self._read_copy(host, then))

    def _read_copy(self, host: SimulatedEngineHost, then: Callable[[bool], None]) -> None:
        if not host.answers:
            self.then(NO_ANSWER_S, lambda: then(False))
            return
        copy = self.copies[host.name].copied()
        took_s = host.send_s(_CHANGED_PART * self._state_bytes) + host.delay_s
        self.then(took_s, lambda: self._install(copy, then))

    def _install(self, copy: Checkpoint, then: Callable[[bool], None]) -> None:
        self._disk.checkpoint = copy
        self.then(STEP_S, lambda: self._installed(copy.resume_seq, then))

    def _installed(self, resume_seq: int, then: Callable[[bool], None]) -> None:
        self.home_seq = resume_seq
        self._owner.on_copied_home(resume_seq)
        then(True)

    def _copied_home(self, worked: bool) -> None:
        self.copying = False
        self._tried_s = self._agenda.now_s
        self._copied_s = self._tried_s if worked else self._copied_s
        if self._tried_s - self._copied_s >= COPY_LATE_S:
            self._trace.note(f"{self._owner.name} leaves {self._owner.place}: no checkpoint came from there")
            self._draining.add(self._owner.place)

    # --------------------------------------------------------------------------------------------------------- moving

    def send_rest(self, then: Callable[[], None]) -> None:
        """Send what has changed since it was copied ahead, and make it the checkpoint on the VM; then call ``then``."""
        begun_s, sent_to, copy = self._agenda.now_s, self._sent_to, self._disk.checkpoint.copied()

        def sent() -> None:
            self._pause.copied(begun_s)
            self.copies[sent_to] = copy
            self.home_seq = copy.resume_seq
            then()

        self._send(sent_to, _CHANGED_PART, sent)

    def fetch_rest(self, then: Callable[[], None]) -> None:
        """Fetch what has changed since from the VM, if that is possible; then call ``then``."""
        begun_s = self._agenda.now_s

        def fetched() -> None:
            self._pause.copied(begun_s)
            then()

        if self._owner.place in self._hosts:
            self.fetch(lambda _: fetched())
        else:
            fetched()

    def checkpoint_at(self, name: str) -> Checkpoint:
        """Return the checkpoint with which a start on a host begins: a copy, which an earlier start cannot write."""
        if name == HOME:
            checkpoint = self._disk.checkpoint = self._disk.checkpoint.copied()
        else:
            checkpoint = self.copies[name] = self.copies[name].copied()
        return checkpoint

    def forget_ahead(self) -> None:
        """Copy its state ahead again before it moves."""
        self._ahead.forget()

    def opened(self) -> None:
        """Note that it was opened."""
        self._tried_s = self._copied_s = self._agenda.now_s

    def arrived(self, place: str, began_s: float) -> None:
        """Note where it moved, and since when its events were held."""
        pause_s = self._agenda.now_s - began_s
        self.moves += 1
        self._pause.moved(pause_s)
        self._ahead.forget()
        self._trace.note(f"{self._owner.name} moved from {self._owner.place} to {place} in {pause_s:.6f} s")
