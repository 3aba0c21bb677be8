"""CEPSim's use case (Higashino et al., section V) as a Spark query: filter, average over windows, store.

A reading costs ``COST_S`` of CPU in the filter, so that one core can process only a few thousand of them a second.
"""

from __future__ import annotations

import time

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql.functions import avg, col, count, lit, pandas_udf, window
from pyspark.sql.types import BooleanType

SCHEMA_DDL = "sensor INT, at TIMESTAMP, value DOUBLE"
WINDOW_S = 15
COST_S = 250e-6
USUAL = 50.0
"""A reading above this is an outlier."""


def averages(readings: DataFrame) -> DataFrame:
    """Return the average of each sensor's usual readings in each window, and how many there were."""
    usual = readings.where(_is_usual(col("value"))).withWatermark("at", "0 seconds")
    windows = usual.groupBy(window("at", f"{WINDOW_S} seconds"), "sensor")
    kept = windows.agg(avg("value").alias("average"), count(lit(1)).alias("readings"))
    return kept.select(col("window.start").alias("opens"), "sensor", "average", "readings")


@pandas_udf(BooleanType())
def _is_usual(values: pd.Series) -> pd.Series:
    until_s = time.thread_time() + COST_S * len(values)
    while time.thread_time() < until_s:
        pass
    return values <= USUAL
