"""What the programs share: the events that came, as Arrow batches, and how fast."""

from __future__ import annotations

import time

import pyarrow as pa

NEEDED = pa.schema({"device": pa.string(), "at": pa.int64(), "value": pa.float64(), "unit": pa.string()})
BATCH_EVENTS = 20_000


class Taken:
    """Collects events until there are enough.

    Args:
        events: how many.
    """

    def __init__(self, events: int) -> None:
        self._events, self._rows = events, list[dict[str, object]]()
        self._count, self._begun_s = 0, 0.0

    def add(self, event: dict[str, object]) -> float:
        """Add an event; return events/s since the first one once all are there, until then 0."""
        self._begun_s = self._begun_s or time.perf_counter()
        self._rows.append({name: event[name] for name in NEEDED.names})
        self._count += 1
        if len(self._rows) == BATCH_EVENTS or self._count == self._events:
            pa.RecordBatch.from_pylist(self._rows, NEEDED)
            self._rows = []
        return self._count / (time.perf_counter() - self._begun_s) if self._count == self._events else 0.0
