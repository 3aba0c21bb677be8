"""Turns records into runs: stamps seq and arrival, writes the run to the run log, then offers it for dispatch."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gateway.config.sections.handling import RunsConfig
from gateway.core.intervals import IntervalSet
from gateway.journal.deadletters import DeadLetterFile
from gateway.query.flow.letters import letter_of_dead, letters_of_dropped
from gateway.query.flow.linger import Linger
from gateway.query.flow.memory import MemoryShare
from gateway.query.flow.referring.loader import RunLoader
from gateway.query.flow.run import BATCH_RUNS_MAX, Run
from gateway.query.flow.runlog import RunLog, RunRecord
from gateway.query.flow.selecting.selector import Selected, Selector
from gateway.sources.base import Ahead, Chunk, Source
from gateway.sources.schedule import DueTimes
from infra.clock import Clock
from infra.queryplan import QueryPlan
from infra.retries import Outage
from infra.rows.base import SourceError, SourceUnavailableError
from infra.threads import run_to_end
from policies.arrays import Array
from policies.queueing.sketch import GapSketch
from policies.switching.shedding import Sampler

# How often to look again at a source without new records, or at memory that is in use.
_POLL_S = 0.05
_NO_TIMES: Array = np.zeros(0)
_NOT_READ: Final = pa.RecordBatch.from_pylist([], pa.schema([]))


@dataclass(frozen=True, slots=True)
class RunLimits:
    """When a run is closed: at a number of events or bytes, or once its first event has lingered (see ``Linger``)."""

    max_events: int
    max_bytes: int
    linger_s: float
    batch_runs: int = BATCH_RUNS_MAX


def run_limits(runs: RunsConfig, plan: QueryPlan) -> RunLimits:
    """Return when runs of a query with this plan are closed."""
    batch_runs = BATCH_RUNS_MAX if plan.stateful or plan.shares_batches else 1
    return RunLimits(runs.max_events, runs.max_bytes, runs.linger_s, batch_runs)


class Ingress:
    """The ingress of one query.

    Args:
        source: opened.
        log: the query's run log.
        dead_letters: the file for undecodable records.
        schedule: when records are due; None for a source that is read as fast as possible.
        limits: when a run is closed.
        memory: what the query holds, and may hold; the owner of a run releases its bytes.
        clock: time.
        order_column: the event-time column; an event that is older than an earlier one is out of order. Or None.
        on_run: receives each run, in order of seq.
        backlog: returns how many runs wait, given how many one micro-batch takes, and how many events a lane serves a
            second (0: unknown).
        selector: puts the events together into selections; None if the query has none.
        loader: looks ahead in the source for runs by reference; None if it is to be read.

    Attributes:
        sampler: decides which part of the events is shed.
        gaps: the times between events, those that are shed included.
        finished: whether the source has ended.
        at_rest: whether it has handed over everything that it has read, and is not reading now.
    """

    def __init__(
        self,
        *,
        source: Source,
        log: RunLog,
        dead_letters: DeadLetterFile,
        schedule: DueTimes | None,
        limits: RunLimits,
        memory: MemoryShare,
        clock: Clock,
        order_column: str | None,
        on_run: Callable[[Run], None],
        backlog: Callable[[int], tuple[int, float]],
        selector: Selector | None = None,
        loader: RunLoader | None = None,
    ) -> None:
        self._source = source
        self._log = log
        self._dead_letters = dead_letters
        self._schedule = schedule
        self._limits = limits
        self._memory = memory
        self._clock = clock
        self._order_column = order_column
        self._on_run = on_run
        self._backlog = backlog
        self._selector = selector
        self._loader = loader
        self._linger = Linger(limits.linger_s, limits.batch_runs)
        # The wall clock is read once; from then on only the monotonic clock measures.
        self._wall_offset_s = clock.wall() - clock.now()
        self._started_s = log.head.started_wall_s - self._wall_offset_s
        self._newest_us = self._newest_before()
        self._source_outage = Outage(clock, (SourceUnavailableError, OSError))
        self._disk_outage = Outage(clock, (OSError,))
        self.sampler = Sampler()
        self.gaps = GapSketch(seed=0)
        self.finished = False
        self.at_rest = True

    @property
    def trouble(self) -> str:
        """Why nothing can be read or logged now; empty if nothing is wrong."""
        return self._source_outage.why or self._disk_outage.why

    def oldest_unread_s(self) -> float | None:
        """Return when the oldest record that is due but unread was due; None if there is none."""
        if self.finished:
            return None
        if self._schedule is None:
            backlog = self._source.backlog()
            if backlog is None or backlog.oldest_wall_s is None:
                return None
            return min(backlog.oldest_wall_s - self._wall_offset_s, self._clock.now())
        due_s = self._started_s + self._schedule.due_s(self._log.position.record)
        return due_s if due_s <= self._clock.now() else None

    def due_unread_count(self) -> int:
        """Return the number of records that are due but unread."""
        if self.finished:
            return 0
        if self._schedule is None:
            backlog = self._source.backlog()
            return 0 if backlog is None else backlog.records
        due = self._schedule.due_count(self._clock.now() - self._started_s)
        return max(0, due - self._log.position.record)

    async def settle(self, action: Callable[[], Awaitable[None]]) -> None:
        """Run ``action``, which finds out where the source continues, as soon as the source can be reached."""
        await self._source_outage.outlast("the source", action)
        self._newest_us = self._newest_before()

    async def recover(self, done: IntervalSet, from_seq: int | None = None, planned_end_seq: int = 0) -> None:
        """Cut the logged runs that are not in ``done`` again, exactly as they were.

        Args:
            done: what the sink holds.
            from_seq: where a stateful query continues; runs from there on are cut again although their results exist.
            planned_end_seq: the end of the micro-batch that Spark will run again: its runs are in memory together, even
                if the query's share of it is smaller now.

        Raises:
            SourceError: the source has changed.
        """
        for record in list(self._log.runs):
            wanted_again = from_seq is not None and record.first_seq >= from_seq
            is_done = done.covers(record.first_seq, record.last_seq) and not wanted_again
            if is_done and (self._selector is None or record.first_seq < self._selector.begin_seq):
                continue
            if record.first_seq >= planned_end_seq:
                await self._memory.wait()
            if record.reference:
                self._hand_over(record, _NOT_READ, self._clock.now(), None)
                continue
            chunk = await self._read_again(record)
            events = record.last_seq - record.first_seq + 1
            if chunk.batch.num_rows != events + record.shed:
                raise SourceError(
                    f"events {record.first_seq} to {record.last_seq} were logged from the source's records "
                    f"{record.start.record} to {record.end.record - 1}, but there are {chunk.batch.num_rows} events in "
                    "them now: restore the source"
                )
            batch = sampled(chunk.batch, record.shed)
            # Selections that are open after it may have events of a run that is done.
            selected = None if self._selector is None else self._selector.select(batch, record.selections)
            if not is_done:
                await self._note_dropped(selected)
                self._hand_over(record, batch, self._clock.now(), selected)
        await self._source_outage.outlast("the source", lambda: self._source.seek(self._log.position))

    async def _read_again(self, record: RunRecord) -> Chunk:
        return await self._source_outage.outlast(
            "the source", lambda: self._source.read_between(record.start, record.end)
        )

    async def run(self) -> None:
        """Read until the source has finished, then ``finished`` is true. It may be called again."""
        self.finished = False
        while not await self._source_outage.outlast("the source", self._source.finished):
            await self._memory.wait()
            wanted = await self._wait_until_due()
            self.at_rest = False
            chunk = await self._read(wanted)
            match chunk:
                case Chunk():
                    await self._take(chunk)
                case Ahead():
                    await self._refer(chunk)
            self.at_rest = True
            if chunk is None or not chunk.more:
                pause_s = _POLL_S if chunk is None else self._linger_s
                await self._clock.sleep_until(self._clock.now() + pause_s)
        self.finished = True

    async def _read(self, wanted: int) -> Chunk | Ahead | None:
        most_bytes = self._limits.max_bytes
        read: Callable[[], Awaitable[Chunk | Ahead | None]] = partial(self._source.read, wanted, most_bytes)
        if self._loader is not None and not self.sampler.share:
            read = partial(self._loader.ahead, wanted, most_bytes)
        return await self._source_outage.outlast("the source", read)

    async def _wait_until_due(self) -> int:
        """Return how many records the next run may have, once it is full or its first one has lingered."""
        limit = self._limits.max_events
        if self._schedule is None:
            return limit
        while True:
            first = self._log.position.record
            closes_s = self._started_s + min(
                self._schedule.due_s(first) + self._linger_s, self._schedule.due_s(first + limit - 1)
            )
            if closes_s <= self._clock.now():
                return min(max(1, self.due_unread_count()), limit)
            await self._clock.sleep_until(closes_s)

    @property
    def _linger_s(self) -> float:
        return self._linger.next_s(*self._backlog(self._limits.batch_runs))

    async def _take(self, chunk: Chunk) -> None:
        read_s = self._clock.now()
        if chunk.dead:
            now_wall_s = self._clock.wall()
            letters = [letter_of_dead(dead, now_wall_s) for dead in chunk.dead]
            await self._on_disk("the dead-letter file", lambda: self._dead_letters.add(letters))
        self.gaps.add(self._arrivals_s(chunk))
        shed = 0 if _replayed(chunk) else self.sampler.shed(chunk.batch.num_rows)
        batch = sampled(chunk.batch, shed)
        if batch.num_rows == 0:
            self._log.skip(chunk.end, shed)
            return
        first_seq = self._log.next_seq
        selected = None if self._selector is None else self._selector.select(batch)
        record = RunRecord(
            first_seq,
            first_seq + batch.num_rows - 1,
            chunk.start,
            chunk.end,
            self._arrival_s(chunk) + self._wall_offset_s,
            disordered=self._is_disordered(batch),
            newest=self._newest_now(),
            shed=shed,
            shed_before=self._log.shed_since,
            selections=None if self._selector is None else self._selector.mark,
        )
        await self._on_disk("the run log", lambda: self._log.append([record]))
        await self._note_dropped(selected)
        self._linger.cut(batch.num_rows)
        self._hand_over(record, batch, read_s, selected)

    async def _refer(self, ahead: Ahead) -> None:
        """Log records that are not read as a run by reference."""
        read_s, first_seq = self._clock.now(), self._log.next_seq
        arrival_wall_s = read_s + self._wall_offset_s
        if ahead.arrivals_wall_s is not None:
            self.gaps.add(ahead.arrivals_wall_s)
            arrival_wall_s = min(float(ahead.arrivals_wall_s.mean()), arrival_wall_s)
        last_seq, shed_before = first_seq + ahead.offsets - 1, self._log.shed_since
        record = RunRecord(
            first_seq, last_seq, ahead.start, ahead.end, arrival_wall_s, shed_before=shed_before, reference=True
        )
        await self._on_disk("the run log", lambda: self._log.append([record]))
        self._linger.cut(ahead.offsets)
        self._hand_over(record, _NOT_READ, read_s, None)

    async def _note_dropped(self, selected: Selected | None) -> None:
        """Add dead letters for selections that ended without a result; after a restart those that are missing."""
        if selected is None or self._selector is None or not len(selected.dropped_seqs):
            return
        seqs = selected.dropped_seqs.tolist()
        letters = list(letters_of_dropped(selected.dropped, seqs, self._selector.most_open, self._clock.wall()))
        await self._on_disk("the dead-letter file", lambda: self._dead_letters.add(letters))

    async def _on_disk(self, what: str, write: Callable[[], None]) -> None:
        await self._disk_outage.outlast(what, lambda: run_to_end(write))

    def _hand_over(self, record: RunRecord, batch: pa.RecordBatch, read_s: float, selected: Selected | None) -> None:
        batch = batch if selected is None else selected.batch
        raw_bytes = batch.get_total_buffer_size() if batch.num_columns == 0 else batch.nbytes
        if record.reference:
            events = record.last_seq - record.first_seq + 1
            raw_bytes = events if self._loader is None else self._loader.bytes_of(events)
        run = Run(
            record.first_seq,
            record.last_seq,
            batch,
            min(record.arrival_wall_s - self._wall_offset_s, self._clock.now()),
            raw_bytes,
            disordered=record.disordered,
            shed=record.shed + record.shed_before,
            read_s=read_s,
            selected=None if selected is None else selected.seqs,
            fresh=None if selected is None else selected.fresh,
            open_from=0 if selected is None else selected.open_from,
            reference=(record.start, record.end) if record.reference else None,
        )
        self._memory.take(run.raw_bytes)
        self._on_run(run)

    def _arrival_s(self, chunk: Chunk) -> float:
        if self._schedule is None or _replayed(chunk):  # not due
            came_wall_s = chunk.arrival_wall_s
            # An arrival in the future comes from a clock that is fast.
            return (
                self._clock.now() if came_wall_s is None else min(self._clock.now(), came_wall_s - self._wall_offset_s)
            )
        return self._started_s + self._schedule.mean_due_s(chunk.start.record, chunk.end.record - 1)

    def _arrivals_s(self, chunk: Chunk) -> Array:
        """Return when each record came, if that is known: only differences of these times count."""
        if self._schedule is not None and not _replayed(chunk):
            return self._schedule.due_times_s(chunk.start.record, chunk.end.record - 1)
        return _NO_TIMES if self._schedule is not None or chunk.arrivals_wall_s is None else chunk.arrivals_wall_s

    def _newest_before(self) -> int | None:
        """Return the newest event time in the log, so that a restart does not change what counts as out of order."""
        known = self._log.newest
        return known[1] if known is not None and known[0] == self._order_column else None

    def _newest_now(self) -> tuple[str, int] | None:
        if self._order_column is None or self._newest_us is None:
            return None
        return self._order_column, self._newest_us

    def _is_disordered(self, batch: pa.RecordBatch) -> bool:
        if self._order_column is None:
            return False
        times_us = batch.column(self._order_column).drop_null().cast(pa.int64())
        if not len(times_us):
            return False
        rising = len(times_us) == 1 or pc.all(pc.less_equal(times_us[:-1], times_us[1:])).as_py()
        bounds = pc.min_max(times_us).as_py()
        late = self._newest_us is not None and bounds["min"] < self._newest_us
        self._newest_us = bounds["max"] if self._newest_us is None else max(self._newest_us, bounds["max"])
        return bool(late or not rising)


def sampled(batch: pa.RecordBatch, shed: int) -> pa.RecordBatch:
    """Return a batch without ``shed`` of its rows, evenly spread; always the same rows."""
    rows, kept = batch.num_rows, batch.num_rows - shed
    if not shed:
        return batch
    return batch.take(pa.array([(2 * i + 1) * rows // (2 * kept) for i in range(kept)], pa.int64()))


def _replayed(chunk: Chunk) -> bool:
    return chunk.end.record == chunk.start.record
