"""One query from ingress to sink: its dispatchers, one for each part of a divided query, and its delivery."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol

from gateway.connectors.position import Position
from gateway.core.decide.profiler import Profiler
from gateway.core.exchange import Exchange, ExchangeSettings
from gateway.core.exchange.instructions import Release
from gateway.core.exchange.views import open_together
from gateway.core.intervals import IntervalSet
from gateway.journal.deadletters import DeadLetterFile
from gateway.query.flow.delivery import PACE, Delivery, Pace, Results
from gateway.query.flow.dispatcher import Dispatcher, LaneFailures, Loss, Watch
from gateway.query.flow.keyed.parts import joined, part_name
from gateway.query.flow.keyed.together import Division, Together
from gateway.query.flow.lane import Lane
from gateway.query.flow.measures import Measures
from gateway.query.flow.memory import MemoryShare
from gateway.query.flow.run import Run
from gateway.query.flow.runlog import RunLog
from gateway.query.flow.statistics import Tally
from gateway.sinks.base import Sink
from infra.clock import Clock
from infra.threads import run_to_end
from policies.failures.poison import BadRows
from policies.queueing.sketch import TimesSeen

_LOG = logging.getLogger(__name__)


class PipelineOwner(LaneFailures, Protocol):
    """Is notified of what happens to a query."""

    async def on_acknowledge(self, position: Position) -> None:
        """Acknowledge to the source that everything before this position is committed; called after each commit."""
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
        division: how the query is divided; None if it is not.
        watching: returns what sees the events of a part's exchange, if that is wanted; None: of the whole query's.

    Attributes:
        parts: the dispatcher of each part; one if the query is not divided.
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
        division: Division | None = None,
        watching: Callable[[int | None], Watch | None] = lambda _: None,
    ) -> None:
        self.name = name
        self._owner = owner
        self._log = log
        self._sink = sink
        self._memory = memory
        self._profiler = profiler
        self._clock = clock
        self._together: Together[Results] | None = None
        self._offering = False
        self.tally = tally
        self._measures = Measures(name, profiler, tally)
        make = partial(
            Dispatcher,
            owner=owner,
            on_handled=self._handled,
            sink=sink,
            bad_rows=bad_rows,
            memory=memory,
            clock=clock,
        )
        if division is None:
            watch = watching(None)
            self.parts = [make(name, settings, on_release=self._release, measures=self._measures, watch=watch)]
        else:
            self._together = Together(division, joined)
            self.parts = [
                make(
                    part_name(name, part),
                    replace(settings, place=place),
                    on_release=partial(self._release_of, part),
                    measures=Measures(name, profiler, tally, part),
                    resume_seq=resume_seq,
                    watch=watching(part),
                )
                for part, (place, resume_seq) in enumerate(zip(division.places, division.resume_seqs, strict=True))
            ]
        self._delivery = Delivery(
            sink,
            dead_letters,
            clock,
            position_after=lambda committed: log.position_before(self._done_before(committed)),
            on_tick=self._tick,
            on_commit=self._committed,
            pace=pace,
        )

    # ---------------------------------------------------------------------------------------------------- the parts

    @property
    def _exchanges(self) -> list[Exchange[Run, Results]]:
        return [part.exchange for part in self.parts]

    def _handled(self) -> None:
        self._memory.hold_results(sum(exchange.result_bytes for exchange in self._exchanges))
        if self._together is not None:
            self._offer_groups(self._together)

    def _tick(self) -> None:
        for part in self.parts:
            part.tick(max(1, self._memory.results_bound_bytes // len(self.parts)))
        self._measures.log_too_late(self._clock.now())

    def _release(self, release: Release[Results]) -> None:
        self._measures.released(release, self._clock.now())
        self._delivery.take(release)

    def _release_of(self, part: int, release: Release[Results]) -> None:
        assert self._together is not None, "it has parts"
        if (complete := self._together.joined(part, release)) is not None:
            self._release(complete)

    def offer(self, run: Run) -> None:
        """Accept a run from the ingress."""
        self._measures.arrived(run)
        if self._together is None:
            self.parts[0].offer(run)
        else:
            self._together.add(run)
            self._offer_groups(self._together)

    def carried(self, events: int, raw_bytes: int, since_s: float, now_s: float) -> None:
        """See ``Measures.carried``."""
        self._measures.carried(events, raw_bytes, since_s, now_s)

    def _offer_groups(self, together: Together[Results]) -> None:
        """Offer the micro-batches that are due to all parts."""
        if self._offering:
            return
        self._offering = True
        while (pieces := together.next_pieces(self._exchanges)) is not None:
            for part, piece in zip(self.parts, pieces, strict=True):
                part.offer(piece)
        self._offering = False

    # ------------------------------------------------------------------------------------------------------- lanes

    async def remove_lane(self, name: str, loss: Loss | None = None) -> None:
        """See ``Dispatcher.remove_lane``."""
        for part in self.parts:
            await part.remove_lane(name, loss)

    def drain_lane(self, name: str) -> None:
        """Send no further run to a lane."""
        for part in self.parts:
            part.drain_lane(name)

    def lane_idle(self, name: str) -> bool:
        """Whether nothing of this query is open in a lane."""
        return all(exchange.rested(name) for exchange in self._exchanges)

    @property
    def lanes(self) -> Mapping[str, Lane]:
        """The lanes by name; of parts in the same place, the lane of the first one."""
        return {name: lane for part in reversed(self.parts) for name, lane in part.lanes.items()}

    @property
    def isolating_s(self) -> float:
        """How long engine hosts have looked for bad rows in runs of the open lanes."""
        now_s = self._clock.now()
        return sum(
            exchange.lane(name).isolating_s(now_s) for exchange in self._exchanges for name in exchange.open_lanes
        )

    @property
    def rates_per_s(self) -> list[float]:
        """Events per second that each lane serves while it has work; 0 before its first."""
        now_s = self._clock.now()
        return [rate for exchange in self._exchanges for rate in exchange.rates_per_s(now_s)]

    def set_shares(self, shares: Mapping[str, float]) -> None:
        """Use these shares from now on."""
        for part in self.parts:
            part.set_shares(shares)

    @property
    def cloud_share(self) -> float:
        """R: the part of the events that cloud lanes should get."""
        return self.parts[0].exchange.cloud_share

    # ---------------------------------------------------------------------------------------------------- delivery

    async def run(self) -> None:
        """Deliver until cancelled."""
        await self._delivery.run()

    def _done_before(self, committed: IntervalSet) -> int:
        return self._log.needed_from(min(part.kept.needed_from(committed.watermark()) for part in self.parts))

    @property
    def needed_from(self) -> int:
        """The seq before which no run will be needed again."""
        return self._done_before(self._sink.committed)

    def keep_from(self, part: int, seq: int | None) -> None:
        """See ``KeptRuns.keep_from``; for one part."""
        self.parts[part].kept.keep_from(seq)

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
        for part in self.parts:
            part.committed(ranges)

    # ------------------------------------------------------------------------------------------------ what is asked

    def end_slot(self, oldest_unread_s: float | None, unread_events: int, gaps: TimesSeen | None = None) -> None:
        """Report to the profiler, before a slot ends, what waits, and the times between the slot's events."""
        self._tick()
        waiting_events, oldest = unread_events, [oldest_unread_s]
        if self._together is not None:
            waiting_events += self._together.waiting_events
            oldest.append(self._together.oldest_waiting_s)
        for part in self.parts:
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
            oldest_arrival_s=min((age for age in oldest if age is not None), default=None),
            open_runs=open_together([exchange.open_by_lane() for exchange in self._exchanges]),
            gaps=gaps,
        )

    def queued_runs(self, batch_runs: int) -> int:
        """Return how many runs wait for a lane or, at home, behind the present micro-batch of at most ``batch_runs``.

        Of a divided query these are the runs that wait for a lane in the part with the most: its lanes hold few.
        """
        if self._together is None:
            return self._exchanges[0].queued_runs(batch_runs)
        return max(exchange.waiting_runs for exchange in self._exchanges) + self._together.waiting_runs

    @property
    def idle(self) -> bool:
        """Whether every run that was offered is committed."""
        grouped = self._together is None or not self._together.waiting_runs
        return grouped and all(exchange.idle for exchange in self._exchanges)

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
        for part in self.parts:
            await part.close()
        await self._delivery.close()
        self._measures.log_too_late()
        await asyncio.to_thread(self._log.close)
