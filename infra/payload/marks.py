"""The column by which a run says which selections begin with each of its events."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from infra.messages import SELECTIONS

MARK: Final = pa.struct([pa.field("number", pa.int64()), pa.field("events", pa.int64())])


def with_marks(events: pa.Schema) -> pa.Schema:
    """Return the schema of runs with selections."""
    return events.append(pa.field(SELECTIONS, MARK))


def marks_column(
    rows: int, begins: npt.NDArray[np.int64], numbers: npt.NDArray[np.int64], events: npt.NDArray[np.int64]
) -> pa.Array:
    """Return the column of a run: at the first row of each selection its number and its length.

    Args:
        rows: of the run.
        begins: the first row of each selection, shape (selections,).
        numbers: of the selections, shape (selections,).
        events: how many each has, shape (selections,).
    """
    number, length = np.zeros((2, rows), dtype=np.int64)
    is_empty = np.ones(rows, dtype=np.bool_)
    number[begins], length[begins], is_empty[begins] = numbers, events, False
    return pa.StructArray.from_arrays([pa.array(number), pa.array(length)], fields=list(MARK), mask=pa.array(is_empty))
