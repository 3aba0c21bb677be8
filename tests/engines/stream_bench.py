"""Streams in the shared session, without a link."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from engines.isolation.isolation import RUN_S
from engines.query.known import KnownQueries, KnownQuery
from engines.spark.session import sibling
from engines.stateful import StatefulStream
from engines.stateless import StatelessStream
from engines.streaming.answers import Reports, RunOutcome
from engines.streaming.checkpoints import ResumePoint, newest, progress_of
from engines.streaming.feed import FeedServer, Item, pack
from infra.clock import SystemClock
from infra.messages import OpenQuery
from tests.e2e.harness import until

DEADLINE_S = 120.0


class Collected:
    """Answers in the order in which they come, from any thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.answers: list[RunOutcome] = []
        self.deaths: list[str] = []

    def take(self, answers: Sequence[RunOutcome]) -> None:
        with self._changed:
            self.answers += answers
            self._changed.notify_all()

    def died(self, reason: str) -> None:
        with self._changed:
            self.deaths.append(reason)
            self._changed.notify_all()

    def wait(self, count: int) -> list[RunOutcome]:
        self.wait_until(lambda answers: len(answers) >= count)
        return self.answers

    def wait_until(self, holds: Callable[[list[RunOutcome]], bool]) -> None:
        with self._changed:
            done = self._changed.wait_for(lambda: holds(self.answers) or self.deaths, DEADLINE_S)
            assert done, f"only {len(self.answers)} answers"
            assert not self.deaths, self.deaths

    def wait_for_death(self) -> str:
        with self._changed:
            assert self._changed.wait_for(lambda: self.deaths, DEADLINE_S)
            return self.deaths[0]


class Running:
    """A stream and its outcome; if it is stateful, every batch is committed at once, unless the test disables this.

    ``isolating`` are the runs whose bad rows it isolates, ``broken`` the reasons why the query counts as broken,
    ``exhausted`` those why it needs a host of its own.
    """

    def __init__(self, query: KnownQuery, feeds: FeedServer, *, commits: bool = True, run_s: float = RUN_S) -> None:
        self.collected = Collected()
        self.isolating: list[object] = []
        self.broken: list[str] = []
        self.exhausted: list[str] = []
        self.told_broken = threading.Event()
        self.stream: StatelessStream | StatefulStream
        reports = Reports(self._take, self.collected.died, self._isolates, self._breaks, self._exhausts)
        if query.plan.stateful:
            self.stream = StatefulStream(query, feeds, SystemClock(), reports, run_s)
        else:
            self.stream = StatelessStream(query, SystemClock(), reports, run_s)
        self.schema = query.run_schema
        self.commits = commits
        self.stream.open()

    def put(self, tag: object, rows: Sequence[dict[str, Any]], first_seq: int = 0, end_seq: int = 0) -> None:
        self.stream.put(pack(self.batch_of(rows)), tag, first_seq, end_seq)

    def put_seqs(self, first_seq: int, rows: Sequence[dict[str, Any]]) -> None:
        """Put a run of consecutive seqs, one for each row."""
        end_seq = first_seq + len(rows)
        self.stream.put(pack(self.batch_of(rows)), (first_seq, end_seq), first_seq, end_seq)

    def batch_of(self, rows: Sequence[dict[str, Any]]) -> pa.RecordBatch:
        return pa.RecordBatch.from_pylist(list(rows), self.schema)

    def results(self, count: int) -> dict[Any, list[dict[str, Any]]]:
        """Return, once there are this many answers, the rows of each run by its tag."""
        return {answer.items[0].tag: answer.rows.to_pylist() for answer in self.collected.wait(count)}

    def rows_until(self, end_seq: int) -> list[dict[str, Any]]:
        """Return all result rows once the batch that ends there is answered, in the order of batches."""
        self.collected.wait_until(lambda answers: bool(answers) and answers[-1].items[-1].end >= end_seq)
        return [row for answer in self.collected.answers for row in answer.rows.to_pylist()]

    def wait_for_commit(self, end_seq: int) -> None:
        """Return once Spark has committed the batch that ends there to the checkpoint."""
        folder = newest(Path(self.stream.query.spec.checkpoint_dir))
        assert folder is not None
        until(lambda: progress_of(folder) == ResumePoint(end_seq, end_seq), f"the checkpoint has seq {end_seq - 1}")

    def limits(self) -> list[tuple[int, int]]:
        """Return where each answered batch began and ended."""
        return [(answer.items[0].start, answer.items[-1].end) for answer in self.collected.answers]

    def _isolates(self, items: Sequence[Item]) -> None:
        self.isolating += [item.tag for item in items]

    def _breaks(self, reason: str) -> None:
        self.broken.append(reason)
        self.told_broken.set()

    def _exhausts(self, reason: str) -> None:
        self.exhausted.append(reason)
        self.told_broken.set()

    def _take(self, answers: Sequence[RunOutcome]) -> None:
        self.collected.take(answers)
        if answers and self.commits:
            self.stream.committed(answers[-1].items[-1].end - 1)


def answered(running: Running, tags: Sequence[int]) -> dict[int, tuple[pa.RecordBatch, list[tuple[int, str]]]]:
    """Return of each run its results, and the rows that fail with the reason."""
    running.collected.wait_until(lambda answers: {each.items[0].tag for each in answers} >= set(tags))
    found: dict[int, Any] = {}
    for answer in running.collected.answers:
        poison = [(bad.row, bad.reason) for bad in answer.poison]
        found[answer.items[0].tag] = (answer.rows, poison)
    return {tag: found[tag] for tag in tags}


def assert_alike(referring: Running, valued: Running, told: Sequence[tuple[int, int, int]]) -> None:
    """Both have answered runs alike, and of each (tag, events, dead records) the first one has counted as many."""
    tags = [tag for tag, _, _ in told]
    assert answered(referring, tags) == answered(valued, tags)
    items = {answer.items[0].tag: answer.items[0] for answer in referring.collected.answers}
    for tag, events, dead in told:
        counts = items[tag].counts
        assert counts is not None
        assert (counts.events, counts.dead) == (events, dead)


class Bench:
    def __init__(self, spark: SparkSession, feeds: FeedServer) -> None:
        self.spark = spark
        self.feeds = feeds
        self._known = KnownQueries()
        self._running: list[Running] = []

    def open(
        self,
        sql: str = "",
        *,
        schema: str = "id INT, name STRING",
        commits: bool = True,
        run_s: float = RUN_S,
        **spec: Any,
    ) -> Running:
        asked = OpenQuery(epoch=1, schema_ddl=schema, sql=sql, **({"query": "q"} | spec))
        query = self._known.understand(self.spark, asked)
        running = self.start(query, commits=commits, run_s=run_s)
        self._known.ran(query)
        return running

    def start(self, query: KnownQuery, *, commits: bool = True, run_s: float = RUN_S) -> Running:
        running = Running(query, self.feeds, commits=commits, run_s=run_s)
        self._running.append(running)
        return running

    def batch(
        self, sql: str, rows: Sequence[dict[str, Any]], schema: str = "id INT, name STRING"
    ) -> list[dict[str, Any]]:
        """Return the query's results outside any stream."""
        session = sibling(self.spark)
        session.createDataFrame(list(rows), schema).createOrReplaceTempView("events")
        return list(session.sql(sql).toArrow().to_pylist())

    def close(self) -> None:
        for running in self._running:
            running.stream.close()
