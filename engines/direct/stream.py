"""A query from Kafka to Kafka that Spark runs by itself: in real-time mode where that is possible, else micro-batches.

Each start has a checkpoint folder of its own and begins at given offsets: the gateway keeps the record of who owns
which offsets. A result has headers that name its event, so that nobody takes it twice.
"""

from __future__ import annotations

import json
import logging
import shutil
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from engines.direct.cores import RealTimeCores
from engines.direct.kafkaoptions import options
from engines.query.known import KnownQuery, RefusedError
from engines.query.reasons import why
from engines.spark.scratch import scratch_folder
from engines.streaming.activity import Activity
from engines.streaming.checkpoints import ResumePoint
from infra.clock import Clock
from infra.messages import DirectProgress, OffsetAt

_LOOK_S = 0.1
_TASKS_END_S, _TASK_LOOK_S = 10.0, 0.02
_BATCH_TIMES = 1.5
"""A batch may take so many times the interval of checkpoints, if it is waited for."""
_log = logging.getLogger("spillway.host")
# Spark refuses real-time mode with an error of this class.
_NOT_REAL_TIME = "REAL_TIME_MODE"


class DirectStream:
    """The running stream of one query, open on this host. No run is put in: it reads by itself.

    Args:
        query: its results name their events; its request has ``reads`` and ``direct``.
        records: of its results, as ``Flows`` has them.
        clock: measures Spark's work.
        cores: of the host, for real-time mode.
        on_progress: called with each progress, on a thread of this stream.
        on_death: called with the reason when it ends without ``close``, on that thread.

    Attributes:
        progress: always empty: the query has no state.
        activity: the record of Spark's work for it.
        death: why it ended without ``close``; empty while it lives.
        by_reference, can_change_owner: no run comes, and only the gateway that opened it knows where it began.
    """

    by_reference = False
    can_change_owner = False

    def __init__(
        self,
        query: KnownQuery,
        records: DataFrame,
        clock: Clock,
        cores: RealTimeCores,
        on_progress: Callable[[DirectProgress], None],
        on_death: Callable[[str], None],
    ) -> None:
        assert query.spec.direct is not None
        self.query, self._clock, self._cores = query, clock, cores
        self.progress = ResumePoint()
        self.activity = Activity(clock)
        self.death = ""
        self._flow, self._records = query.spec.direct, records
        self._on_progress, self._on_death = on_progress, on_death
        self._session = records.sparkSession
        self._folder = scratch_folder("direct")
        self._running: StreamingQuery | None = None
        self._has_cores = 0
        self._ends: tuple[OffsetAt, ...] = ()
        self._batch = -1
        self._told = tuple(sorted(self._flow.starts, key=_place))
        self._closing, self._ended = threading.Event(), threading.Event()
        self._watching = threading.Thread(target=self._watch, name=f"direct-{query.spec.query}", daemon=True)

    def put(self, parts: Sequence[pa.Buffer], tag: object, first_seq: int = 0, end_seq: int = 0) -> None:  # noqa: ARG002
        """Refuse a run.

        Raises:
            ValueError: always.
        """
        raise ValueError(f"query {self.query.spec.query} reads by itself: no run can be sent to it")

    def put_ranges(self, parts: Sequence[pa.Buffer], tag: object) -> None:
        """Refuse a run, as ``put`` does."""
        self.put(parts, tag)

    def drop_waiting(self) -> None:
        """Do nothing: no run waits."""

    def committed(self, last_seq: int) -> None:
        """Do nothing: no state waits for the sink."""

    def open(self) -> None:
        """Start it.

        Raises:
            RefusedError: Spark cannot start it; the message says why.
        """
        self._has_cores = self._cores.take(len(self._flow.starts), self._session.sparkContext.defaultParallelism)
        try:
            self._running = self._start()
        except Exception as error:  # Spark may raise anything
            self.close()
            raise RefusedError(f"query {self.query.spec.query}: {why(error)}") from error
        self._watching.start()

    def finish_batch(self) -> None:
        """Return when its present batch has ended, if that does not take too long.

        If it is closed just then, hardly anything has to be read again of what it has delivered.
        """
        batch, gives_up_s = self._batch, self._clock.now() + _BATCH_TIMES * self._flow.checkpoint_s
        while self._batch == batch and not self.death and self._clock.now() < gives_up_s:
            self._ended.wait(_TASK_LOOK_S)

    def close(self) -> None:
        """Stop; the results of what was read since the last progress may be written or not."""
        self._closing.set()
        if self._running is not None:
            self._running.stop()
            if self._watching.is_alive():
                self._watching.join()
            self._running.stop()  # another one, if it has just gone on in micro-batches
            self._wait_for_tasks(self._running)
            self._look(self._running)
        self._on_progress(self._progress(stopped=True))
        self._free_cores()
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def _real_time(self) -> bool:
        return self._has_cores > 0

    def _free_cores(self) -> None:
        freed, self._has_cores = self._has_cores, 0
        self._cores.give_back(freed)

    def _start(self) -> StreamingQuery:
        writer = self._records.writeStream.format("kafka").options(**options(self._flow.access))
        writer = writer.option("topic", self._flow.topic)
        if self._real_time:
            trigger: Any = writer.outputMode("update").trigger  # its stubs do not know real-time mode
            writer = trigger(realTime=f"{self._flow.checkpoint_s} seconds")
        folder = self._folder / ("real-time" if self._real_time else "micro-batches")
        context = self._session.sparkContext
        context.setLocalProperty("spark.scheduler.pool", self.query.spec.query)
        try:
            return writer.option("checkpointLocation", folder.as_uri()).start()
        finally:
            context.setLocalProperty("spark.scheduler.pool", "default")

    def _wait_for_tasks(self, running: StreamingQuery) -> None:
        """Return once no task of a stream that was stopped writes any more: Spark only asks them to end."""
        tracker, ends_s = self._session.sparkContext.statusTracker(), self._clock.now() + _TASKS_END_S
        jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(str(running.runId))]
        stages = [stage for job in jobs if job is not None for stage in job.stageIds]
        while any((info := tracker.getStageInfo(stage)) is not None and info.numActiveTasks for stage in stages):
            if self._clock.now() > ends_s:
                _log.warning("query %s: its tasks did not end within %g s", self.query.spec.query, _TASKS_END_S)
                return
            self._ended.wait(_TASK_LOOK_S)

    def _watch(self) -> None:
        told_s = self._clock.now()
        with self.activity.running():
            while not self._closing.wait(_LOOK_S):
                running = self._running
                assert running is not None
                active = running.isActive
                self._look(running)
                # Not for each micro-batch, and also if nothing came: then it shows that the stream lives.
                if active and self._clock.now() - told_s >= self._flow.checkpoint_s:
                    told_s = self._clock.now()
                    self._on_progress(self._progress())
                if not active and not self._closing.is_set() and not self._goes_on(running):
                    self.death = _reason(running)
                    self._free_cores()
                    self._on_death(self.death)
                    return

    def _goes_on(self, running: StreamingQuery) -> bool:
        """Return whether it ended only because it cannot be in real-time mode: then it goes on in micro-batches."""
        if not self._real_time or self._ends or _NOT_REAL_TIME not in _reason(running):
            return False
        self._free_cores()
        self._running = self._start()
        return True

    def _look(self, running: StreamingQuery) -> None:
        """Note how far it is."""
        found: Any = running._jsq.lastProgress()  # noqa: SLF001 - the JVM's has the offsets as text
        if found is None:
            return
        self._batch = found.batchId()
        (source,) = json.loads(found.json())["sources"]
        places = [
            OffsetAt(topic, int(number), end)
            for topic, each in source["endOffset"].items()
            for number, end in each.items()
        ]
        self._ends = tuple(sorted(places, key=_place))

    def _progress(self, *, stopped: bool = False) -> DirectProgress:
        spec, ends = self.query.spec, self._ends or self._told
        events = sum(end.offset - before.offset for before, end in zip(self._told, ends, strict=True))
        self._told = ends
        return DirectProgress(
            query=spec.query,
            epoch=spec.epoch,
            ends=ends,
            events=events,
            real_time=self._real_time,
            stopped=stopped,
        )


def _place(each: OffsetAt) -> tuple[str, int]:
    return each.topic, each.partition


def _reason(running: StreamingQuery) -> str:
    error = running.exception()
    return "the stream ended by itself" if error is None else why(error)
