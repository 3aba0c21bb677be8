"""Functions as users write them: functions of a frame of events."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql.functions import expr, lit, udf, window
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


def summed(events: DataFrame) -> DataFrame:
    """Return for each name and window of ten seconds the sum of its texts, which are to be numbers."""
    keyed = events.withWatermark("at", "0 seconds").groupBy(window("at", "10 seconds"), "name")
    return keyed.agg(expr("sum(CAST(text AS INT))").alias("total")).select("window.start", "name", "total")


def deduplicated(events: DataFrame) -> DataFrame:
    """Return the first event of each name."""
    return events.dropDuplicatesWithinWatermark(["name"]).select("id")


def deduplicated_by_time(events: DataFrame) -> DataFrame:
    """Return the first event of each name, as Python writes it, and time."""
    return events.withColumn("name", signed("name")).dropDuplicates(["name", "at"]).select("id")


def purses(events: DataFrame) -> DataFrame:
    """Return for each name how much it has so far; nobody may owe anything."""
    return events.groupBy("name").transformWithState(
        statefulProcessor=_Purse(), outputStructType="name STRING, total BIGINT", outputMode="append", timeMode="None"
    )


def pairs(events: DataFrame) -> DataFrame:
    """Return for each question and its answer, which have the same name, the number that their texts make."""
    timed = events.withWatermark("at", "1 hour")
    asked = timed.where("kind = 'ask'").selectExpr("name AS asked", "at AS asked_at", "text AS question")
    answered = timed.where("kind = 'answer'")
    joined = asked.join(answered, expr("asked = name AND at BETWEEN asked_at AND asked_at + INTERVAL 1 HOUR"))
    return joined.select("name", expr("CAST(concat(question, text) AS INT)").alias("number"))


def once(events: DataFrame) -> DataFrame:
    """Return the first event of each name and amount; another one counts again once the watermark has passed it."""
    return events.dropDuplicatesWithinWatermark(["name", "amount"]).select("id", "name", "amount")


def own_watermark(events: DataFrame) -> DataFrame:
    return events.withWatermark("at", "5 seconds").groupBy(window("at", "10 seconds"), "name").count().select("count")


class _Purse(StatefulProcessor):
    _held: ValueState

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._held = handle.getValueState("held", "total BIGINT")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        found = self._held.get()
        total = found[0] if found else 0
        for row in sorted(rows, key=lambda row: int(row["id"])):
            total += row["amount"]
            if total < 0:
                raise ValueError(f"{key[0]} owes {-total}")
        self._held.update((total,))
        yield Row(name=key[0], total=total)

    def close(self) -> None:
        pass


def with_customers(events: DataFrame) -> DataFrame:
    return events.join(events.sparkSession.table("customers"), "id", "left").select("id", "customer")
