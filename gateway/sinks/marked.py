"""Tells readers of rows which earlier rows a row replaces: two more columns, ``_op`` and ``_seq``.

See docs/output-modes.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, Literal

import pyarrow as pa

from gateway.connectors.position import Position
from gateway.core.intervals import IntervalSet
from gateway.sinks.base import ReleasedRows, Sink

OPERATION: Final = pa.field("_op", pa.string())
UP_TO: Final = pa.field("_seq", pa.int64())
UPSERT: Final = "U"
"""In ``_op``: the row replaces the earlier row with the same key, if there is one."""
SNAPSHOT: Final = "S"
"""In ``_op``: all earlier rows are void; the rows up to the next such row are all that there are."""


class MarkedSink:
    """A ``Sink`` around another one, whose rows get the two columns.

    Args:
        inner: the sink that writes.
        mode: ``update``: each row replaces one; ``complete``: each release holds all rows that there are.
    """

    def __init__(self, inner: Sink, mode: Literal["update", "complete"]) -> None:
        self._inner = inner
        self._mark = snapshot_of if mode == "complete" else upserts_of

    @property
    def committed(self) -> IntervalSet:
        """See ``Sink.committed``."""
        return self._inner.committed

    async def open(self) -> None:
        """See ``Sink.open``."""
        await self._inner.open()

    async def commit(self, releases: Sequence[ReleasedRows], source: Position) -> None:
        """See ``Sink.commit``."""
        marked = [replace(each, item=self._mark(each.item, each.last_seq)) for each in releases]
        await self._inner.commit(marked, source)

    async def close(self) -> None:
        """See ``Sink.close``."""
        await self._inner.close()


def upserts_of(rows: pa.RecordBatch, last_seq: int) -> pa.RecordBatch:
    """Return rows that replace others.

    Args:
        rows: the results of a micro-batch.
        last_seq: of its events.
    """
    operations = pa.repeat(pa.scalar(UPSERT, OPERATION.type), rows.num_rows)
    seqs = pa.repeat(pa.scalar(last_seq, UP_TO.type), rows.num_rows)
    schema = pa.schema([*rows.schema, OPERATION, UP_TO])
    return pa.RecordBatch.from_arrays([*rows.columns, operations, seqs], schema=schema)


def snapshot_of(rows: pa.RecordBatch, last_seq: int) -> pa.RecordBatch:
    """Return the rows as a snapshot: a row without results begins it, so that there can be an empty one.

    Args:
        rows: the results of a micro-batch, all that there are.
        last_seq: of its events.
    """
    marked = upserts_of(rows, last_seq)
    begin = {OPERATION.name: SNAPSHOT, UP_TO.name: last_seq}
    first = pa.RecordBatch.from_pylist([begin], schema=marked.schema)
    return pa.RecordBatch.from_arrays(
        [pa.concat_arrays(both) for both in zip(first.columns, marked.columns, strict=True)], schema=marked.schema
    )
