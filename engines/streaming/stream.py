"""One Spark streaming query over a feed: start, warm-up, supervision, stop."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from engines.late.laterows import LateRows, late_rows
from engines.late.lineage import NoLineageError, check
from engines.query.known import KnownQuery, RefusedError
from engines.query.nodes import watermarks
from engines.query.reasons import why
from engines.query.streams.views import event_times
from engines.spark.session import sibling
from engines.streaming import source
from engines.streaming.feed import Feed, FeedServer, stream_of
from engines.streaming.source import FORMAT, RunSource
from engines.streaming.stateoperators import StateFigures, StateOperators, execution_of

# Executors may run on machines without this project.
cloudpickle.register_pickle_by_value(source)  # type: ignore[no-untyped-call]

WARM_S = 120.0
"""How long the first micro-batch of a query may take; on a busy small machine it takes 2 to 20 s."""

OnBatch = Callable[[DataFrame, int], None]
OnDeath = Callable[[str], None]


class Stream:
    """A running streaming query.

    Args:
        query: the query.
        server: where Spark's source process requests runs.
        feed: the runs.
        checkpoint: Spark's folder for this start.
        on_batch: called for each micro-batch on a thread of the bridge to Java; an error in it ends the stream.
        on_death: called with the reason, on a thread of its own, when the stream ends without `stop`.
        resume: called first, on that thread. It may go on with the feed in another stream: if it returns True, this
            end is no death.

    Attributes:
        stopping: whether `stop` was called.
        death: why it ended without ``stop``; empty while it lives.
    """

    def __init__(
        self,
        query: KnownQuery,
        server: FeedServer,
        feed: Feed,
        checkpoint: Path,
        on_batch: OnBatch,
        on_death: OnDeath,
        resume: Callable[[], bool] = lambda: False,
    ) -> None:
        self._query = query
        self._server = server
        self._feed = feed
        self._checkpoint = checkpoint
        self._on_batch = on_batch
        self._on_death = on_death
        self._resume = resume
        self._name = f"{query.spec.query}-{uuid.uuid4().hex[:8]}"
        self._running: StreamingQuery | None = None
        self._started = threading.Event()
        self._operators = StateOperators()
        self.stopping = False
        self.death = ""

    def start(self) -> None:
        """Start; return once Spark has accepted the query.

        Raises:
            RefusedError: Spark cannot run this query as a stream in its output mode.
        """
        session = sibling(self._query.base)
        session.dataSource.register(RunSource)
        self._server.add(self._name, self._feed)
        # local[1] runs jobs first in, first out; with a pool each, no query can starve another.
        context = session.sparkContext
        context.setLocalProperty("spark.scheduler.pool", self._query.spec.query)
        try:
            reader = session.readStream.format(FORMAT).schema(self._query.run_columns)
            events = reader.option("socket", self._server.address).option("feed", self._name).load()
            result = self._query.of_stream(events)
            check_streaming(result, self._query)
            mode = self._query.spec.output.mode
            writer = result.writeStream.foreachBatch(self._on_batch).outputMode(mode).queryName(self._name)
            self._running = writer.option("checkpointLocation", self._checkpoint.as_uri()).start()
        except RefusedError:
            self._server.remove(self._name, "refused")
            raise
        except Exception as error:  # the user's function and Spark may raise anything
            self._server.remove(self._name, "refused")
            raise RefusedError(f"query {self._query.spec.query}: {why(error)}") from error
        finally:
            context.setLocalProperty("spark.scheduler.pool", "default")
        self._started.set()
        threading.Thread(target=self._watch, name=f"watch-{self._name}", daemon=True).start()

    def stop(self) -> None:
        """Stop and drop the runs of the feed; return when Spark has ended the query."""
        self.stopping = True
        self._feed.rest()
        if self._running is not None:
            self._running.stop()
        self._server.remove(self._name, "the query was stopped")

    def state_figures(self) -> StateFigures:
        """Return what the micro-batch that was computed last did to the state; to be called by ``on_batch``."""
        # The first micro-batch may be there before `start` has returned.
        self._started.wait()
        assert self._running is not None
        return self._operators.figures(self._running)

    def late_rows(self, rows: pa.RecordBatch) -> LateRows:
        """Return which rows of the micro-batch that was computed last came too late; to be called by ``on_batch``.

        Raises:
            NoLineageError: its plan does not say which.
        """
        assert self._running is not None
        return late_rows(self._query, execution_of(self._running), rows)

    def _watch(self) -> None:
        assert self._running is not None
        reason = "the stream ended by itself"
        try:
            self._running.awaitTermination()
        except Exception as error:
            reason = why(error)
        if self.stopping:
            return
        self._server.forget(self._name)
        if not self._resume():
            self._feed.close(reason)
            self.death = reason
            self._on_death(reason)


class Warmth:
    """Waits until an empty micro-batch has passed through a stream."""

    def __init__(self) -> None:
        self._done = threading.Event()
        self._death = ""

    def warmed(self) -> None:
        """Note that the empty batch has passed."""
        self._done.set()

    def died(self, reason: str) -> None:
        """Note that it never will, and why."""
        self._death = reason
        self._done.set()

    def wait(self, query: str) -> None:
        """Return when the stream is warm.

        Raises:
            RefusedError: it failed on an empty batch, or took longer than `WARM_S`.
        """
        if not self._done.wait(WARM_S):
            raise RefusedError(f"query {query}: an empty batch took more than {WARM_S:.0f} s")
        if self._death:
            raise RefusedError(f"query {query}: it fails even without events: {self._death}")


def check_streaming(result: DataFrame, query: KnownQuery) -> None:
    """Refuse a query that would never see an event, or that sets a second watermark over the one of its event time.

    Raises:
        RefusedError: its frame is not a streaming frame, or has two watermarks.
    """
    if not result.isStreaming:
        raise RefusedError(f"query {query.spec.query}: it does not read the view events")
    if event_times(query.spec) and watermarks(result._jdf.queryExecution().analyzed()) > 1:  # noqa: SLF001
        raise RefusedError(
            f"query {query.spec.query}: event_time sets the watermark of its events, and its sql or function sets "
            "another one: remove one of them"
        )
    if query.spec.keep_late and query.plan.stateful:
        _check_late(result, query)


def _check_late(result: DataFrame, query: KnownQuery) -> None:
    frame = result._jdf  # noqa: SLF001 - plans are nowhere in the public API
    try:
        check(frame.sparkSession().sessionState().optimizer().execute(frame.queryExecution().analyzed()))
    except NoLineageError as error:
        raise RefusedError(
            f"query {query.spec.query}: event_time.late: dead-letters needs to know which rows come too late, but "
            f"{error}: write late: drop"
        ) from error


def put_warm_up(feed: Feed, query: KnownQuery) -> None:
    """Append a run without rows that still becomes a partition."""
    feed.put([nothing(query)])


def nothing(query: KnownQuery) -> pa.Buffer:
    """Return a part of a run that has no rows."""
    schema = query.run_schema
    return stream_of(pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema))
