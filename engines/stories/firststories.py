"""First-story detection as a query with state: a row for each text that is far from the last texts of its key.

A text is compared with those of its key only. So the key is the column ``key``, and a row does not depend on where the
other keys are processed.

The state of a key is what is compared of its last texts, so it does not grow with the stream. ``transformWithState``
needs the RocksDB state store, which engine hosts use.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from pyspark.sql import DataFrame, Row
from pyspark.sql.functions import timestamp_millis, unix_millis
from pyspark.sql.streaming.stateful_processor import (
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
    ValueState,
)

from engines.stories.nearest import KeptTexts
from engines.stories.words import vector_of

RESULT_DDL = "number BIGINT, at TIMESTAMP, key INT, text STRING, distance DOUBLE"
_KEPT_DDL = "sizes ARRAY<BIGINT>, words ARRAY<BIGINT>, weights ARRAY<BIGINT>, squares ARRAY<BIGINT>"


def first_stories(texts: DataFrame) -> DataFrame:
    """Return the texts that are first stories, and how far the nearest text is, as ``RESULT_DDL``.

    Args:
        texts: the columns of ``engines.stories.texts.SCHEMA_DDL``, those of a key in the order of ``number``.
    """
    timed = texts.select("number", unix_millis("at").alias("at_ms"), "key", "text")
    told = timed.groupBy("key").transformWithState(
        statefulProcessor=_Tellers(),
        outputStructType="number BIGINT, at_ms BIGINT, key INT, text STRING, distance DOUBLE",
        outputMode="append",
        timeMode="None",
    )
    return told.select("number", timestamp_millis("at_ms").alias("at"), "key", "text", "distance")


class _Tellers(StatefulProcessor):
    """Compares each text with the last ones of its key."""

    _kept: ValueState

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Ask Spark for the texts that are kept of the key."""
        self._kept = handle.getValueState("kept", _KEPT_DDL)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: TimerValues) -> Iterator[Row]:  # noqa: ARG002, N802, N803
        """Yield the first stories among the texts of a key in a micro-batch."""
        held = self._kept.get()
        kept = KeptTexts(*(np.array(column, dtype=np.int64) for column in held)) if held else KeptTexts()
        for row in sorted(rows, key=lambda row: row["number"]):
            distance = kept.tell(vector_of(row["text"]))
            if distance is not None:
                told = {"number": row["number"], "at_ms": row["at_ms"], "key": key[0], "text": row["text"]}
                yield Row(**told, distance=distance)
        columns = (kept.sizes, kept.words, kept.weights, kept.squares)
        self._kept.update(tuple(column.tolist() for column in columns))

    def close(self) -> None:
        """Do nothing: there is nothing to close."""
