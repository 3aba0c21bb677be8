"""Tries a micro-batch of a stateful query over copies of its checkpoint, which are thrown away."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame

from engines.isolation.verdicts import EVALUATION_ERRORS
from engines.query.known import KnownQuery
from engines.query.reasons import why
from engines.streaming import checkpoints
from engines.streaming.feed import Feed, FeedServer, pack
from engines.streaming.stream import Stream
from infra.clock import Clock

_LOOK_S = 0.2


class Trials:
    """Tries rows in place of those of a micro-batch that Spark planned and did not commit.

    Args:
        query: what runs.
        server: where Spark asks for the rows.
        clock: of the feed.
        checkpoint: the folder of the start in which the micro-batch failed; its stream has ended.
        start: the seq at which the micro-batch begins.
        end: the seq after it.
        check: called several times a second; raises an error when the verdict is not wanted any more.
    """

    def __init__(
        self,
        query: KnownQuery,
        server: FeedServer,
        clock: Clock,
        checkpoint: Path,
        start: int,
        end: int,
        check: Callable[[], None],
    ) -> None:
        self._query = query
        self._server = server
        self._clock = clock
        self._checkpoint = checkpoint
        self._limits = start, end
        self._check = check

    def reason(self, rows: pa.RecordBatch) -> str:
        """Run the micro-batch with these rows; return why it fails, or nothing.

        Raises:
            RuntimeError: Spark ended the stream before it ran the micro-batch.
            Exception: what ``check`` raises.
        """
        start, end = self._limits
        copy = checkpoints.copy_for_trial(self._checkpoint)
        feed = Feed(start, 1, 0, self._clock)
        feed.put(pack(rows), None, end - start)
        verdict = _Verdict()
        stream = Stream(self._query, self._server, feed, copy, verdict.batch, verdict.died)
        try:
            stream.start()
            return verdict.wait(self._check)
        finally:
            stream.stop()
            shutil.rmtree(copy, ignore_errors=True)


class _Verdict:
    """What a stream says of its first micro-batch."""

    def __init__(self) -> None:
        self._said = threading.Event()
        self._reason = ""
        self._death = ""

    def batch(self, frame: DataFrame, _: int) -> None:
        """Evaluate the micro-batch. What Spark makes of the copy after that does not matter."""
        try:
            frame.toArrow()
        except EVALUATION_ERRORS as error:
            self._reason = why(error)
        self._said.set()

    def died(self, reason: str) -> None:
        """Note the end of the stream; it counts only if no micro-batch was evaluated."""
        if not self._said.is_set():
            self._death = reason
            self._said.set()

    def wait(self, check: Callable[[], None]) -> str:
        """Return why the micro-batch fails, or nothing."""
        while not self._said.wait(_LOOK_S):
            check()
        if self._death:
            raise RuntimeError(f"rows could not be tried over a copy of the state: {self._death}")
        return self._reason
