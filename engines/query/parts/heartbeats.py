"""Heartbeats: rows of other parts that move the watermark of a part and then are dropped, before the user's query."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql.types import BooleanType, StructField, StructType

from infra.messages import HEARTBEAT

Build: TypeAlias = Callable[[DataFrame], DataFrame]

# Spark moves deterministic filters below the watermark, where they would drop heartbeats too early, and merges them
# with other filters. It leaves this one where it is, and moves no filter of the user's through it, because rand() is
# not deterministic. It is never less than 0.
_NO_HEARTBEAT = f"`{HEARTBEAT}` IS NOT TRUE OR rand() < 0"


def with_heartbeat(columns: StructType) -> StructType:
    """Return the columns of a part's runs: those of the events, and the mark of heartbeats."""
    return StructType([*columns.fields, StructField(HEARTBEAT, BooleanType(), True)])


def without_heartbeats(build: Build) -> Build:
    """Return a function that drops heartbeats and their column, and then builds a query over the events."""

    def build_over_own_events(events: DataFrame) -> DataFrame:
        return build(events.where(_NO_HEARTBEAT).drop(HEARTBEAT))

    return build_over_own_events


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
