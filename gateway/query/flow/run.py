"""A run: a contiguous range of seq, with its events in memory until it is completed."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

# Runs in one micro-batch: more of them save Spark's fixed costs, fewer are answered earlier.
BATCH_RUNS_MAX = 8


@dataclass(slots=True, eq=False)
class Run:
    """A contiguous range of seq, in memory until it is completed.

    ``arrival_s`` is the mean due time of its events on the gateway's monotonic clock; ``shed`` is how many events were
    shed between the end of the previous run and the end of this one.
    """

    first_seq: int
    last_seq: int
    batch: pa.RecordBatch
    arrival_s: float
    raw_bytes: int
    disordered: bool = False
    shed: int = 0

    @property
    def events(self) -> int:
        """Number of events."""
        return self.last_seq - self.first_seq + 1
