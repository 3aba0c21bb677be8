"""A stateful query: its offsets are seq, and its checkpoint advances only when the sink holds the results."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame

from engines.isolation.batchisolation import BATCH_S, BatchIsolation, StoppedError
from engines.isolation.isolate import BrokenError, ExhaustedError, check_memory
from engines.isolation.verdicts import EVALUATION_ERRORS
from engines.late.laterows import NONE_LATE, LateRows
from engines.query.known import KnownQuery, RefusedError
from engines.query.reasons import why
from engines.spark.scratch import scratch_folder
from engines.spark.sparkconf import is_local
from engines.stateless import FEED_BYTES
from engines.streaming import checkpoints
from engines.streaming.activity import Activity
from engines.streaming.answers import Reports, RunOutcome
from engines.streaming.checkpoints import CheckpointError, ResumePoint
from engines.streaming.feed import Feed, FeedServer, Item
from engines.streaming.sharedfolder import NotSharedError, SharedFolder
from engines.streaming.stream import OnDeath, Stream, Warmth, put_warm_up
from engines.streaming.tables import one_batch, unpack, with_heartbeats, without
from infra.clock import Clock
from infra.messages import Poison, QueryPlan

_SEARCHES_MOST = 3
"""If a micro-batch fails again after so many searches, the query is broken."""


def why_no_state_there(master: str, query: str, plan: QueryPlan, *, shared: bool) -> str:
    """Return why a query cannot run on a Spark master; empty if it can.

    Args:
        master: Spark's.
        query: its name.
        plan: its plan.
        shared: whether there is a folder for checkpoints that executors see.
    """
    if not plan.stateful or is_local(master) or shared:
        return ""
    return (
        f"query {query} holds state ({plan.reason}), and executors of {master} do not see the state_dir: set "
        "private.spark.checkpoints to a folder that this machine and all executors share, at the same path "
        "everywhere, or run it on a local master"
    )


@dataclass
class _Failing:
    """A micro-batch that fails.

    Attributes:
        items: its runs as they came.
        reason: why it failed last.
        poison: the rows that are left out when it runs again.
        searches: how often its bad rows were looked for.
    """

    items: tuple[Item, ...]
    reason: str
    poison: tuple[Poison, ...] = ()
    searches: int = 0


class StatefulStream:
    """A stateful query, open, for one gateway session.

    Args:
        query: the query.
        server: where Spark asks for runs.
        clock: measures micro-batches.
        reports: get one answer for each micro-batch.
        batch_s: how long the search in one micro-batch may take.

    Attributes:
        activity: the record of Spark's work for it.
        progress: where it continues; runs must be put from ``progress.resume_seq`` on, without gaps.

    Raises:
        RefusedError: it has no checkpoint folder, a damaged one, or one that not all executors share.
    """

    def __init__(
        self,
        query: KnownQuery,
        server: FeedServer,
        clock: Clock,
        reports: Reports,
        batch_s: float = BATCH_S,
    ) -> None:
        self.query = query
        self.activity = Activity(clock)
        self._server = server
        self._clock = clock
        self._reports = reports
        self._broken = ""
        self._committed = threading.Condition()
        self._committed_seq = -1
        self._abandoned = False
        self._closing = threading.Event()
        self._failing: _Failing | None = None
        self._failed_now = False
        self._isolation = BatchIsolation(query, server, clock, self.activity, self._closing.is_set, batch_s)
        self._isolating = threading.Lock()
        self._shared = self._shared_folder()
        self._checkpoint = self._new_start()
        self.progress = self._progress()
        spec = query.spec
        self.feed = Feed(self.progress.resume_seq, spec.max_batch_runs, FEED_BYTES, clock, spec.batch_ends)
        self._stream = self._new_stream()

    def open(self) -> None:
        """Start; if it never ran on this host, first run an empty micro-batch over a temporary checkpoint.

        Raises:
            RefusedError: Spark cannot run it as a stream in its output mode, or it fails even without events.
        """
        if not self.query.warm:
            self._warm_up()
        try:
            self._stream.start()
        except BaseException:
            self.close()
            raise

    def put(self, parts: Sequence[pa.Buffer], tag: object, first_seq: int, end_seq: int) -> None:
        """Append a run; blocks while the feed is full.

        Raises:
            FeedClosed: the query was stopped.
            ValueError: it is not the next one.
        """
        if first_seq != self.feed.next_position:
            raise ValueError(
                f"run {first_seq}-{end_seq - 1} arrived, but seq {self.feed.next_position} is next by the checkpoint: "
                f"restore or mount the state of this query in {self.query.spec.checkpoint_dir}"
            )
        self.feed.put(parts, tag, end_seq - first_seq)

    @property
    def death(self) -> str:
        """Return why it ended; empty while it lives."""
        return self._stream.death or self._broken

    @property
    def can_change_owner(self) -> bool:
        """Return False: another session cannot know what this session's sink holds."""
        return False

    def committed(self, last_seq: int) -> None:
        """Note that the sink holds all results up to and including ``last_seq``."""
        with self._committed:
            self._committed_seq = max(self._committed_seq, last_seq)
            self._committed.notify_all()

    @property
    def by_reference(self) -> bool:
        """Return that runs need their events."""
        return False

    def put_ranges(self, parts: Sequence[pa.Buffer], tag: object) -> None:  # noqa: ARG002
        """Refuse a run by reference.

        Raises:
            ValueError: always.
        """
        raise ValueError(f"query {self.query.spec.query}: a run came by reference: {tag!r:.200}")

    def drop_waiting(self) -> None:
        """End the micro-batch that waits for the sink: nobody will report that the sink has the results."""
        with self._committed:
            self._abandoned = True
            self._committed.notify_all()

    def close(self) -> None:
        """Stop; a micro-batch whose results the sink does not hold is not committed and will run again."""
        self._closing.set()
        self.drop_waiting()
        with self._isolating:
            self._stream.stop()
        self.feed.close("the query was stopped")

    def _new_stream(self) -> Stream:
        return Stream(
            self.query, self._server, self.feed, self._checkpoint, self._batch, self._reports.death, self._goes_on
        )

    def _shared_folder(self) -> SharedFolder | None:
        """Return the checkpoint folder, which all executors share; None if they run in this host's JVM."""
        spec, base = self.query.spec, self.query.base
        master = str(base.sparkContext.master)
        if is_local(master):
            return None
        if no := why_no_state_there(master, spec.query, self.query.plan, shared=bool(spec.checkpoint_dir)):
            raise RefusedError(no)
        shared = SharedFolder(base, Path(spec.checkpoint_dir))
        try:
            shared.check()
        except (NotSharedError, CheckpointError) as error:
            raise RefusedError(f"query {spec.query}: {error}") from error
        return shared

    def _new_start(self) -> Path:
        spec = self.query.spec
        if not spec.checkpoint_dir:
            raise RefusedError(
                f"query {spec.query} is stateful ({self.query.plan.reason}) and has no checkpoint folder"
            )
        try:
            return checkpoints.new_start(Path(spec.checkpoint_dir))
        except (CheckpointError, OSError) as error:
            raise RefusedError(f"query {spec.query}: {why(error)}") from error

    def _progress(self) -> ResumePoint:
        spec = self.query.spec
        try:
            return checkpoints.progress_of(self._checkpoint, spec.begin_seq)
        except (CheckpointError, OSError) as error:
            raise RefusedError(f"query {spec.query}: {why(error)}") from error

    def _batch(self, frame: DataFrame, batch_id: int) -> None:
        items = self.feed.planned
        if not items:
            # Spark plans a first micro-batch even without runs; the second needs the state that this one makes.
            frame.toArrow()
            return
        try:
            with self.activity.running():
                rows = one_batch(frame.toArrow(), self.query.result_schema)
        except EVALUATION_ERRORS as error:
            self._failing = self._failing or _Failing(items, "")
            self._failing.reason, self._failed_now = why(error), True
            raise
        if self._shared is not None:
            self._shared.check()  # an executor that joined meanwhile may have written state elsewhere
        batch_s = self._clock.now() - self.feed.planned_at_s
        poison = self._failing.poison if self._failing else ()
        figures = self._stream.state_figures()
        late = self._late(items, poison) if self.query.spec.keep_late and figures.too_late else NONE_LATE
        self._reports.answers([RunOutcome(items, rows, poison, batch_id, batch_s, figures, late)])
        self._wait_for_sink(items[-1].end - 1)
        self._failing = None
        self.feed.release(items[-1].end)

    def _late(self, items: Sequence[Item], poison: Sequence[Poison]) -> LateRows:
        """Return the rows that came too late, counted with those that were left out."""
        rows = unpack([part for item in items for part in item.parts], self.query.run_schema)
        with self.activity.running():
            found = self._stream.late_rows(rows)
        return found.counted_with({bad.row for bad in poison})

    def _goes_on(self) -> bool:
        """Run the micro-batch that ended Spark's stream again without its bad rows; return False if no row ended it."""
        failed, self._failed_now = self._failed_now, False
        with self._isolating:
            if self._closing.is_set():
                return True
            if not failed or self._failing is None:
                return False
            try:
                self._run_without_bad_rows(self._failing)
            except StoppedError:
                pass
            except BrokenError as error:
                self._end(self._reports.broken, str(error))
            except ExhaustedError as error:
                self._end(self._reports.exhausted, str(error))
            except Exception as error:
                self._end(self._reports.death, f"looking for rows that fail: {why(error)}")
        return True

    def _run_without_bad_rows(self, failing: _Failing) -> None:
        if failing.searches == _SEARCHES_MOST:
            raise BrokenError(f"rows that pass over a copy of the state fail in the query: {failing.reason}")
        failing.searches += 1
        exhausts = check_memory(failing.reason, shares_host=self.query.spec.shares_host)
        self._reports.isolating(failing.items)
        bad = self._isolation.bad_rows(failing.items, self._checkpoint, exhausts=exhausts)
        failing.poison = tuple(Poison(row=row, reason=reason) for row, reason in bad.items())
        # In a part they still count for the watermark, as they do in the other parts, which got a copy.
        leave_out = without if self.query.spec.part is None else with_heartbeats
        self.feed.replace(leave_out(failing.items, bad, self.query.run_schema))
        # The new stream plans the same micro-batch: its limits are in the checkpoint.
        self._checkpoint = self._new_start()
        self._stream = self._new_stream()
        self._stream.start()

    def _end(self, report: OnDeath, reason: str) -> None:
        self._broken = reason
        self.feed.close(reason)
        report(reason)

    def _wait_for_sink(self, last_seq: int) -> None:
        with self._committed:
            self._committed.wait_for(lambda: self._abandoned or self._committed_seq >= last_seq)
            if self._committed_seq < last_seq:
                raise RuntimeError(
                    f"the gateway disconnected before its sink held seq {last_seq}: the batch is not committed"
                )

    def _warm_up(self) -> None:
        warmth = Warmth()
        on_cluster = self._shared is not None
        folder = checkpoints.temporary(self._checkpoint.parent, "warm") if on_cluster else scratch_folder("warm")
        feed = Feed(0, 1, FEED_BYTES, self._clock)

        def batch(frame: DataFrame, _: int) -> None:
            frame.toArrow()
            warmth.warmed()

        stream = Stream(self.query, self._server, feed, folder, batch, warmth.died)
        try:
            put_warm_up(feed, self.query)
            stream.start()
            warmth.wait(self.query.spec.query)
        finally:
            stream.stop()
            shutil.rmtree(folder, ignore_errors=True)
