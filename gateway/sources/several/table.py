"""The common table of several streams: an event has the name of its stream, and nulls in the others' columns."""

from __future__ import annotations

import pyarrow as pa

from infra.messages import STREAM, EventStream


def own_schema(stream: EventStream, table: pa.Schema) -> pa.Schema:
    """Return the columns of a stream under their own names, in their own order."""
    return pa.schema([table.field(common).with_name(own) for own, common in stream.columns])


def in_table(events: pa.RecordBatch, stream: EventStream, table: pa.Schema) -> pa.RecordBatch:
    """Return events of a stream, with the columns of ``own_schema``, as rows of the table."""
    own = {common: events.column(at) for at, (_, common) in enumerate(stream.columns)}
    columns = [
        pa.array([stream.name] * events.num_rows, field.type)
        if field.name == STREAM
        else own[field.name]
        if field.name in own
        else pa.nulls(events.num_rows, field.type)
        for field in table
    ]
    return pa.RecordBatch.from_arrays(columns, schema=table)
