"""Stateful queries as a user would write them: the sum of all numbers so far, also by key."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql.functions import col, lit
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle, ValueState


def summed(events: DataFrame) -> DataFrame:
    """Return nine of ten events, each with the sum of all ``n`` up to its own."""
    return _sums(events, lit(0)).where(col("n") % 10 != 3)


def summed_by_key(events: DataFrame) -> DataFrame:
    """Return each event with the sum of all ``n`` of its key, one of seven, up to its own."""
    return _sums(events, col("n") % 7)


def summed_by_column(events: DataFrame) -> DataFrame:
    """Return each event with the sum of all ``n`` of its ``k`` up to its own."""
    return _sums(events.withColumnRenamed("k", "key"))


def _sums(events: DataFrame, key: Column | None = None) -> DataFrame:
    return (
        (events if key is None else events.withColumn("key", key))
        .groupBy("key")
        .transformWithState(
            statefulProcessor=_Sum(),
            outputStructType="id STRING, n BIGINT, total BIGINT",
            outputMode="append",
            timeMode="None",
        )
    )


class _Sum(StatefulProcessor):
    _total: ValueState

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._total = handle.getValueState("total", "total BIGINT")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        (total,) = self._total.get() or (0,)
        for row in sorted(rows, key=lambda row: row["n"]):
            total += row["n"]
            yield Row(id=row["id"], n=row["n"], total=total)
        self._total.update((total,))

    def close(self) -> None:
        pass
