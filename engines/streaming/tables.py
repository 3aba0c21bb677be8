"""Arrow tables as Spark returns them, and the record batches that frames carry."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from engines.query.parts.heartbeats import as_heartbeats
from engines.streaming.feed import Item, pack


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


def without(items: Sequence[Item], bad: Collection[int], schema: pa.Schema) -> list[Item]:
    """Return runs without some of their rows; ``bad`` counts over all of them."""

    def kept(rows: pa.RecordBatch, bad_here: Collection[int]) -> pa.RecordBatch:
        return rows.take(pa.array([row for row in range(rows.num_rows) if row not in bad_here], pa.int64()))

    return list(_changed(items, bad, schema, kept))


def with_heartbeats(items: Sequence[Item], bad: Collection[int], schema: pa.Schema) -> list[Item]:
    """Return runs of a part with some of their rows as heartbeats; ``bad`` counts over all of them."""
    return list(_changed(items, bad, schema, as_heartbeats))


def _changed(
    items: Sequence[Item],
    bad: Collection[int],
    schema: pa.Schema,
    change: Callable[[pa.RecordBatch, Collection[int]], pa.RecordBatch],
) -> Iterator[Item]:
    first = 0
    for item in items:
        rows = unpack(item.parts, schema)
        here = {row - first for row in bad}
        first += rows.num_rows
        yield replace(item, parts=pack(change(rows, here)))
