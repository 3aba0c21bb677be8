"""Moves one part of a simulated divided query while it, and all other parts, go on: see ``PartMover``."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

from gateway.query.flow.run import Run
from gateway.simulate.runs.agenda import Agenda, Trace
from gateway.simulate.runs.keyed.counting import CountedCheckpoint
from gateway.simulate.runs.keyed.part import Follower, SimulatedPart
from gateway.simulate.runs.promises import BrokenPromiseError
from gateway.simulate.runs.stateful.simulatedmover import NO_ANSWER_S
from policies.signals import HOME
from policies.switching.partmove import RETURN_HELD_MOST_S, PartMove, Step, Terms

OPENS_S: Final = (0.3, 2.0)
_LOOK_S: Final = 0.1
_SOON_S: Final = 0.05
_REACHED_S: Final = 5.0
_RETRY_S: Final = 2.0


class PartMoving:
    """What is done to move a part; the decisions are the production code, the steps are on the agenda.

    Args:
        part: the part.
        agenda: time.
        trace: the history.
        draw: random numbers.
        is_opening: returns whether another part is being opened on a host: it opens one after another.

    Attributes:
        heading: where the part is being opened, beside its place; empty if it is not moving.
        stuck: whether it is to return and could not do so while it was open.
    """

    def __init__(
        self,
        part: SimulatedPart,
        agenda: Agenda,
        trace: Trace,
        draw: random.Random,
        is_opening: Callable[[str], bool],
    ) -> None:
        self._is_opening = is_opening
        self.heading = ""
        self.stuck = False
        self._part = part
        self._agenda = agenda
        self._trace = trace
        self._draw = draw
        self._follower: Follower | None = None
        self._held_s: float | None = None
        self._rests_until_s = 0.0

    def begin(self) -> None:
        """Begin with a part that was opened."""
        self.heading, self.stuck = "", False
        self._follower, self._held_s = None, None

    @property
    def must_return(self) -> bool:
        """Whether the query must be opened again: the VM of this part is gone, or the part cannot return while open."""
        mover = self._part.mover
        return mover.is_lost or (self.stuck and mover.leaves and mover.next_place == HOME)

    def look(self) -> None:
        """Do what is due."""
        part, mover = self._part, self._part.mover
        if self.heading or mover.copying or self._agenda.now_s < self._rests_until_s:
            return
        if mover.leaves and mover.due and not self.stuck:
            if not mover.is_lost and mover.next_place in part.hosts and not self._is_opening(mover.next_place):
                self._begin(mover.next_place)
        else:
            mover.copy()

    # --------------------------------------------------------------------------------------------------- opening there

    def _begin(self, place: str) -> None:
        part = self._part
        returns = place == HOME
        held_most_s = RETURN_HELD_MOST_S if returns else part.options.settings.pause_most_s
        self._move = PartMove(Terms(held_most_s=held_most_s))
        self.heading = place
        self._done: list[Run] = []
        part.pass_on = self._done.append
        from_seq, ends_s = part.done_before, self._agenda.now_s + _REACHED_S
        if returns:
            self._fetch(from_seq, ends_s)
        else:
            self._send(from_seq, ends_s)

    def _send(self, from_seq: int, ends_s: float) -> None:
        """Send the checkpoint at home once it has everything before ``from_seq``."""
        if self._part.disk.checkpoint.resume_seq >= from_seq:
            self._part.mover.send_rest(lambda: self._open(from_seq))
        elif self._agenda.now_s > ends_s:
            self._not_now("its checkpoint at home does not get that far")
        else:
            self._part.mover.later(_SOON_S, lambda: self._send(from_seq, ends_s))

    def _fetch(self, from_seq: int, ends_s: float) -> None:
        """Copy the checkpoint home until the copy has everything before ``from_seq``."""
        if self._part.place in self._part.hosts:
            self._part.mover.fetch(lambda worked: self._fetched(from_seq, ends_s, worked=worked))
        else:
            self._stays("its VM is lost")

    def _fetched(self, from_seq: int, ends_s: float, *, worked: bool) -> None:
        if not worked:
            self._stays("its VM does not answer")
        elif self._part.mover.home_seq >= from_seq:
            self._open(from_seq)
        elif self._agenda.now_s > ends_s:
            self._not_now("its checkpoint on the VM does not get that far")
        else:
            self._part.mover.later(_SOON_S, lambda: self._fetch(from_seq, ends_s))

    def _open(self, from_seq: int) -> None:
        self._part.mover.then(self._draw.uniform(*OPENS_S), lambda: self._opened(from_seq))

    def _opened(self, from_seq: int) -> None:
        part, host = self._part, self._part.hosts.get(self.heading)
        if host is None or not host.answers:
            part.mover.later(NO_ANSWER_S, lambda: self._stays("it is not opened there"))
            return
        checkpoint = part.mover.checkpoint_at(host.name)
        assert isinstance(checkpoint, CountedCheckpoint), "it has state"
        if checkpoint.resume_seq < from_seq:
            self._not_now("its copy does not get that far")
            return
        if checkpoint.resume_seq > part.done_before:
            self._not_now("its copy has more than was answered")
            return
        follower = self._follower = part.follower(lambda lane: self._note_trouble(lane))
        follower.open(host, checkpoint)
        part.tell_follower(follower)
        for run in self._done:
            follower.offer(run)
        part.pass_on = follower.offer
        self._move.opened(self._agenda.now_s)
        self._trace.note(f"{part.name} is open at {host.name}, too")
        self._step()

    def _note_trouble(self, lane: str) -> None:
        if self._follower is not None:
            self._follower.trouble = self._follower.trouble or f"{lane} gives no answers"

    # ------------------------------------------------------------------------------------------------------- following

    def _step(self) -> None:
        follower, part = self._follower, self._part
        assert follower is not None, "it is open there"
        linked = self.heading in part.hosts
        match self._move.step(
            self._agenda.now_s,
            lag_runs=follower.lag_runs if linked else 1,
            wanted=part.mover.next_place == self.heading,
            trouble=follower.trouble or ("" if linked else "the link was lost"),
        ):
            case Step.DROP:
                self._stays(self._move.reason)
                return
            case Step.HOLD | Step.SWITCH if part.killed_at_step():
                return
            case Step.SWITCH:
                self._switch(follower)
                return
            case Step.HOLD:
                self._held_s = self._agenda.now_s
                part.hold()
        follower.tick()
        part.mover.later(_LOOK_S, self._step)

    def _switch(self, follower: Follower) -> None:
        # A run that is open in the old place is dispatched anew.
        part, now_s = self._part, self._agenda.now_s
        waited_s = part.exchange.lane(part.place).waiting_s(now_s) if part.place in part.lanes else None
        began_s = min(now_s - (waited_s or 0.0), now_s if self._held_s is None else self._held_s)
        self.begin()
        part.mover.interrupt()
        part.switch_to(follower, began_s)

    # --------------------------------------------------------------------------------------------------------- failing

    def drop(self) -> None:
        """Go on in the present place only, if it moves."""
        if not self.heading:
            return
        part, follower, held = self._part, self._follower, self._held_s is not None
        self.heading, self._follower, self._held_s = "", None, None
        part.mover.interrupt()
        part.pass_on = None
        if follower is not None:
            follower.close()
        if held and part.is_open:
            part.resume()

    def close(self, *, killed: bool) -> None:
        """End a move because the part is closed in its place, too."""
        follower, self._follower, self.heading, self._held_s = self._follower, None, "", None
        self._part.mover.interrupt()
        if follower is not None:
            follower.close(killed=killed)

    def _not_now(self, why: str) -> None:
        self._trace.note(f"{self._part.name} does not move to {self.heading} now: {why}")
        self.drop()
        self._part.mover.forget_ahead()
        self._rests_until_s = self._agenda.now_s + _RETRY_S

    def _stays(self, why: str) -> None:
        part, place = self._part, self.heading
        host, target = part.hosts.get(place), part.mover.next_place
        self.drop()
        if target != place or host is None:
            self._trace.note(f"{part.name} does not move to {place}: {why}")
        elif place == HOME:
            self._trace.note(f"{part.name} cannot return while it is open: {why}")
            self.stuck = True
        else:
            part.on_refused(place, why)

    def tell_committed(self, last_seq: int) -> None:
        """Let the next place know what the sink has."""
        if self._follower is not None:
            self._follower.tell_committed(last_seq)

    def check(self) -> None:
        """Check that the part is held for a move only.

        Raises:
            BrokenPromiseError: it is not.
        """
        if self._part.held and self._held_s is None:
            raise BrokenPromiseError(f"{self._part.name} is held, and does not move")
