"""Lasting bus delays by area as a query with state: a row for each window of an area in which a bus was always late.

Time is that of the reports of an area: a window ends with the area's first report of a later one. So no area waits for
another one, the area is the key, and a row does not depend on where the other areas are processed.

The state of an area is the list of the reports of its open window, so it does not grow with the stream.
``transformWithState`` needs the RocksDB state store, which engine hosts use.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql.functions import timestamp_seconds, unix_seconds
from pyspark.sql.streaming.stateful_processor import (
    ListState,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
    ValueState,
)

from engines.buses.windows import Sighting, judge, window_of

RESULT_DDL = "opens TIMESTAMP, area STRING, late INT, close INT, alarm BOOLEAN"
_SEEN_DDL = "at_s BIGINT, bus STRING, delay_s INT, longitude DOUBLE, latitude DOUBLE"


def delayed_areas(reports: DataFrame) -> DataFrame:
    """Return each window of an area with buses that were late all the time, as ``RESULT_DDL``.

    Args:
        reports: the columns of ``engines.buses.traces.SCHEMA_DDL``, those of an area in the order of ``at``.
    """
    timed = reports.select("area", unix_seconds("at").alias("at_s"), "bus", "delay_s", "longitude", "latitude")
    judged = timed.groupBy("area").transformWithState(
        statefulProcessor=_Areas(),
        outputStructType="opens_s BIGINT, area STRING, late INT, close INT, alarm BOOLEAN",
        outputMode="append",
        timeMode="None",
    )
    return judged.select(timestamp_seconds("opens_s").alias("opens"), "area", "late", "close", "alarm")


def alarms(reports: DataFrame) -> DataFrame:
    """Return the windows with more than 10 buses that were late all the time and close to one another.

    Args:
        reports: as for `delayed_areas`.
    """
    return delayed_areas(reports).where("alarm").drop("alarm")


class _Areas(StatefulProcessor):
    """Judges the windows of one area after another."""

    _open: ValueState
    _seen: ListState

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Ask Spark for the beginning of the area's open window, and for its reports."""
        self._open = handle.getValueState("open", "opens_s BIGINT")
        self._seen = handle.getListState("seen", _SEEN_DDL)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: TimerValues) -> Iterator[Row]:  # noqa: ARG002, N802, N803
        """Yield the windows of an area that end in a micro-batch.

        Raises:
            ValueError: a report is of a window that has ended.
        """
        held = self._open.get()
        opens_s = held[0] if held else None
        new: list[Sighting] = []
        for row in sorted(rows, key=lambda row: row["at_s"]):
            window_s = window_of(row["at_s"])
            if opens_s is not None and window_s < opens_s:
                raise ValueError(f"a report of {row['bus']} is of a window of area {key[0]} that has ended")
            if opens_s is not None and window_s > opens_s:
                judged = judge([*self._kept(), *new])
                self._seen.clear()
                new = []
                if judged.late:
                    yield Row(opens_s=opens_s, area=key[0], **judged._asdict())
            opens_s = window_s
            if row["bus"] is not None:
                new.append(Sighting(row["at_s"], row["bus"], row["delay_s"], row["longitude"], row["latitude"]))
        if new:
            self._seen.appendList([tuple(each) for each in new])
        self._open.update((opens_s,))

    def close(self) -> None:
        """Do nothing: there is nothing to close."""

    def _kept(self) -> list[Sighting]:
        return [Sighting(*each) for each in self._seen.get()] if self._seen.exists() else []
