"""Overtaking as a Python function that waits for each row: work that needs no core. It runs beside a config."""

from __future__ import annotations

import time

import pandas as pd
from pyspark.sql import DataFrame

ROW_S = 0.0006


def overtakings(events: DataFrame) -> DataFrame:
    """Return who overtook the vehicle with which each selection opens."""
    schema = "selection BIGINT, slow STRING, fast STRING, at TIMESTAMP"
    return events.groupBy("selection").applyInPandas(of_selection, schema)


def of_selection(rows: pd.DataFrame) -> pd.DataFrame:
    """Wait as long as the rows are worth, and return the overtakings."""
    time.sleep(ROW_S * len(rows))
    came, left = (rows[rows.position == position].set_index("vehicle")["at"] for position in (1, 2))
    slow = came.idxmin()
    fast = left[left.index.isin(came.index) & (left.index != slow)]
    return pd.DataFrame({"selection": rows.selection.iloc[0], "slow": slow, "fast": fast.index, "at": fast.to_numpy()})
