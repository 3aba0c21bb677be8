"""Arrow tables as Spark returns them, and the record batches that frames carry."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa


def one_batch(table: pa.Table, schema: pa.Schema) -> pa.RecordBatch:
    """Return a table as a single batch of exactly ``schema``; columns match by position."""
    columns = [
        pa.concat_arrays([chunk.cast(field.type) for chunk in column.chunks])
        if column.num_chunks
        else pa.array([], field.type)
        for column, field in zip(table.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def unpack(parts: Sequence[pa.Buffer], schema: pa.Schema) -> pa.RecordBatch:
    """Return the rows of a feed's item."""
    batches: list[pa.RecordBatch] = []
    for part in parts:
        with pa.ipc.open_stream(part) as stream:
            batches += list(stream)
    return one_batch(pa.Table.from_batches(batches, schema), schema)
