"""The two queries of ``together``. Each event also waits for 1 ms, as for a service, which no core is needed for.

The gateway of ``together`` runs a copy of this module from the folder of its config.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pandas as pd
from pyspark.sql import Column, DataFrame
from pyspark.sql.functions import pandas_udf

from engines.email.queries import EMAIL_SQL
from engines.snb.activeposts import active_posts

WAIT_S = 0.001


def mail(events: DataFrame) -> DataFrame:
    """Return the results of ``EMAIL_SQL``."""
    waited = events.withColumn("message_id", _waited("string")("message_id"))
    return events.sparkSession.sql(EMAIL_SQL.replace("FROM events", "FROM {events}"), events=waited)


def posts(events: DataFrame) -> DataFrame:
    """Return the results of ``active_posts``."""
    return active_posts(events.withColumn("number", _waited("bigint")("number")))


def _waited(kind: str) -> Callable[[str], Column]:
    """Return a function that returns its column when all its events have waited, one after another."""

    @pandas_udf(kind)
    def waited(column: pd.Series) -> pd.Series:
        time.sleep(WAIT_S * len(column))
        return column

    return waited
