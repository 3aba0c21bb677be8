"""Runs with selections: a run has each event once, the query sees it once for each selection that it belongs to."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import LongType, StructField, StructType

from infra.messages import POSITION, SELECTION, SELECTIONS, SelectionRule
from infra.payload.errors import PayloadError

ROWS_MOST: Final = 50_000_000
"""Rows of a run as the query sees them. A run with more of them is refused before memory is allocated."""


def with_selection(columns: StructType, rule: SelectionRule) -> StructType:
    """Return the columns that a query with selections sees: those of its events, and the number of the selection.

    A pattern also sees the order of the events.
    """
    added = (SELECTION,) if rule.pattern is None else (SELECTION, POSITION)
    return StructType([*columns.fields, *(StructField(name, LongType(), True) for name in added)])


def expanded(run: pa.RecordBatch, rule: SelectionRule) -> tuple[pa.RecordBatch, npt.NDArray[np.int64]]:
    """Return the rows of a run as the query sees them, and of which row of the run each is a copy, shape (rows,).

    Args:
        run: the events, each once; its last column names the selections that begin with them.
        rule: how events become selections.

    Raises:
        PayloadError: a selection is longer than the run, or there are too many rows.
    """
    marks = run.column(SELECTIONS)
    begins = np.flatnonzero(pc.is_valid(marks).to_numpy(zero_copy_only=False))
    numbers, lengths = (
        marks.field(index).to_numpy(zero_copy_only=False)[begins].astype(np.int64) for index in range(2)
    )
    if np.any(lengths <= 0) or np.any(begins + lengths > run.num_rows):
        raise PayloadError(f"a selection is longer than its run of {run.num_rows} events")
    count = int(lengths.sum())
    if count > ROWS_MOST:
        raise PayloadError(
            f"the selections of a run have {count:,} events together, and {ROWS_MOST:,} may be: close selections "
            "sooner, open fewer, or let runs hold fewer events (runs.max_events)"
        )
    before = np.cumsum(lengths) - lengths
    rows = np.repeat(begins - before, lengths) + np.arange(count)
    selection = pa.array(np.repeat(numbers, lengths), pa.int64())
    events = run.drop_columns([SELECTIONS]).take(pa.array(rows, pa.int64()))
    events = events.append_column(pa.field(SELECTION, pa.int64()), selection)
    if rule.pattern is not None:
        events = events.append_column(pa.field(POSITION, pa.int64()), pa.array(rows, pa.int64()))
    return events, rows


def numbers_in(rows: pa.RecordBatch) -> tuple[int, int] | None:
    """Return the numbers of the first and the last selection of a run, whose rows are expanded; None without rows.

    The run has closed all between them, since selections are numbered as they close.
    """
    bounds = pc.min_max(rows.column(SELECTION)).as_py()
    return None if bounds["min"] is None else (bounds["min"], bounds["max"])
