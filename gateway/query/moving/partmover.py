"""Moves one part of a divided query while it, and all other parts, go on.

The part is opened in its next place with a copy of its state. There it repeats what the present place has done since
that copy, with the same micro-batches, and its answers are dropped. Once it has repeated everything, it answers instead
of the present place. Until then nothing that happens to the next place matters. See docs/decisions/0120.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from gateway.hosts.connection import Connection
from gateway.query.flow.dispatcher import Dispatcher
from gateway.query.flow.run import Run
from gateway.query.hosting.opening import Opening
from gateway.query.moving.mover import Mover, NotNowError
from infra.clock import Clock
from infra.failpoints import reached
from infra.together import end_tasks
from policies.signals import HOME
from policies.switching.partmove import RETURN_HELD_MOST_S, MovePhase, PartMove, Step, Terms

_LOOK_S: Final = 0.02
_RESULTS_BYTES: Final = 1 << 30
"""A follower has no results that wait, so it needs no tighter bound."""


class NextPlaceError(Exception):
    """A part cannot go on in its next place; the message says why."""


class PartMover:
    """One move of one part. It is the owner of the dispatcher that repeats runs in the next place.

    Args:
        part: the part's dispatcher.
        mover: knows where it is to be, and copies its state.
        host: where it goes.
        pause_most_s: for so long it may be held if it goes to a VM.
        open_there: opens it on ``host``.
        close: closes it on a host.
        on_commit: notifies ``host`` that everything up to this seq is committed.
        on_switched: called with the time since when its events were held, at the moment from which ``host`` answers.
        clock: time.
    """

    def __init__(
        self,
        part: Dispatcher,
        mover: Mover,
        host: Connection,
        pause_most_s: float,
        *,
        open_there: Callable[[], Awaitable[Opening]],
        close: Callable[[], Awaitable[None]],
        on_commit: Callable[[int], None],
        on_switched: Callable[[float], None],
        clock: Clock,
    ) -> None:
        self._part = part
        self._mover = mover
        self._host = host
        self._open_there = open_there
        self._close = close
        self._on_commit = on_commit
        self._on_switched = on_switched
        self._clock = clock
        returns = host.name == HOME
        self._way = "returns" if returns else "leaves"
        self._move = PartMove(Terms(held_most_s=RETURN_HELD_MOST_S if returns else pause_most_s))
        self._done: list[Run] = []
        self._follower: Dispatcher | None = None
        self._asked = False
        self._held_s: float | None = None
        self._trouble = ""

    async def run(self) -> None:
        """Move; if that fails, the part goes on in its present place.

        Raises:
            NotNowError: it may be possible later.
            NextPlaceError: the next place failed, or did not catch up in time, or is not wanted any more.
            QueryRefusedError: the host refuses to open it.
            TransferError: the state cannot be copied.
            CheckpointError: the state cannot be read.
            LinkLost: a link was lost.
            TimeoutError: a host did not answer in time.
            OSError: the disk fails.
        """
        from_seq = self._part.done_before
        self._part.pass_on(self._done.append)
        try:
            await self._copy(from_seq)
            await self._open(from_seq)
            await self._catch_up()
        finally:
            if self._move.phase is not MovePhase.SWITCHED:
                await self._drop()

    async def _copy(self, from_seq: int) -> None:
        if self._way == "returns":
            await self._mover.fetch_while_open(from_seq)
        else:
            await self._mover.send_while_open(from_seq)
        reached(f"part.{self._way}.copied")

    async def _open(self, from_seq: int) -> None:
        self._asked = True
        opening = await self._open_there()
        resume_seq = opening.ready.resume_seq
        if resume_seq < from_seq:
            raise NotNowError(f"its copy on {self._host.name} ends at seq {resume_seq}, before seq {from_seq}")
        if resume_seq > self._part.done_before:
            # The state has runs whose answers are still on their way. In the next place they could not be given again.
            raise NotNowError(f"its copy on {self._host.name} has seq {resume_seq - 1}, which is not answered yet")
        reached(f"part.{self._way}.opened")
        follower = self._follower = self._part.follower(self._host.name, resume_seq, self)
        follower.add_lane(opening.lane(follower, self._clock))
        for run in self._done:
            follower.offer(run)
        self._done = []
        self._part.pass_on(follower.offer)
        self._move.opened(self._clock.now())

    async def _catch_up(self) -> None:
        assert self._follower is not None, "it is open in the next place"
        while True:
            match self._move.step(
                self._clock.now(),
                lag_runs=self._lag(self._follower),
                wanted=self._mover.next_place == self._host.name,
                trouble=self._trouble or ("" if self._host.alive else "the link was lost"),
            ):
                case Step.HOLD:
                    self._held_s = self._clock.now()
                    self._part.hold()
                    reached(f"part.{self._way}.held")
                case Step.SWITCH:
                    await self._switch(self._follower)
                    return
                case Step.DROP:
                    raise NextPlaceError(self._move.reason)
            self._follower.tick(_RESULTS_BYTES)
            await self._clock.sleep_until(self._clock.now() + _LOOK_S)

    def _lag(self, follower: Dispatcher) -> int:
        """Return how many runs the follower has not answered; its host must have reported all bytes as consumed."""
        lane = follower.view(self._host.name)
        under_way = lane is None or lane.in_flight_bytes > 0
        return len(follower.exchange.held_inputs) or int(under_way)

    async def _switch(self, follower: Dispatcher) -> None:
        began_s = self._holds_since_s()
        ended = self._part.switch_to(follower)
        self._on_switched(began_s)
        reached(f"part.{self._way}.switched")
        await end_tasks(*ended)

    def _holds_since_s(self) -> float:
        """Return since when events wait because of the move: a run that is open in the old place is dispatched anew."""
        now_s = self._clock.now()
        lane = self._part.view(self._mover.place)
        waited_s = None if lane is None else lane.waiting_s(now_s)
        return min(now_s - (waited_s or 0.0), now_s if self._held_s is None else self._held_s)

    async def _drop(self) -> None:
        self._part.pass_on(None)
        self._part.free(self._done)
        if self._held_s is not None:
            self._part.resume()
        if self._follower is not None:
            await self._follower.discard()
        if self._asked:
            await self._close()

    # ----------------------------------------------------------------------------------------------- of the next place

    def on_commit(self, last_seq: int) -> None:
        """See ``LaneFailures.on_commit``."""
        self._on_commit(last_seq)

    def on_failed(self, lane: str, reason: str) -> None:
        """See ``LaneFailures.on_failed``."""
        self._trouble = self._trouble or f"{lane}: {reason}"

    def on_broken(self, reason: str, exhausted: bool) -> None:
        """See ``LaneFailures.on_broken``."""
        self._trouble = self._trouble or (f"it exhausts the host: {reason}" if exhausted else reason)

    def on_overdue(self, reason: str) -> None:
        """See ``LaneFailures.on_overdue``."""
        self._trouble = self._trouble or reason
