"""Dispatches the runs of a query, or of one part of a keyed query: carries out the instructions of its exchange."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol, TypeAlias

import gateway.core.exchange.events as ev
from gateway.core.exchange import Exchange, ExchangeSettings, LaneView
from gateway.core.exchange.instructions import (
    AskedAgain,
    Dispatched,
    Done,
    FailLane,
    Instruction,
    Moved,
    Pack,
    Release,
    Reopen,
    RunRecalled,
    Send,
)
from gateway.query.flow.delivery import Results
from gateway.query.flow.lane import Answer, Lane, LaneEvent
from gateway.query.flow.letters import letters_of
from gateway.query.flow.measures import Measures, Unmeasured
from gateway.query.flow.memory import MemoryShare
from gateway.query.flow.run import Run
from gateway.query.flow.runlog import KeptRuns
from gateway.sinks.base import Sink
from infra.badrows import too_many_bad_rows
from infra.clock import Clock
from infra.together import end_tasks
from policies.failures.poison import BadRows

_LOG = logging.getLogger(__name__)
_EVERYTHING: Final = ((0, 1 << 62),)
"""Ranges of seq: all there are."""

RunEvent: TypeAlias = ev.ExchangeEvent[Run, Results]
RunInstruction: TypeAlias = Instruction[Run, Results]
Watch: TypeAlias = Callable[[RunEvent, Sequence[RunInstruction], float | None], None]
"""Sees each event of an exchange with its instructions and, of an answer, the round trip to the host if it is known."""


@dataclass(frozen=True, slots=True)
class Loss:
    """Why a lane was lost, and when on the gateway's clock."""

    reason: str
    at_s: float


class LaneFailures(Protocol):
    """Is notified of what is wrong in lanes."""

    def on_commit(self, last_seq: int) -> None:
        """Note that everything up to this seq is committed."""
        ...

    def on_failed(self, lane: str, reason: str) -> None:
        """Note that the query has failed in a lane."""
        ...

    def on_broken(self, reason: str, exhausted: bool) -> None:
        """See ``LaneOwner.on_broken``; the run that showed it is not completed."""
        ...

    def on_overdue(self, reason: str) -> None:
        """Open a stateful query again from its checkpoint: it gets no answer."""
        ...


class Dispatcher:
    """The lanes and the exchange of a query, or of one part of it. Runs on the event loop.

    Args:
        name: the query's, or the part's.
        settings: of its exchange; a query whose runs go home only is stateful.
        owner: is notified of failures.
        on_release: gets results for the sink.
        on_handled: called after each event of the exchange.
        sink: knows what is committed.
        bad_rows: decides when so many rows fail that the query is broken.
        memory: what the query holds, and may hold.
        measures: notified of every dispatch and completion.
        clock: time.
        resume_seq: earlier runs are not dispatched: the state has them.
        done: the closed ranges of seq whose answers count for nothing; None: those that the sink has.
        watch: sees what happens to runs, if it is wanted.

    Attributes:
        kept: knows which runs may be needed again.
        done_before: the first seq that the state in the present lane does not have, as far as it has answered.
    """

    def __init__(
        self,
        name: str,
        settings: ExchangeSettings,
        owner: LaneFailures,
        *,
        on_release: Callable[[Release[Results]], None],
        on_handled: Callable[[], None],
        sink: Sink,
        bad_rows: BadRows,
        memory: MemoryShare,
        measures: Measures,
        clock: Clock,
        resume_seq: int = 0,
        done: Iterable[tuple[int, int]] | None = None,
        watch: Watch | None = None,
    ) -> None:
        self.name = name
        self._settings = settings
        self._stateful = settings.home_only
        self._owner = owner
        self._on_release = on_release
        self._on_handled = on_handled
        self._sink = sink
        self._bad_rows = bad_rows
        self._memory = memory
        self._measures = measures
        self._clock = clock
        self._watch = watch
        self._resume_seq = self.done_before = resume_seq
        self._pass_on: Callable[[Run], None] | None = None
        self._lanes: dict[str, Lane] = {}
        self._senders: dict[str, asyncio.Task[None]] = {}
        self.kept = KeptRuns(stateful=settings.home_only)
        self._exchange: Exchange[Run, Results] = Exchange(settings, committed=sink.committed if done is None else done)

    # ------------------------------------------------------------------------------------------------ the exchange

    def _handle(self, event: RunEvent) -> None:
        instructions = self._exchange.handle(event)
        if self._watch is not None:
            lane = self._lanes.get(event.lane) if isinstance(event, ev.Answered) else None
            self._watch(event, instructions, None if lane is None else lane.link.rtt_s)
        for instruction in instructions:
            self._carry_out(instruction)
        self._on_handled()

    def _carry_out(self, what: RunInstruction) -> None:
        match what:
            case Pack() | Send():
                self._lanes[what.lane].order(what)
            case Dispatched():
                self._measures.dispatched(what)
            case Done():
                self._done(what)
            case Release():
                self._on_release(what)
            case FailLane():
                self.on_failed(what.lane, f"query {self.name} got no answer for {what.silence_s:.0f} s")
            case Reopen():
                self._owner.on_overdue(f"the runs from seq {what.first_seq} on are not answered")
            case AskedAgain():
                text = "%s: run %d is overdue in lane %s: it is dispatched again"
                _LOG.warning(text, self.name, what.first_seq, what.lane)
            case RunRecalled():
                text = "%s: results wait for run %d, %.1f s in lane %s so far: home does it, the lane rests for %.0f s"
                _LOG.info(text, self.name, what.first_seq, what.in_lane_s, what.lane, what.pause_s)
            case Moved():
                self._moved(what)

    def _moved(self, what: Moved) -> None:
        first_ms, last_ms = (1000 * (at_s - what.lost_s) for at_s in (what.first_s, what.last_s))
        text = "lane %s lost (%s): %d runs go elsewhere after %.0f ms, the last after %.0f ms (%s)"
        _LOG.warning(text, what.lane, what.reason, what.runs, first_ms, last_ms, self.name)

    def _done(self, done: Done[Run]) -> None:
        self.done_before = max(self.done_before, done.last_seq + 1)
        for run in done.runs:
            if self._pass_on is None:
                self._memory.give(run.raw_bytes)
            else:
                self._pass_on(run)
        if not done.counts:
            if self._stateful and self._sink.committed.covers(done.first_seq, done.last_seq):
                self._owner.on_commit(done.last_seq)
            return
        self._measures.done(done, self._clock.now())

    def offer(self, run: Run) -> None:
        """Dispatch a run, unless the state has it."""
        if run.first_seq < self._resume_seq:
            self._memory.give(run.raw_bytes)
        else:
            self._handle(ev.RunLogged(at_s=self._clock.now(), run=run))

    def tick(self, results_bound_bytes: int) -> None:
        """Look whether runs are overdue, and take the bound of the bytes of results that wait."""
        now_s = self._clock.now()
        self._handle(ev.ResultsBounded(at_s=now_s, bound_bytes=results_bound_bytes))
        self._handle(ev.Tick(at_s=now_s))

    def committed(self, ranges: tuple[tuple[int, int], ...]) -> None:
        """Note that the sink has the results of these ranges."""
        self._handle(ev.Committed(at_s=self._clock.now(), ranges=ranges))

    def slot_passed(self) -> None:
        """Note that a slot has ended."""
        self._handle(ev.SlotPassed(at_s=self._clock.now()))

    def set_shares(self, shares: Mapping[str, float]) -> None:
        """Use these shares from now on."""
        self._handle(ev.SharesSet(at_s=self._clock.now(), shares=dict(shares)))

    # ---------------------------------------------------------------------------------------- going on in another lane

    def follower(self, place: str, resume_seq: int, owner: LaneFailures) -> Dispatcher:
        """Return a dispatcher that repeats in another place what is done here; its answers count for nothing.

        Args:
            place: the lane that it is going to have.
            resume_seq: the state there has everything before.
            owner: is notified of its failures.
        """
        return Dispatcher(
            self.name,
            replace(self._settings, place=place),
            owner,
            on_release=lambda _: None,
            on_handled=lambda: None,
            sink=self._sink,
            bad_rows=self._bad_rows,
            memory=self._memory,
            measures=Unmeasured(),
            clock=self._clock,
            resume_seq=resume_seq,
            done=_EVERYTHING,
        )

    def pass_on(self, to: Callable[[Run], None] | None) -> None:
        """Give each run that is done from now on to ``to``, with the memory that it holds; None: free that memory."""
        self._pass_on = to

    def free(self, runs: Iterable[Run]) -> None:
        """Free the memory of runs that were passed on."""
        for run in runs:
            self._memory.give(run.raw_bytes)

    async def discard(self) -> None:
        """Close a follower, and free the memory of the runs that it has not repeated."""
        self.free(self._exchange.held_inputs)
        await self.close()

    def hold(self) -> None:
        """Dispatch no run from now on."""
        self._handle(ev.Held(at_s=self._clock.now()))

    def resume(self) -> None:
        """Dispatch runs again."""
        self._handle(ev.Resumed(at_s=self._clock.now()))

    def switch_to(self, follower: Dispatcher) -> Sequence[asyncio.Task[None]]:
        """Go on in the lane of a follower, which has answered everything that is done here.

        Returns:
            Tasks that are cancelled, and have to be waited for.
        """
        place = follower._settings.place
        lane, ended = follower._lanes.pop(place), [follower._senders.pop(place)]
        ended += [self._abandon(name) for name in list(self._lanes)]
        for task in ended:
            task.cancel()
        self._settings = replace(self._settings, place=place)
        self._handle(ev.PlaceSet(at_s=self._clock.now(), place=place))
        lane.owner = self
        self.add_lane(lane)
        self._pass_on = None
        self.resume()
        return ended

    def _abandon(self, name: str, reason: str = "", lost_s: float | None = None) -> asyncio.Task[None]:
        self._lanes.pop(name).close()
        self._handle(ev.LaneLost(at_s=self._clock.now(), lane=name, reason=reason, lost_s=lost_s))
        return self._senders.pop(name)

    @property
    def exchange(self) -> Exchange[Run, Results]:
        """The exchange, to look at only."""
        return self._exchange

    # ------------------------------------------------------------------------------------------------------- lanes

    def add_lane(self, lane: Lane) -> None:
        """Add ``lane``; a cloud lane gets no runs until shares name it."""
        self._lanes[lane.name] = lane
        sender = asyncio.create_task(lane.run(), name=f"{self.name} to {lane.name}")
        sender.add_done_callback(lambda ended: self._sender_ended(lane.name, ended))
        self._senders[lane.name] = sender
        self._handle(
            ev.LaneOpened(
                at_s=self._clock.now(),
                lane=lane.name,
                credit_bytes=lane.credit_bytes,
                planned_end_seq=lane.planned_end_seq,
            )
        )

    def _sender_ended(self, lane: str, sender: asyncio.Task[None]) -> None:
        error = None if sender.cancelled() else sender.exception()
        if error is not None:
            self.on_failed(lane, f"a run cannot be sent: {error}")

    async def remove_lane(self, name: str, loss: Loss | None = None) -> None:
        """Remove a lane; its open runs wait again and are dispatched elsewhere.

        Args:
            name: the lane's.
            loss: why and when it was lost, if it was: then the log shows how long its runs took to move elsewhere.
        """
        if name not in self._lanes:
            return
        reason, lost_s = ("", None) if loss is None else (loss.reason or "its link ended", loss.at_s)
        await end_tasks(self._abandon(name, reason, lost_s))

    def drain_lane(self, name: str) -> None:
        """Send no further run to a lane."""
        self._handle(ev.LaneDraining(at_s=self._clock.now(), lane=name))

    @property
    def lanes(self) -> Mapping[str, Lane]:
        """The lanes by name."""
        return self._lanes

    # ---------------------------------------------------------------------------------------------- what lanes tell

    def view(self, lane: str) -> LaneView | None:
        """See ``LaneOwner.view``."""
        return self._exchange.lane(lane) if lane in self._exchange.open_lanes else None

    def on_event(self, event: LaneEvent) -> None:
        """See ``LaneOwner.on_event``."""
        self._handle(event)

    def asked(self, lane: str, first_seq: int, last_seq: int) -> Sequence[Run]:
        """See ``LaneOwner.asked``."""
        return self._exchange.asked(lane, first_seq, last_seq)

    def on_failed(self, lane: str, reason: str) -> None:
        """See ``LaneOwner.on_failed``."""
        if lane in self._lanes:
            self._owner.on_failed(lane, reason)

    def on_broken(self, reason: str, exhausted: bool) -> None:
        """See ``LaneOwner.on_broken``."""
        self._owner.on_broken(reason, exhausted)

    def on_answer(self, answer: Answer) -> None:
        """See ``LaneOwner.on_answer``: the first completion counts, and later ones are dropped."""
        first_seq, last_seq = answer.first_seq, answer.last_seq
        runs = self.asked(answer.lane, first_seq, last_seq)
        bad, again = _rows_at_fault(answer, runs), self._sink.committed.covers(first_seq, last_seq)
        if runs and self._bad_rows.too_many(bad):
            self.on_broken(too_many_bad_rows(self._bad_rows.limit, answer.poison[0][1]), False)
            return
        self.kept.answered(first_seq)
        results = Results(answer.results, tuple(letters_of(answer, runs, self._clock.wall())))
        self._handle(
            ev.Answered(
                at_s=self._clock.now(),
                lane=answer.lane,
                first_seq=first_seq,
                last_seq=last_seq,
                results=results,
                result_bytes=answer.results.nbytes,
                batch_id=answer.batch_id,
                batch_s=answer.batch_s,
            )
        )
        if runs:
            self._bad_rows.add(sum(run.events for run in runs), bad)
        if self._stateful:
            # A batch that the sink had before runs again after a restart, to restore the state.
            too_late = 0 if again else answer.too_late
            self._measures.state(last_seq, too_late, answer.open_groups, self._clock.now())

    async def close(self) -> None:
        """Remove all lanes."""
        for name in list(self._lanes):
            await self.remove_lane(name)


def _rows_at_fault(answer: Answer, runs: Sequence[Run]) -> list[int]:
    """Return the indices of the rows that fail, counted over all the runs of an answer."""
    rows: list[int] = []
    before = 0
    for run in runs:
        rows += [before + run.row_of(seq) for seq, _ in answer.poison if run.reports(seq)]
        before += run.events
    return rows
