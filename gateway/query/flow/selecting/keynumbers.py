"""Numbers that stand for the values of a column, so that whole runs are compared as arrays."""

from __future__ import annotations

from itertools import count

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from policies.selections.streamtime import Int64Array

_NULL = -1


class KeyNumbers:
    """Gives equal values equal numbers, for as long as they are in use."""

    def __init__(self) -> None:
        self._known: dict[object, int] = {}
        self._next = count()

    def of(self, column: pa.Array) -> Int64Array:
        """Return the number of each value, shape (rows,); -1 for null."""
        encoded = column.dictionary_encode()
        numbers = np.array([self._number(value) for value in encoded.dictionary.to_pylist()] + [_NULL], dtype=np.int64)
        # Null is the last one.
        at = pc.fill_null(encoded.indices, pa.scalar(len(numbers) - 1, pa.int32())).to_numpy(zero_copy_only=False)
        found: Int64Array = numbers[at]
        return found

    def keep(self, numbers: Int64Array) -> None:
        """Forget all other numbers."""
        used = set(numbers.tolist())
        self._known = {value: number for value, number in self._known.items() if number in used}

    def _number(self, value: object) -> int:
        found = self._known.get(value)
        if found is None:
            found = self._known[value] = next(self._next)
        return found
