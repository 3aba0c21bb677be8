"""An operator of its own: how long each service was out, from log lines that a condition in SQL could not tell apart.

The class says which events open and close a selection, and what a selection results in. Two queries use it (see
outages.yaml): the first one marks the events, the second one puts them together.
"""

from __future__ import annotations

import re

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql.functions import pandas_udf

_FAILS = re.compile(r"(?i)\b(?:down|unreachable|time(?:d )?out)\b")
_WORKS = re.compile(r"(?i)\b(?:up|recovered)\b")


class Outages:
    """From the first line that says that a service fails to the next one that says that it works."""

    result = "selection BIGINT, service STRING, began TIMESTAMP, lasted_s DOUBLE, lines BIGINT"

    @staticmethod
    def opens(text: pd.Series) -> pd.Series:
        """Return which lines open a selection (P_s)."""
        return text.map(lambda line: bool(_FAILS.search(line)))

    @staticmethod
    def closes(text: pd.Series) -> pd.Series:
        """Return which lines close those of their service (P_c)."""
        return text.map(lambda line: bool(_WORKS.search(line)) and not _FAILS.search(line))

    @staticmethod
    def result_of(events: pd.DataFrame) -> pd.DataFrame:
        """Return the result of a selection."""
        first, last = events.iloc[0], events.iloc[-1]
        own = events[events.service == first.service]
        return pd.DataFrame(
            {
                "selection": [first.selection],
                "service": [first.service],
                "began": [first["at"]],
                "lasted_s": [(last["at"] - first["at"]).total_seconds()],
                "lines": [len(own)],
            }
        )


def marked(events: DataFrame) -> DataFrame:
    """Add to each event whether it opens or closes a selection."""
    opens, closes = (pandas_udf(each, "boolean") for each in (Outages.opens, Outages.closes))
    return events.withColumn("opens", opens("text")).withColumn("closes", closes("text"))


def outages(events: DataFrame) -> DataFrame:
    """Return one row for each selection."""
    return events.groupBy("selection").applyInPandas(Outages.result_of, Outages.result)
