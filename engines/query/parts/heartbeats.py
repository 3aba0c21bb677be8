"""Heartbeats: rows of other parts that move the watermark of a part and then are dropped, before the user's query."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql.types import BooleanType, StructField, StructType

from infra.messages import HEARTBEAT, EventTime

Build: TypeAlias = Callable[[DataFrame], DataFrame]

_IS_EVENT = f"`{HEARTBEAT}` IS NOT TRUE"


def with_heartbeat(columns: StructType) -> StructType:
    """Return the columns of a part's runs: those of the events, and the mark of heartbeats."""
    return StructType([*columns.fields, StructField(HEARTBEAT, BooleanType(), True)])


def without_heartbeats(build: Build, event_time: EventTime | None) -> Build:
    """Return a function that drops heartbeats and their column, and then builds a query over the events.

    Spark moves filters below the watermark unless they read its column, and would drop heartbeats before they move the
    watermark. So the filter reads that column, with a condition that is never true, which Spark does not know. The
    user's own conditions stay where they are in the undivided query, below or above. Above, they come after the filter.

    Args:
        build: applies the query to events.
        event_time: the watermark that events have; None if they have none.
    """
    condition = _IS_EVENT
    if event_time is not None:
        condition += f" OR unix_micros({quoted(event_time.column)}) % 2 = 2"

    def build_over_own_events(events: DataFrame) -> DataFrame:
        return build(events.where(condition).drop(HEARTBEAT))

    return build_over_own_events


def quoted(column: str) -> str:
    """Return the name of a column as SQL."""
    return f"`{column.replace('`', '``')}`"


def divided(rows: pa.RecordBatch) -> tuple[list[int], list[int]]:
    """Return which rows of a part's run are events, and which are heartbeats."""
    marked = rows.column(HEARTBEAT).to_pylist()
    return [row for row, mark in enumerate(marked) if not mark], [row for row, mark in enumerate(marked) if mark]


def as_heartbeats(rows: pa.RecordBatch, wanted: Collection[int]) -> pa.RecordBatch:
    """Return the rows of a part's run, the wanted ones marked as heartbeats."""
    marks = pa.array([row in wanted for row in range(rows.num_rows)], pa.bool_())
    at = rows.schema.get_field_index(HEARTBEAT)
    mixed = pc.or_(pc.fill_null(rows.column(at), False), marks)
    return rows.set_column(at, rows.schema.field(at), mixed)
