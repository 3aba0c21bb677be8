"""Q5 of the e-mail benchmark: totals over each 100 mails of the first query's results, in strict order.

The totals of the open window are Spark state, so the limits of micro-batches do not change the answer. It runs with
``transformWithState``, which needs the RocksDB state store provider (``spark.sql.streaming.stateStore.providerClass``).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql.functions import lit
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle, TimerValues, ValueState

from engines.email.queries import Q5_RESULT_DDL

WINDOW_MAILS = 100
_STATE_DDL = "window BIGINT, mails INT, characters BIGINT, words BIGINT, paragraphs BIGINT"


def running_metrics(events: DataFrame) -> DataFrame:
    """Return one row for each full window of 100 ``events`` (``Q5_SCHEMA_DDL``), as ``Q5_RESULT_DDL``."""
    measured = events.select("_seq", "characters", "words", "paragraphs", lit(0).alias("stream"))
    return measured.groupBy("stream").transformWithState(
        statefulProcessor=_Windows(), outputStructType=Q5_RESULT_DDL, outputMode="append", timeMode="None"
    )


class _Windows(StatefulProcessor):
    """Adds mails to the open window; its state is the window's number and totals."""

    _open: ValueState

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Ask Spark for the single state value."""
        self._open = handle.getValueState("open", _STATE_DDL)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: TimerValues) -> Iterator[Row]:  # noqa: ARG002, N802, N803
        """Yield the windows that one micro-batch fills; Spark's shuffle loses the order of rows, sort by ``_seq``."""
        window, mails, characters, words, paragraphs = self._open.get() or (0, 0, 0, 0, 0)
        for row in sorted(rows, key=lambda row: row["_seq"]):
            mails += 1
            characters += row["characters"]
            words += row["words"]
            paragraphs += row["paragraphs"]
            if mails == WINDOW_MAILS:
                yield Row(
                    window=window,
                    mails=mails,
                    characters=characters,
                    words=words,
                    paragraphs=paragraphs,
                    mean_characters=characters / mails,
                )
                window, mails, characters, words, paragraphs = window + 1, 0, 0, 0, 0
        self._open.update((window, mails, characters, words, paragraphs))

    def close(self) -> None:
        """Do nothing: there is nothing to close."""
