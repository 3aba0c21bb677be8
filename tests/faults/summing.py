"""A stateful query as a user would write it: the sum of all numbers so far."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql.functions import lit
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle, ValueState


def summed(events: DataFrame) -> DataFrame:
    """Return nine of ten events, each with the sum of all ``n`` up to its own."""
    return (
        events.withColumn("stream", lit(0))
        .groupBy("stream")
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
            if row["n"] % 10 != 3:
                yield Row(id=row["id"], n=row["n"], total=total)
        self._total.update((total,))

    def close(self) -> None:
        pass
