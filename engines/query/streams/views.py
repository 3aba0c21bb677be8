"""The views of a query with several sources: the rows of each stream, with its own columns and its watermark."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from pyspark.sql import DataFrame
from pyspark.sql.functions import col, lit

from engines.query.parts.heartbeats import Build, quoted, without_heartbeats
from infra.messages import HEARTBEAT, STREAM, EventStream, EventTime, OpenQuery


def event_times(spec: OpenQuery) -> tuple[EventTime, ...]:
    """Return the watermarks that the config sets, by the columns of the query's schema."""
    if spec.event_time is not None:
        return (spec.event_time,)
    return tuple(
        msgspec.structs.replace(stream.event_time, column=dict(stream.columns)[stream.event_time.column])
        for stream in spec.streams
        if stream.event_time is not None
    )


def over_streams(build: Build, streams: Sequence[EventStream], *, timed: bool, marked: bool = False) -> Build:
    """Return a function that makes the view of each stream, and then builds a query over the events of all streams.

    Args:
        build: applies the query to the events; it may read the views.
        streams: the streams; without any, ``build`` is returned.
        timed: whether the views have their watermarks.
        marked: whether the events are the rows of a part, with heartbeats.
    """
    if not streams:
        return build

    def build_over_views(events: DataFrame) -> DataFrame:
        for stream in streams:
            _view(events, stream, timed=timed, marked=marked).createOrReplaceTempView(stream.name)
        return (without_heartbeats(build, None) if marked else build)(events)

    return build_over_views


def with_watermark(events: DataFrame, event_time: EventTime) -> DataFrame:
    """Return events with the watermark of their event time."""
    return events.withWatermark(quoted(event_time.column), f"{event_time.lateness_ms} milliseconds")


def _view(events: DataFrame, stream: EventStream, *, timed: bool, marked: bool) -> DataFrame:
    own = events.where(col(STREAM) == lit(stream.name))
    mark = [col(HEARTBEAT)] if marked else []
    rows = own.select(*(col(quoted(common)).alias(name) for name, common in stream.columns), *mark)
    event_time = stream.event_time if timed else None
    if event_time is not None:
        rows = with_watermark(rows, event_time)
    return without_heartbeats(lambda left: left, event_time)(rows) if marked else rows
