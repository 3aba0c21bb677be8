"""One query from ingress to sink: carries out its exchange's instructions and reports events to it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import gateway.core.exchange.events as ev
from gateway.connectors.position import Position
from gateway.core.decide.profiler import Profiler
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
    Send,
)
from gateway.core.intervals import IntervalSet
from gateway.journal.deadletters import DeadLetterFile
from gateway.query.flow.delivery import PACE, Delivery, Pace, Results
from gateway.query.flow.lane import Answer, Lane, LaneEvent
from gateway.query.flow.letters import letters_of
from gateway.query.flow.measures import Measures
from gateway.query.flow.memory import MemoryShare
from gateway.query.flow.moves import Loss
from gateway.query.flow.run import Run
from gateway.query.flow.runlog import KeptRuns, RunLog
from gateway.query.flow.statistics import Tally
from gateway.sinks.base import Sink
from infra.badrows import too_many_bad_rows
from infra.clock import Clock
from infra.threads import run_to_end
from infra.together import end_tasks
from policies.failures.poison import BadRows

_LOG = logging.getLogger(__name__)


class PipelineOwner(Protocol):
    """Is notified of what happens to a query."""

    async def on_acknowledge(self, position: Position) -> None:
        """Acknowledge to the source that everything before this position is committed; called after each commit."""
        ...

    def on_commit(self, last_seq: int) -> None:
        """Note after a commit that everything up to this seq is committed."""
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


class Pipeline:
    """The running part of a query between its ingress and its sink. Runs on the event loop.

    Args:
        name: the query's.
        settings: of its exchange; a query whose runs go home only is stateful, and its host is notified of commits.
        owner: is notified of what happens.
        log: the query's run log.
        sink: opened; knows what is committed.
        dead_letters: the file for poison events.
        bad_rows: decides when so many rows fail that the query is broken.
        memory: what the query holds, and may hold.
        profiler: notified of every dispatch and completion.
        tally: counts for the report.
        clock: time.
        pace: how often the sink is written.
    """

    def __init__(
        self,
        name: str,
        settings: ExchangeSettings,
        owner: PipelineOwner,
        *,
        log: RunLog,
        sink: Sink,
        dead_letters: DeadLetterFile,
        bad_rows: BadRows,
        memory: MemoryShare,
        profiler: Profiler,
        tally: Tally,
        clock: Clock,
        pace: Pace = PACE,
    ) -> None:
        self.name = name
        self._stateful = settings.home_only
        self._owner = owner
        self._log = log
        self._sink = sink
        self._memory = memory
        self._profiler = profiler
        self._clock = clock
        self._bad_rows = bad_rows
        self._lanes: dict[str, Lane] = {}
        self._senders: dict[str, asyncio.Task[None]] = {}
        self._kept = KeptRuns(stateful=settings.home_only)
        self.tally = tally
        self._measures = Measures(name, profiler, tally)
        self._exchange: Exchange[Run, Results] = Exchange(settings, committed=sink.committed)
        self._delivery = Delivery(
            sink,
            dead_letters,
            clock,
            position_after=lambda committed: log.position_before(self._done_before(committed)),
            on_tick=self._tick,
            on_commit=self._committed,
            pace=pace,
        )

    # ------------------------------------------------------------------------------------------------ the exchange

    def _handle(self, event: ev.ExchangeEvent[Run, Results]) -> None:
        for instruction in self._exchange.handle(event):
            self._carry_out(instruction)
        self._memory.hold_results(self._exchange.result_bytes)

    def _tick(self) -> None:
        now_s = self._clock.now()
        self._handle(ev.ResultsBounded(at_s=now_s, bound_bytes=self._memory.results_bound_bytes))
        self._handle(ev.Tick(at_s=now_s))
        self._measures.log_too_late(now_s)

    def _carry_out(self, what: Instruction[Run, Results]) -> None:
        match what:
            case Pack() | Send():
                self._lanes[what.lane].order(what)
            case Dispatched():
                self._measures.dispatched(what)
            case Done():
                self._done(what)
            case Release():
                self._measures.released(what, self._clock.now())
                self._delivery.take(what)
            case FailLane():
                self.on_failed(what.lane, f"query {self.name} got no answer for {what.silence_s:.0f} s")
            case Reopen():
                self._owner.on_overdue(f"the runs from seq {what.first_seq} on are not answered")
            case AskedAgain():
                text = "%s: run %d is overdue in lane %s: it is dispatched again"
                _LOG.warning(text, self.name, what.first_seq, what.lane)
            case Moved():
                self._moved(what)

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
        lane = self._lanes.pop(name, None)
        if lane is None:
            return
        lane.close()
        sender = self._senders.pop(name)
        sender.cancel()
        reason, lost_s = ("", None) if loss is None else (loss.reason or "its link ended", loss.at_s)
        self._handle(ev.LaneLost(at_s=self._clock.now(), lane=name, reason=reason, lost_s=lost_s))
        await end_tasks(sender)

    def drain_lane(self, name: str) -> None:
        """Send no further run to a lane."""
        self._handle(ev.LaneDraining(at_s=self._clock.now(), lane=name))

    def lane_idle(self, name: str) -> bool:
        """Whether nothing of this query is open in a lane."""
        return self._exchange.rested(name)

    @property
    def lanes(self) -> Mapping[str, Lane]:
        """The lanes by name."""
        return self._lanes

    def view(self, lane: str) -> LaneView | None:
        """See ``LaneOwner.view``."""
        return self._exchange.lane(lane) if lane in self._exchange.open_lanes else None

    @property
    def isolating_s(self) -> float:
        """How long engine hosts have looked for bad rows in runs of the open lanes."""
        now_s = self._clock.now()
        return sum(self._exchange.lane(name).isolating_s(now_s) for name in self._exchange.open_lanes)

    @property
    def rates_per_s(self) -> list[float]:
        """Events per second that each lane serves while it has work; 0 before its first."""
        now_s = self._clock.now()
        return self._exchange.rates_per_s(now_s)

    def set_shares(self, shares: Mapping[str, float]) -> None:
        """Use these shares from now on."""
        self._handle(ev.SharesSet(at_s=self._clock.now(), shares=dict(shares)))

    @property
    def cloud_share(self) -> float:
        """R: the part of the events that cloud lanes should get."""
        return self._exchange.cloud_share

    # --------------------------------------------------------------------------------------------------- publisher

    def offer(self, run: Run) -> None:
        """Accept a run from the ingress."""
        self._measures.arrived(run)
        self._handle(ev.RunLogged(at_s=self._clock.now(), run=run))

    def _moved(self, what: Moved) -> None:
        first_ms, last_ms = (1000 * (at_s - what.lost_s) for at_s in (what.first_s, what.last_s))
        text = "lane %s lost (%s): %d runs go elsewhere after %.0f ms, the last after %.0f ms (%s)"
        _LOG.warning(text, what.lane, what.reason, what.runs, first_ms, last_ms, self.name)

    # ---------------------------------------------------------------------------------------------- what lanes tell

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
        bad, again = [seq - first_seq for seq, _ in answer.poison], self._sink.committed.covers(first_seq, last_seq)
        if runs and self._bad_rows.too_many(bad):
            self.on_broken(too_many_bad_rows(self._bad_rows.limit, answer.poison[0][1]), False)
            return
        self._kept.answered(first_seq)
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
            self._bad_rows.add(last_seq - first_seq + 1, bad)
        if self._stateful:
            # A batch that the sink had before runs again after a restart, to restore the state.
            too_late = 0 if again else answer.too_late
            self._measures.state(last_seq, too_late, answer.open_groups, self._clock.now())

    def _done(self, done: Done[Run]) -> None:
        for run in done.runs:
            self._memory.give(run.raw_bytes)
        if not done.counts:
            if self._stateful and self._sink.committed.covers(done.first_seq, done.last_seq):
                self._owner.on_commit(done.last_seq)
            return
        self._measures.done(done, self._clock.now())

    # ---------------------------------------------------------------------------------------------------- delivery

    async def run(self) -> None:
        """Deliver until cancelled."""
        await self._delivery.run()

    def _done_before(self, committed: IntervalSet) -> int:
        return self._kept.needed_from(committed.watermark())

    def keep_from(self, seq: int) -> None:
        """See ``KeptRuns.keep_from``."""
        self._kept.keep_from(seq)

    def note_batches(self, note: Callable[[Sequence[int]], None]) -> None:
        """See ``Delivery.note_batches``."""
        self._delivery.note_batches = note

    async def forget_committed(self) -> None:
        """Remove committed runs from the run log, and acknowledge them to the source."""
        before_seq = self._done_before(self._sink.committed)
        try:
            await run_to_end(lambda: self._log.retire(before_seq))
        except OSError as error:
            _LOG.warning("%s: the run log cannot be truncated now: %s", self.name, error)
        await self._owner.on_acknowledge(self._log.position_before(before_seq))

    async def _committed(self, ranges: tuple[tuple[int, int], ...]) -> None:
        await self.forget_committed()
        self._owner.on_commit(self._sink.committed.watermark() - 1)
        self._handle(ev.Committed(at_s=self._clock.now(), ranges=ranges))

    # ------------------------------------------------------------------------------------------------ what is asked

    def end_slot(self, oldest_unread_s: float | None, unread_events: int) -> None:
        """Report to the profiler, before a slot ends, what waits."""
        self._tick()
        now_s, exchange = self._clock.now(), self._exchange
        self._handle(ev.SlotPassed(at_s=now_s))
        for lane in exchange.open_lanes:
            if exchange.waiting_events and not exchange.lane(lane).has_room:
                self._profiler.no_credit(self.name, lane)
        ages = [age for age in (exchange.oldest_waiting_s, oldest_unread_s) if age is not None]
        events = exchange.waiting_events + unread_events
        self._profiler.under_way(
            self.name,
            waiting_events=events,
            oldest_arrival_s=min(ages, default=None),
            open_runs=exchange.open_by_lane(),
        )

    def waiting_runs(self) -> int:
        """Return how many runs wait for a lane."""
        return self._exchange.waiting_runs

    @property
    def idle(self) -> bool:
        """Whether every run that was offered is committed."""
        return self._exchange.idle

    @property
    def committed_before(self) -> int:
        """Every event before this seq is committed."""
        return self._sink.committed.watermark()

    @property
    def trouble(self) -> str:
        """Why the sink accepts nothing now; empty if it does."""
        return self._delivery.trouble

    async def close(self) -> None:
        """Stop all lanes and close the sink; what is not completed is done again after the next start."""
        for name in list(self._lanes):
            await self.remove_lane(name)
        await self._delivery.close()
        self._measures.log_too_late()
        await asyncio.to_thread(self._log.close)
