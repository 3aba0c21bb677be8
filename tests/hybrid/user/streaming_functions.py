"""Queries as users write them in Python: functions of a frame of events."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 -- Spark's own habit
from pyspark.sql.pandas.functions import pandas_udf

LATENESS = "10 seconds"
_pandas_udf: Any = pandas_udf


def _timed(events: DataFrame) -> DataFrame:
    return events.withWatermark("at", LATENESS)


# ------------------------------------------------------------------------------------------------------------- UDFs


def _count_of(row: Any) -> int:
    return len([tag for tag in row["tags"] or () if tag == "x"]) + int(row["amount"])


_shouted = F.udf(lambda text: None if text is None else f"{text.upper()}!", "string")
_count = F.udf(lambda row: _count_of(row), "int")
_halves = F.udf(lambda text: [text[: len(text) // 2], text[len(text) // 2 :]], "array<string>")
_same = F.udf(lambda text: text, "string")


@_pandas_udf("double")  # type: ignore[untyped-decorator]
def _scaled(amounts: pd.Series, prices: pd.Series) -> pd.Series:
    return amounts * prices.fillna(1.0)


@_pandas_udf("long")  # type: ignore[untyped-decorator]
def _lengths(texts: pd.Series) -> pd.Series:
    return texts.str.len().fillna(0).astype("int64")


def python_udf(events: DataFrame) -> DataFrame:
    return events.select("id", _shouted("customer").alias("shouted"))


def udf_of_a_whole_row(events: DataFrame) -> DataFrame:
    return events.select("id", _count(F.struct("*")).alias("n"))


def udf_in_a_filter(events: DataFrame) -> DataFrame:
    return events.where(_shouted("customer") == "C1!").select("id", "customer")


def pandas_udfs(events: DataFrame) -> DataFrame:
    return events.select("id", _scaled("amount", "price").alias("scaled"), _lengths("note").alias("length"))


def udf_then_explode(events: DataFrame) -> DataFrame:
    return events.select("id", F.explode(_halves("id")).alias("half"))


def udf_below_a_window(events: DataFrame) -> DataFrame:
    named = _timed(events).withColumn("shouted", _shouted("customer"))
    return (
        named.groupBy(F.window("at", "1 minute"), "shouted")
        .agg(F.sum("amount").alias("total"))
        .select("window.start", "shouted", "total")
    )


def udf_above_a_window(events: DataFrame) -> DataFrame:
    counted = _timed(events).groupBy(F.window("at", "1 minute"), "customer").count()
    return counted.select("window.start", _shouted("customer").alias("shouted"), "count")


def nondeterministic_udf(events: DataFrame) -> DataFrame:
    return events.select("id", _same.asNondeterministic()("note").alias("word"))


# ---------------------------------------------------------------------------------------------------------- windows


def window_with_an_offset(events: DataFrame) -> DataFrame:
    windows = F.window("at", "1 minute", "1 minute", "15 seconds")
    return (
        _timed(events)
        .groupBy(windows, "shop")
        .agg(F.max("amount").alias("most"))
        .select("window.start", "shop", "most")
    )


def session_with_a_gap_of_its_own(events: DataFrame) -> DataFrame:
    gap = F.when(F.col("shop") == 1, "10 seconds").otherwise("40 seconds")
    sessions = _timed(events).groupBy(F.session_window("at", gap), "customer").count()
    return sessions.select("session_window.start", "session_window.end", "customer", "count")


def windows_of_grouped_pandas(events: DataFrame) -> DataFrame:
    @_pandas_udf("double")  # type: ignore[untyped-decorator]
    def middle(amounts: pd.Series) -> float:
        return float(amounts.median())

    return _timed(events).groupBy(F.window("at", "1 minute")).agg(middle("amount").alias("middle"))


# ----------------------------------------------------------------------------------------------------------- dedupe


def one_of_each_id(events: DataFrame) -> DataFrame:
    return events.dropDuplicates(["id"]).select("id", "customer", "amount")


def one_of_each_id_and_time(events: DataFrame) -> DataFrame:
    return _timed(events).dropDuplicates(["id", "at"]).select("id", "amount")


def one_of_each_customer_within_the_watermark(events: DataFrame) -> DataFrame:
    return _timed(events).dropDuplicatesWithinWatermark(["customer"]).select("id", "customer")


# ------------------------------------------------------------------------------------------- joins of the events


def _sides(events: DataFrame) -> tuple[DataFrame, DataFrame]:
    timed = _timed(events)
    asked = timed.where("ok").selectExpr("id AS asked", "customer AS c1", "at AS asked_at")
    told = timed.where("NOT ok").selectExpr("id AS told", "customer AS c2", "at AS told_at")
    return asked, told


def _near() -> Column:
    return F.expr("c1 = c2 AND told_at BETWEEN asked_at - INTERVAL 20 SECONDS AND asked_at + INTERVAL 20 SECONDS")


def _joined(events: DataFrame, how: str) -> DataFrame:
    asked, told = _sides(events)
    return asked.join(told, _near(), how)


def joined_in_time(events: DataFrame) -> DataFrame:
    return _joined(events, "inner")


def left_joined_in_time(events: DataFrame) -> DataFrame:
    return _joined(events, "left_outer")


def right_joined_in_time(events: DataFrame) -> DataFrame:
    return _joined(events, "right_outer")


def fully_joined_in_time(events: DataFrame) -> DataFrame:
    return _joined(events, "full_outer")


def semi_joined_in_time(events: DataFrame) -> DataFrame:
    return _joined(events, "left_semi")


def joined_without_time(events: DataFrame) -> DataFrame:
    asked, told = _sides(events)
    return asked.join(told, F.expr("c1 = c2 AND asked < told")).select("asked", "told")


def joined_by_window(events: DataFrame) -> DataFrame:
    asked, told = _sides(events)
    left = asked.select("asked", F.window("asked_at", "1 minute").alias("w1"), "c1")
    right = told.select("told", F.window("told_at", "1 minute").alias("w2"), "c2")
    return left.join(right, F.expr("w1 = w2 AND c1 = c2")).select("w1.start", "asked", "told")


def joined_by_two_clocks(events: DataFrame) -> DataFrame:
    """Join by windows of two times: the slower of two watermarks counts, although one is of a column used nowhere."""
    asked = events.withWatermark("at", LATENESS).where("ok").selectExpr("id AS asked", "customer AS c1", "at")
    told = events.withWatermark("sent", "1 minute").where("NOT ok").selectExpr("id AS told", "customer AS c2")
    joined = asked.join(told, F.expr("c1 = c2"))
    return joined.groupBy(F.window("at", "1 minute"), "c1").count().select("window.start", "c1", "count")


def both_halves(events: DataFrame) -> DataFrame:
    timed = _timed(events)
    halves = timed.where("ok").select("id", "at").union(timed.where("NOT ok").select("id", "at"))
    return halves.groupBy(F.window("at", "1 minute")).count().select("window.start", "count")


# ------------------------------------------------------------------------------------- several operators in a row


def windows_of_windows(events: DataFrame) -> DataFrame:
    small = _timed(events).groupBy(F.window("at", "20 seconds"), "shop").agg(F.sum("amount").alias("total"))
    large = small.groupBy(F.window(F.window_time("window"), "1 minute")).agg(F.max("total").alias("most"))
    return large.select("window.start", "most")


def deduped_then_windows(events: DataFrame) -> DataFrame:
    once = _timed(events).dropDuplicates(["id", "at"])
    return once.groupBy(F.window("at", "1 minute"), "customer").count().select("window.start", "customer", "count")


def deduped_within_the_watermark_then_windows(events: DataFrame) -> DataFrame:
    once = _timed(events).dropDuplicatesWithinWatermark(["customer", "shop"])
    return once.groupBy(F.window("at", "1 minute")).count().select("window.start", "count")


def joined_then_windows(events: DataFrame) -> DataFrame:
    joined = _joined(events, "inner")
    return joined.groupBy(F.window("asked_at", "1 minute"), "c1").count().select("window.start", "c1", "count")


def sessions_then_windows(events: DataFrame) -> DataFrame:
    sessions = _timed(events).groupBy(F.session_window("at", "10 seconds"), "customer").count()
    windows = sessions.groupBy(F.window(F.window_time("session_window"), "2 minutes"))
    return windows.agg(F.max("count").alias("most")).select("window.start", "most")


def windows_three_deep(events: DataFrame) -> DataFrame:
    small = _timed(events).groupBy(F.window("at", "10 seconds"), "shop").count()
    middle = small.groupBy(F.window(F.window_time("window"), "30 seconds")).agg(F.sum("count").alias("n"))
    large = middle.groupBy(F.window(F.window_time("window"), "1 minute")).agg(F.max("n").alias("most"))
    return large.select("window.start", "most")


# --------------------------------------------------------------------------------------------- many rows at a time


def mapped_in_pandas(events: DataFrame) -> DataFrame:
    def doubled(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for batch in batches:
            yield pd.DataFrame({"id": batch["id"], "twice": batch["amount"] * 2})

    return events.select("id", "amount").mapInPandas(doubled, "id STRING, twice BIGINT")


def grouped_in_pandas(events: DataFrame) -> DataFrame:
    def largest(rows: pd.DataFrame) -> pd.DataFrame:
        return rows.nlargest(1, "amount")[["customer", "amount"]]

    return events.groupBy("customer").applyInPandas(largest, "customer STRING, amount INT")


# ------------------------------------------------------------------------------------- what depends on the machine


def random_part_of_windows(events: DataFrame) -> DataFrame:
    return _timed(events).where("rand() < 0.5").groupBy(F.window("at", "1 minute")).count()


def windows_with_the_time_of_day(events: DataFrame) -> DataFrame:
    counted = _timed(events).groupBy(F.window("at", "1 minute")).count()
    return counted.select("window.start", "count", F.current_timestamp().alias("now"))


def reads_a_file(events: DataFrame) -> DataFrame:
    """Join with a file that no table declares: this one."""
    names = events.sparkSession.read.text(__file__).selectExpr("length(value) AS shop", "value")
    return events.join(F.broadcast(names), "shop").select("id", "value")


def windows_over_a_file(events: DataFrame) -> DataFrame:
    names = events.sparkSession.read.text(__file__).selectExpr("length(value) AS shop", "value")
    joined = _timed(events).join(F.broadcast(names), "shop")
    return joined.groupBy(F.window("at", "1 minute"), "value").count()
