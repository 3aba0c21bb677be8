"""Micro-batches of a stateless query as Spark jobs of their own, one after the other, without a streaming query.

Spark's streaming query asks a Python process for offsets and for rows, and writes two logs for each micro-batch. A
query without state needs neither: its runs are independent, and nobody resumes from its logs.
"""

from __future__ import annotations

import logging
import shutil
import threading
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from engines.query.known import KnownQuery
from engines.query.reasons import why
from engines.reading.references import RANGE_COLUMNS, RANGE_SCHEMA
from engines.spark.scratch import scratch_folder
from engines.spark.session import sibling
from engines.streaming.feed import Feed, FeedClosed, Item, stream_of
from engines.streaming.stream import OnBatch, OnDeath, nothing

_log = logging.getLogger("spillway.host")

_STOP_S = 30.0


@dataclass(frozen=True, slots=True)
class Parts:
    """What the parts of runs are.

    Attributes:
        columns: of their rows, as JSON of Spark.
        nothing: a part without rows.
    """

    columns: str
    nothing: pa.Buffer


def parts_of(query: KnownQuery, *, by_reference: bool) -> Parts:
    """Return what the parts of a query's runs are: events, or ranges of offsets."""
    if not by_reference:
        return Parts(query.run_columns.json(), nothing(query))
    return Parts(RANGE_COLUMNS.json(), stream_of(pa.RecordBatch.from_pylist([], RANGE_SCHEMA)))


class Batches:
    """The running micro-batches of one query.

    Args:
        query: the query; Spark has accepted it over a stream.
        feed: the runs.
        on_batch: called with the rows of each micro-batch, on a thread of its own; an error in it ends them.
        on_death: called with the reason when they end without `stop`.

    Attributes:
        stopping: whether `stop` was called.
        death: why they ended without ``stop``; empty while they live.
    """

    def __init__(self, query: KnownQuery, feed: Feed, on_batch: OnBatch, on_death: OnDeath) -> None:
        self._query = query
        self._feed = feed
        self._on_batch = on_batch
        self._on_death = on_death
        self._session = sibling(query.base)
        self._folder = scratch_folder("batches")
        self._group = f"{query.spec.query}-{uuid.uuid4().hex[:8]}"
        self._thread = threading.Thread(target=self._run, name=f"batches-{self._group}", daemon=True)
        self.stopping = False
        self.death = ""

    def start(self, parts: Parts) -> None:
        """Start with a run without rows; return at once."""
        self._parts = parts
        self._feed.put([parts.nothing])
        self._feed.begin()
        self._thread.start()

    def stop(self) -> None:
        """Stop and drop the runs of the feed; return when the present job has ended."""
        self.stopping = True
        self._feed.rest()
        self._session.sparkContext.cancelJobGroup(self._group)
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(_STOP_S)
            if self._thread.is_alive():
                _log.warning("query %s: Spark's job did not end within %g s", self._query.spec.query, _STOP_S)
        self._feed.close("the query was stopped")
        shutil.rmtree(self._folder, ignore_errors=True)

    def _run(self) -> None:
        context = self._session.sparkContext
        context.setJobGroup(self._group, self._query.spec.query, interruptOnCancel=True)
        # With a pool each, no query can starve another.
        context.setLocalProperty("spark.scheduler.pool", self._query.spec.query)
        try:
            self._run_all()
        except FeedClosed as closed:
            reason = str(closed)
        except Exception as error:  # the user's code and Spark may raise anything
            reason = why(error)
        else:
            return
        if not self.stopping:
            self._feed.close(reason)
            self.death = reason
            self._on_death(reason)

    def _run_all(self) -> None:
        at, batch_id = self._feed.first_position, 0
        while not self.stopping:
            end = self._feed.latest(at)
            if end > at:
                self._on_batch(self._frame(self._feed.batch(at, end)), batch_id)
                at, batch_id = end, batch_id + 1

    def _frame(self, items: Sequence[Item]) -> DataFrame:
        parts = [part for item in items for part in item.parts] or [self._parts.nothing]
        return frame_of(self._session, self._parts.columns, parts, self._folder / "rows")


def frame_of(session: SparkSession, columns: str, parts: Sequence[pa.Buffer], path: Path) -> DataFrame:
    """Return the rows of Arrow streams: each is a partition, in order.

    Args:
        session: of the frame.
        columns: of the rows, as JSON of Spark.
        parts: the streams, at least one.
        path: a file that is overwritten; it is not needed later.
    """
    _write(path, parts)
    jvm: Any = session.sparkContext._jvm  # noqa: SLF001 - as createDataFrame does, without copies in Python
    batches = jvm.PythonSQLUtils.readArrowStreamFromFile(str(path))
    return DataFrame(jvm.PythonSQLUtils.toDataFrame(batches, columns, session._jsparkSession), session)  # noqa: SLF001


def _write(path: Path, parts: Sequence[pa.Buffer]) -> None:
    batches = [batch for part in parts for batch in pa.ipc.open_stream(part)]
    with path.open("wb") as file, pa.ipc.new_stream(file, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
