"""Replays the same events several times with distinct ids."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc


def with_loop_ids(batch: pa.RecordBatch, id_field: str | None, loop: int) -> pa.RecordBatch:
    """Return ``batch`` with ``#<loop>`` after each value of ``id_field``; the first pass (0) keeps its ids."""
    if id_field is None or loop == 0:
        return batch
    at = batch.schema.get_field_index(id_field)
    renamed = pc.binary_join_element_wise(batch.column(at), f"#{loop}", "")
    return batch.set_column(at, batch.schema.field(at), renamed)
