"""One query from ingress to sink: deals runs to lanes, takes their answers, and tells the profiler."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from gateway.connectors.position import Position
from gateway.core.decide.profiler import Profiler
from gateway.core.intervals import IntervalSet
from gateway.journal.deadletters import DeadLetterFile
from gateway.query.flow.delivery import Delivery, Results
from gateway.query.flow.lane import Answer, Lane
from gateway.query.flow.letters import letters_of
from gateway.query.flow.moves import Loss, Move
from gateway.query.flow.reorder import Release, Reorderer
from gateway.query.flow.routing import Router
from gateway.query.flow.runbook import Run, RunBook
from gateway.query.flow.runlog import RunLog
from gateway.query.flow.statistics import Tally
from gateway.sinks.base import Sink
from infra.badrows import too_many_bad_rows
from infra.clock import Clock
from infra.gate import ByteGate
from infra.threads import run_to_end
from policies.failures.poison import BadRows
from policies.signals import HOME

_LOG = logging.getLogger(__name__)


class Pipeline:
    """The running half of a query, between its ingress and its sink. Runs on the event loop.

    Args:
        name: the query's.
        stateful: its plan holds state: runs go home only, in order, and its host is told what is committed.
        log: the query's run log.
        sink: opened; knows what is committed.
        dead_letters: where poison events go.
        bad_rows: says when so many fail that the query is broken.
        flush_s: how long a gap is waited for.
        ordered: False releases on completion.
        gate: the bound on bytes in memory.
        profiler: hears of every dispatch and completion.
        tally: counts for the report.
        clock: time.
        on_acknowledge: called with the source position up to which everything is committed, after each commit.
        on_commit: called with the last seq up to which all is committed, after each commit.
        on_failed: called with (lane, reason) when the query cannot go on in a lane.
        on_broken: called with the reason when the query itself is at fault: what showed it is not completed.
        on_overdue: called with the reason when a stateful query is not answered and has to be opened again from its
            checkpoint; None lets its lane fail instead.
    """

    def __init__(
        self,
        name: str,
        *,
        stateful: bool,
        log: RunLog,
        sink: Sink,
        dead_letters: DeadLetterFile,
        bad_rows: BadRows,
        flush_s: float | None,
        ordered: bool,
        gate: ByteGate,
        profiler: Profiler,
        tally: Tally,
        clock: Clock,
        on_acknowledge: Callable[[Position], Awaitable[None]],
        on_commit: Callable[[int], None],
        on_failed: Callable[[str, str], None],
        on_broken: Callable[[str], None],
        on_overdue: Callable[[str], None] | None = None,
    ) -> None:
        self.name = name
        self._stateful = stateful
        self._log = log
        self._sink = sink
        self._gate = gate
        self._profiler = profiler
        self._clock = clock
        self._on_acknowledge = on_acknowledge
        self._on_commit = on_commit
        self._on_failed = on_failed
        self.on_broken = on_broken
        self._bad_rows = bad_rows
        self._on_overdue = on_overdue
        self._moves: list[Move] = []
        self._book = RunBook(sink.committed)
        self._router = Router()
        self._shares: dict[str, float] = {HOME: 1.0}
        self._lanes: dict[str, Lane] = {}
        self._senders: dict[str, asyncio.Task[None]] = {}
        self._batch_start_seq = 0
        self.tally = tally
        self._delivery = Delivery(
            sink,
            Reorderer(flush_s=flush_s, ordered=ordered, released=sink.committed),
            dead_letters,
            clock,
            position_after=lambda committed: log.position_before(self._done_before(committed)),
            on_release=self._released,
            on_commit=self._committed,
        )

    # ------------------------------------------------------------------------------------------------------- lanes

    def add_lane(self, lane: Lane) -> None:
        """Let ``lane`` take part; until shares name it, a cloud lane gets nothing."""
        self._lanes[lane.name] = lane
        sender = asyncio.create_task(lane.run(), name=f"{self.name} to {lane.name}")
        sender.add_done_callback(lambda ended: self._sender_ended(lane.name, ended))
        self._senders[lane.name] = sender
        self._follow_shares()

    def _sender_ended(self, lane: str, sender: asyncio.Task[None]) -> None:
        error = None if sender.cancelled() else sender.exception()
        if error is not None:
            self.on_failed(lane, f"a run cannot be sent: {error}")

    async def remove_lane(self, name: str, loss: Loss | None = None) -> None:
        """Take a lane out; runs that are open in it wait again and go elsewhere.

        Args:
            name: the lane's.
            loss: why and when it was lost, if it was: then it is logged how long its runs took to go elsewhere.
        """
        lane = self._lanes.pop(name, None)
        if lane is None:
            return
        sender = self._senders.pop(name)
        sender.cancel()
        await asyncio.gather(sender, return_exceptions=True)
        runs = self._book.give_back(name)
        if loss is not None:
            self._moves.append(Move(name, loss, len(runs), {run.first_seq for run in runs}))
        self._follow_shares()
        self._see_moved(None)

    def lane_idle(self, name: str) -> bool:
        """Whether nothing of this query is open in a lane."""
        return name not in self._lanes or self._lanes[name].idle

    @property
    def lanes(self) -> Mapping[str, Lane]:
        """The lanes by name."""
        return self._lanes

    def set_shares(self, shares: Mapping[str, float]) -> None:
        """Follow other shares from now on."""
        self._shares = dict(shares)
        self._follow_shares()

    def _follow_shares(self) -> None:
        """Deal by the shares; what a cloud lane should get that is not there, or no more, is home's.

        While home is lost the cloud lanes with shares get its too: only what may not leave it waits for its return.
        """
        there = {name: share for name, share in self._shares.items() if name in self._lanes and name != HOME}
        in_cloud = sum(there.values())
        if HOME not in self._lanes and in_cloud > 0:
            there = {name: share / in_cloud for name, share in there.items()}
            in_cloud = 1.0
        self._router.set_shares({HOME: max(0.0, 1.0 - in_cloud), **there})
        self.deal()

    @property
    def cloud_share(self) -> float:
        """R: the part of the events that cloud lanes are to get."""
        return 1.0 - self._router.shares.get(HOME, 0.0)

    # --------------------------------------------------------------------------------------------------- publisher

    def offer(self, run: Run) -> None:
        """Take a run from the ingress."""
        self._book.add(run)
        self.tally.arrived(run.first_seq, run.last_seq, run.shed)
        self._profiler.arrived(
            self.name,
            # What was shed came too: the input is what it is.
            events=run.events + run.shed,
            raw_bytes=run.raw_bytes * (run.events + run.shed) // run.events,
            first_due_s=run.arrival_s,
            last_due_s=run.arrival_s,
        )
        self.deal()

    def deal(self) -> None:
        """Give waiting runs to lanes that have room, in order of seq."""
        while (run := self._book.next_waiting()) is not None:
            if not self._delivery.takes(run.first_seq):
                return
            with_room = {name for name, lane in self._lanes.items() if lane.takes(run)}
            home_only, tried = self._stateful or run.disordered, self._book.tried(run)
            if tried:
                name = self._router.pick_again(run.events, with_room, tried, home_only=home_only)
            else:
                name = self._router.pick(run.events, with_room, home_only=home_only)
            if name is None:
                return
            self._router.dealt(name, run.events)
            self._lanes[name].put(self._book.assign(name))
            self._see_moved(run)

    def _see_moved(self, run: Run | None) -> None:
        """Log of each lost lane how long it took until all its runs were put elsewhere."""
        for move in self._moves[:]:
            if run is not None and run.first_seq in move.left:
                move.left.remove(run.first_seq)
                move.first_at_s = self._clock.now() if move.first_at_s is None else move.first_at_s
            if not move.left:
                self._moves.remove(move)
                self._tell_moved(move)

    def _tell_moved(self, move: Move) -> None:
        now_s, loss = self._clock.now(), move.loss
        first_ms = 1000 * ((now_s if move.first_at_s is None else move.first_at_s) - loss.at_s)
        text = "lane %s lost (%s): %d runs go elsewhere after %.0f ms, the last after %.0f ms (%s)"
        _LOG.warning(text, move.lane, loss.reason, move.runs, first_ms, 1000 * (now_s - loss.at_s), self.name)

    def _see_overdue(self) -> None:
        """Ask again, elsewhere, for runs that a lane should have answered; give a lane up that answers nothing."""
        for lane in tuple(self._lanes.values()):
            silence_s = lane.silence_s
            overdue = lane.overdue()
            if silence_s is not None:
                self.on_failed(lane.name, f"query {self.name} got no answer for {silence_s:.0f} s")
            elif overdue and self._stateful:
                reason = f"the runs from seq {min(overdue)} on are not answered"
                if self._on_overdue is None:
                    self.on_failed(lane.name, reason)
                else:
                    self._on_overdue(reason)
            if not self._stateful:
                for first_seq in overdue:
                    _LOG.warning("%s: run %d is overdue in lane %s: asked for again", self.name, first_seq, lane.name)
                    self._book.ask_again(lane.name, first_seq)
        self.deal()

    # ---------------------------------------------------------------------------------------------- what lanes tell

    def on_room(self) -> None:
        """See ``LaneOwner.on_room``."""
        self.deal()

    def on_sent(self, lane: str, run: Run, raw_bytes: int, sent_bytes: int) -> None:
        """See ``LaneOwner.on_sent``."""
        self._profiler.dispatched(
            self.name,
            first_seq=run.first_seq,
            lane=lane,
            events=run.events,
            raw_bytes=raw_bytes,
            sent_bytes=sent_bytes,
            oldest_arrival_s=run.arrival_s,
        )
        if lane != HOME:
            self.tally.sent(raw_bytes, sent_bytes)

    def on_failed(self, lane: str, reason: str) -> None:
        """See ``LaneOwner.on_failed``."""
        if lane in self._lanes:
            self._on_failed(lane, reason)

    def on_isolating(self, lane: str, first_seq: int) -> None:
        """See ``LaneOwner.on_isolating``."""
        self._profiler.isolating(self.name, first_seq=first_seq, lane=lane)

    def on_answer(self, answer: Answer) -> None:
        """See ``LaneOwner.on_answer``: the first completion counts, and what is done before is dropped."""
        if answer.lane not in self._lanes:
            return  # its runs have gone elsewhere, where they are answered
        bad = [seq - answer.first_seq for seq, _ in answer.poison]
        if self._bad_rows.too_many(bad) and not self._book.is_done(answer.first_seq, answer.last_seq):
            self.on_broken(too_many_bad_rows(self._bad_rows.limit, answer.poison[0][1]))
            return
        if self._stateful:
            self._batch_start_seq = max(self._batch_start_seq, answer.first_seq)
        runs, counts = self._book.complete(answer.lane, answer.first_seq, answer.last_seq)
        for run in runs:
            self._gate.give(run.raw_bytes)
            if run.attempt > 1:
                self._forget_elsewhere(answer.lane, run)
        if not counts:
            if self._stateful and self._sink.committed.covers(answer.first_seq, answer.last_seq):
                self._on_commit(answer.last_seq)
            self.deal()
            return
        now_s = self._clock.now()
        for run in runs:
            self.tally.completed(answer.lane, max(0.0, now_s - run.arrival_s), run.events)
            self.tally.received(run.first_seq, run.last_seq)
            self._profiler.completed(
                self.name,
                first_seq=run.first_seq,
                last_seq=run.last_seq,
                lane=answer.lane,
                mean_arrival_s=run.arrival_s,
                completed_s=now_s,
                batch_id=answer.batch_id,
                batch_s=answer.batch_s,
            )
        events = sum(run.events for run in runs)
        self._bad_rows.add(events, bad)
        arrival_s = sum(run.arrival_s * run.events for run in runs) / events
        results = Results(answer.results, events, arrival_s, tuple(letters_of(answer, runs, self._clock.wall())))
        self._delivery.complete(answer.first_seq, answer.last_seq, results)
        self.deal()

    def _forget_elsewhere(self, lane: str, run: Run) -> None:
        for other in self._lanes.values():
            if other.name != lane:
                other.forget(run.first_seq)
        for move in self._moves:
            move.left.discard(run.first_seq)

    # ---------------------------------------------------------------------------------------------------- delivery

    async def run(self) -> None:
        """Deliver until cancelled."""
        await self._delivery.run()

    def _released(self, release: Release[Results], now_s: float) -> None:
        results = release.item
        self.tally.released(
            max(0.0, now_s - results.arrival_s), results.events, results.batch.num_rows, late=release.late
        )

    def _done_before(self, committed: IntervalSet) -> int:
        """Return the seq before which nothing will be asked for again."""
        watermark = committed.watermark()
        # A stateful query's last batch may have to run again although its results are in: its runs stay in the log.
        return min(watermark, self._batch_start_seq) if self._stateful else watermark

    async def forget_committed(self) -> None:
        """Drop from the run log, and acknowledge to the source, what is committed."""
        before_seq = self._done_before(self._sink.committed)
        try:
            await run_to_end(lambda: self._log.retire(before_seq))
        except OSError as error:
            _LOG.warning("%s: the run log cannot be shortened now: %s", self.name, error)
        await self._on_acknowledge(self._log.position_before(before_seq))

    async def _committed(self) -> None:
        await self.forget_committed()
        self._on_commit(self._sink.committed.watermark() - 1)
        self.deal()

    # ------------------------------------------------------------------------------------------------ what is asked

    def end_slot(self, oldest_unread_s: float | None, unread_events: int) -> None:
        """Tell the profiler, before a slot ends, what waits."""
        self._see_overdue()
        for lane in self._lanes.values():
            lane.end_slot()
            if self._book.waiting_events and not lane.has_room:
                self._profiler.no_credit(self.name, lane.name)
        ages = [age for age in (self._book.oldest_arrival_s(()), oldest_unread_s) if age is not None]
        events = self._book.waiting_events + unread_events
        self._profiler.waiting(self.name, events=events, oldest_arrival_s=min(ages, default=None))

    def waiting_runs(self) -> int:
        """Return how many runs wait for a lane."""
        return self._book.waiting_runs

    @property
    def idle(self) -> bool:
        """Whether every run that was offered is committed."""
        return self._book.idle and self._delivery.empty

    @property
    def committed_before(self) -> int:
        """Every event before this seq is committed."""
        return self._sink.committed.watermark()

    @property
    def trouble(self) -> str:
        """Why the sink takes nothing now; empty when it does."""
        return self._delivery.trouble

    async def close(self) -> None:
        """Stop all lanes and close the sink; what was not completed is done again after the next start."""
        for name in list(self._lanes):
            await self.remove_lane(name)
        await self._delivery.close()
        await asyncio.to_thread(self._log.close)
