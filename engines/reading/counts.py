"""What was read of a run by reference."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from infra.rows.base import DeadRecord


@dataclass(frozen=True, slots=True)
class ReadCounts:
    """How many events were read, how much memory they take, and how many records are none."""

    events: int = 0
    raw_bytes: int = 0
    dead: int = 0

    def __add__(self, other: ReadCounts) -> ReadCounts:
        """Return the sum."""
        return ReadCounts(self.events + other.events, self.raw_bytes + other.raw_bytes, self.dead + other.dead)


@dataclass(frozen=True, slots=True)
class Read:
    """The events of some ranges, in order, and the records that are none."""

    batch: pa.RecordBatch
    dead: tuple[DeadRecord, ...]

    @property
    def counts(self) -> ReadCounts:
        """How much that is."""
        return ReadCounts(self.batch.num_rows, self.batch.nbytes, len(self.dead))
