"""A stateful query: its offsets are seq, and its checkpoint advances only when the sink holds the results."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame

from engines.query.known import KnownQuery, RefusedError
from engines.query.reasons import why
from engines.spark.scratch import scratch_folder
from engines.spark.session import is_local
from engines.stateless import FEED_BYTES
from engines.streaming import checkpoints
from engines.streaming.activity import Activity
from engines.streaming.answers import OnAnswers, RunOutcome
from engines.streaming.checkpoints import CheckpointError, ResumePoint
from engines.streaming.feed import Feed, FeedServer
from engines.streaming.stream import OnDeath, Stream, Warmth, put_warm_up
from engines.streaming.tables import one_batch
from infra.clock import Clock
from infra.messages import QueryPlan


def why_no_state_there(master: str, query: str, plan: QueryPlan) -> str:
    """Return why a query cannot run on a Spark master; empty if it can."""
    if plan.switch_class != "whole" or is_local(master):
        return ""
    return (
        f"query {query} holds state ({plan.reason}); its checkpoint is on this machine's disk, which executors of "
        f"{master} do not see: run it on a local master"
    )


class StatefulStream:
    """A stateful query, open, for one gateway session.

    Args:
        query: the query.
        server: where Spark asks for runs.
        clock: measures micro-batches.
        on_answers: called with one answer for each micro-batch.
        on_death: called with the reason when the query has failed.

    Attributes:
        activity: the record of Spark's work for it.
        progress: where it continues; runs must be put from ``progress.resume_seq`` on, without gaps.

    Raises:
        RefusedError: it has no checkpoint folder, a damaged one, or the executors run on other machines.
    """

    def __init__(
        self, query: KnownQuery, server: FeedServer, clock: Clock, on_answers: OnAnswers, on_death: OnDeath
    ) -> None:
        self.query = query
        self.activity = Activity(clock)
        self._server = server
        self._clock = clock
        self._on_answers = on_answers
        self._on_death = on_death
        self._committed = threading.Condition()
        self._committed_seq = -1
        self._abandoned = False
        folder = self._new_start()
        self.feed = Feed(self.progress.resume_seq, query.spec.max_batch_runs, FEED_BYTES, clock)
        self._stream = Stream(query, server, self.feed, folder, self._batch, on_death)

    def open(self) -> None:
        """Start; if it never ran on this host, first run an empty micro-batch over a temporary checkpoint.

        Raises:
            RefusedError: Spark cannot run it as a stream in append mode, or it fails even without events.
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
            raise ValueError(f"run {first_seq}-{end_seq - 1} arrived, but seq {self.feed.next_position} is next")
        self.feed.put(parts, tag, end_seq - first_seq)

    @property
    def death(self) -> str:
        """Return why it ended; empty while it lives."""
        return self._stream.death

    @property
    def can_change_owner(self) -> bool:
        """Return False: another session cannot know what this session's sink holds."""
        return False

    def committed(self, last_seq: int) -> None:
        """Note that the sink holds all results up to and including ``last_seq``."""
        with self._committed:
            self._committed_seq = max(self._committed_seq, last_seq)
            self._committed.notify_all()

    def drop_waiting(self) -> None:
        """End the micro-batch that waits for the sink: nobody will report that the sink has the results."""
        with self._committed:
            self._abandoned = True
            self._committed.notify_all()

    def close(self) -> None:
        """Stop; a micro-batch whose results the sink does not hold is not committed and will run again."""
        self.drop_waiting()
        self._stream.stop()

    def _new_start(self) -> Path:
        spec = self.query.spec
        master = str(self.query.base.sparkContext.master)
        if not spec.checkpoint_dir:
            raise RefusedError(
                f"query {spec.query} is stateful ({self.query.plan.reason}) and has no checkpoint folder"
            )
        if no := why_no_state_there(master, spec.query, self.query.plan):
            raise RefusedError(no)
        try:
            folder = checkpoints.new_start(Path(spec.checkpoint_dir))
            self.progress: ResumePoint = checkpoints.progress_of(folder, spec.begin_seq)
        except (CheckpointError, OSError) as error:
            raise RefusedError(f"query {spec.query}: {why(error)}") from error
        return folder

    def _batch(self, frame: DataFrame, batch_id: int) -> None:
        items = self.feed.planned
        if not items:
            # Spark plans a first micro-batch even without runs; the second needs the state that this one makes.
            frame.toArrow()
            return
        with self.activity.running():
            rows = one_batch(frame.toArrow(), self.query.result_schema)
        self._on_answers([RunOutcome(items, rows, (), batch_id, self._clock.now() - self.feed.planned_at_s)])
        self._wait_for_sink(items[-1].end - 1)
        self.feed.release(items[-1].end)

    def _wait_for_sink(self, last_seq: int) -> None:
        with self._committed:
            self._committed.wait_for(lambda: self._abandoned or self._committed_seq >= last_seq)
            if self._committed_seq < last_seq:
                raise RuntimeError(
                    f"the gateway disconnected before its sink held seq {last_seq}: the batch is not committed"
                )

    def _warm_up(self) -> None:
        warmth = Warmth()
        folder = scratch_folder("warm")
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
