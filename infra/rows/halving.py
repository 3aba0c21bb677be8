"""Decodes a block of records at once, and still reports each bad record.

The whole block is decoded at once. Only if that fails is it halved until the bad records are isolated. So one bad
record costs about 2·log2(n) more attempts, and the same decoder checks all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import pyarrow as pa

T = TypeVar("T")
# The reason may quote the record, which is stored elsewhere.
_REASON_MAX_CHARS = 500


def decode_by_halves(
    records: Sequence[tuple[int, T]], attempt: Callable[[list[T]], pa.RecordBatch]
) -> tuple[list[pa.RecordBatch], list[tuple[int, str]]]:
    """Return batches of what ``attempt`` decodes, in order, and (number, reason) of each record that it refuses alone.

    Args:
        records: numbered.
        attempt: decodes some records, or raises an ArrowException or a ValueError.
    """
    batches: list[pa.RecordBatch] = []
    dead: list[tuple[int, str]] = []
    open_ranges = [(0, len(records))] if records else []
    while open_ranges:
        first, end = open_ranges.pop()
        try:
            batches.append(attempt([record for _, record in records[first:end]]))
        except (pa.ArrowException, ValueError) as error:
            if end - first == 1:
                dead.append((records[first][0], " ".join(str(error).split())[:_REASON_MAX_CHARS]))
                continue
            middle = (first + end) // 2
            open_ranges += [(middle, end), (first, middle)]
    return batches, dead


def one_batch(batches: list[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    """Return ``batches`` as one; an empty one when there are none."""
    if len(batches) == 1:
        return batches[0]
    if not batches:
        return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)
    return pa.concat_batches(batches)
