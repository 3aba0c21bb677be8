"""Streams in the shared session, without a link."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from engines.feed import FeedServer, pack
from engines.query import understand
from engines.session import sibling
from engines.stateless import Answer, StatelessStream
from infra.clock import SystemClock
from infra.messages import OpenQuery

DEADLINE_S = 120.0


class Collected:
    """Answers as they come, from whatever thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.answers: list[Answer] = []
        self.deaths: list[str] = []

    def take(self, answers: Sequence[Answer]) -> None:
        with self._changed:
            self.answers += answers
            self._changed.notify_all()

    def died(self, reason: str) -> None:
        with self._changed:
            self.deaths.append(reason)
            self._changed.notify_all()

    def wait(self, count: int) -> list[Answer]:
        with self._changed:
            done = self._changed.wait_for(lambda: len(self.answers) >= count or self.deaths, DEADLINE_S)
            assert done, f"{len(self.answers)} of {count} answers"
            assert not self.deaths, self.deaths
            return self.answers

    def wait_for_death(self) -> str:
        with self._changed:
            assert self._changed.wait_for(lambda: self.deaths, DEADLINE_S)
            return self.deaths[0]


class Running:
    """A stateless stream and what came of it."""

    def __init__(self, spark: SparkSession, feeds: FeedServer, spec: OpenQuery) -> None:
        self.collected = Collected()
        query = understand(spark, spec)
        self.stream = StatelessStream(query, feeds, SystemClock(), self.collected.take, self.collected.died)
        self.schema = query.input_schema
        self.stream.open()

    def put(self, tag: object, rows: Sequence[dict[str, Any]]) -> None:
        self.stream.put(pack(self.batch_of(rows)), tag)

    def batch_of(self, rows: Sequence[dict[str, Any]]) -> pa.RecordBatch:
        return pa.RecordBatch.from_pylist(list(rows), self.schema)

    def results(self, count: int) -> dict[Any, list[dict[str, Any]]]:
        """Return, once there are so many answers, the rows of each run by its tag."""
        return {answer.items[0].tag: answer.rows.to_pylist() for answer in self.collected.wait(count)}


class Bench:
    def __init__(self, spark: SparkSession, feeds: FeedServer) -> None:
        self.spark = spark
        self.feeds = feeds
        self._running: list[Running] = []

    def open(
        self,
        sql: str = "",
        *,
        schema: str = "id INT, name STRING",
        function: str = "",
        code_path: str = "",
        max_batch_runs: int = 16,
    ) -> Running:
        spec = OpenQuery(
            query="q",
            epoch=1,
            schema_ddl=schema,
            sql=sql,
            function=function,
            code_path=code_path,
            max_batch_runs=max_batch_runs,
        )
        running = Running(self.spark, self.feeds, spec)
        self._running.append(running)
        return running

    def batch(
        self, sql: str, rows: Sequence[dict[str, Any]], schema: str = "id INT, name STRING"
    ) -> list[dict[str, Any]]:
        """Return what the query gives outside any stream."""
        session = sibling(self.spark)
        session.createDataFrame(list(rows), schema).createOrReplaceTempView("events")
        return list(session.sql(sql).toArrow().to_pylist())

    def close(self) -> None:
        for running in self._running:
            running.stream.close()
