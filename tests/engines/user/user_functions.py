"""Functions as users write them: functions of a frame of events."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql.functions import lit, udf, window
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle, ValueState

SIGN = "+"


signed = udf(lambda name: SIGN + name, "string")


def shout(events: DataFrame) -> DataFrame:
    return events.where("name IS NOT NULL").select("id", signed("name").alias("name"))


def _no_seven(number: int) -> int:
    if number % 100 == 7:
        raise ValueError("no sevens")
    return number


def _fails_once(name: str) -> int:
    if not Path(name).exists():
        Path(name).touch()
        raise RuntimeError("the machine was busy")
    return 1


no_seven = udf(lambda number: _no_seven(number), "int")
whole_number = udf(lambda name: int(name), "int")
first_fails = udf(lambda name: _fails_once(name), "int")


def no_sevens(events: DataFrame) -> DataFrame:
    return events.select("id", no_seven("id").alias("n"))


def whole_numbers(events: DataFrame) -> DataFrame:
    return events.select("id", whole_number("name").alias("n"))


def fails_once(events: DataFrame) -> DataFrame:
    return events.select(first_fails("name").alias("n"))


def totals(events: DataFrame) -> DataFrame:
    """Return for each name the sum of its ids so far, once a micro-batch has events of that name."""
    return events.groupBy("name").transformWithState(
        statefulProcessor=_Totals(), outputStructType="name STRING, total BIGINT", outputMode="append", timeMode="None"
    )


def told(events: DataFrame) -> DataFrame:
    """Return with each event the session's settings: a Spark setting, and the bytes of heap."""
    session = events.sparkSession
    jvm = session.sparkContext._jvm  # noqa: SLF001 -- PySpark has no other way to its JVM
    heap_bytes = jvm.java.lang.Runtime.getRuntime().maxMemory()  # type: ignore[union-attr]
    return events.select(
        "id", lit(session.conf.get("spark.sql.caseSensitive")).alias("setting"), lit(heap_bytes).alias("heap_bytes")
    )


def not_a_frame(events: DataFrame) -> str:
    return "no frame"


class _Totals(StatefulProcessor):
    _total: ValueState

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._total = handle.getValueState("total", "total BIGINT")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        held = self._total.get()
        total = held[0] if held else 0
        for row in sorted(rows, key=lambda row: int(row["id"])):
            total += row["id"]
            if row["id"] % 10 == 0:
                yield Row(name=key[0], total=total)
        self._total.update((total,))

    def close(self) -> None:
        pass


def counted(events: DataFrame) -> DataFrame:
    """Return how many events each window of ten seconds has, once no more events can come into it."""
    windows = events.withWatermark("at", "5 seconds").groupBy(window("at", "10 seconds")).count()
    return windows.select("window.start", "count")
