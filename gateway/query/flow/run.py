"""A run: a contiguous range of seq, with its events, or one part's events, in memory until it is completed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from gateway.connectors.position import Position
from infra.rows.base import DeadRecord
from policies.arrays import BoolArray, IntArray
from policies.selections.streamtime import Int64Array

# Runs in one micro-batch: more of them save Spark's fixed costs, fewer are answered earlier.
BATCH_RUNS_MAX = 8


@dataclass(slots=True, eq=False)
class Run:
    """A contiguous range of seq, in memory until it is completed.

    ``arrival_s`` is the mean due time of its events on the gateway's monotonic clock; ``shed`` is how many events were
    shed between the end of the previous run and the end of this one. ``seqs`` is None if the run has every event of its
    range. Else it is one part of a run: then it holds the seq of each of its events, ascending. ``batch`` may have one
    more row, a heartbeat. ``read_s`` is when it had been read from the source, if that is known.

    Of a query with selections, ``batch`` has the events of the selections that the run closes. ``selected`` holds the
    seq of each row, ascending; ``fresh`` says of each whether no earlier run had it. Later runs need no event before
    ``open_from``.

    A run by reference has the positions around it in ``reference``, and no rows in ``batch`` until it is filled. Then
    ``selected`` has the seq of each row, and ``dead`` the records that are no events, each with its seq: every offset
    has one.
    """

    first_seq: int
    last_seq: int
    batch: pa.RecordBatch
    arrival_s: float
    raw_bytes: int
    disordered: bool = False
    shed: int = 0
    seqs: IntArray | None = None
    read_s: float | None = None
    selected: Int64Array | None = None
    fresh: BoolArray | None = None
    open_from: int = 0
    reference: tuple[Position, Position] | None = None
    dead: tuple[tuple[int, DeadRecord], ...] = ()

    @property
    def loaded(self) -> bool:
        """Whether ``batch`` has its events."""
        return self.reference is None or self.selected is not None

    def fill(self, batch: pa.RecordBatch, seqs: Int64Array, dead: tuple[tuple[int, DeadRecord], ...]) -> None:
        """Take the events of a run by reference, the seq of each, and the records that are none with their seqs."""
        self.batch, self.selected, self.dead = batch, seqs, dead

    @property
    def events(self) -> int:
        """Number of events."""
        return self.last_seq - self.first_seq + 1 if self.seqs is None else len(self.seqs)

    def seq_of(self, row: int) -> int | None:
        """Return the seq of the event in a row; None if that is a heartbeat."""
        if self.selected is not None:
            return int(self.selected[row])
        if self.seqs is None:
            return self.first_seq + row
        return int(self.seqs[row]) if row < len(self.seqs) else None

    def row_of(self, seq: int) -> int:
        """Return the row of an event that the run has."""
        if self.selected is not None:
            return int(np.searchsorted(self.selected, seq))
        return seq - self.first_seq if self.seqs is None else int(np.searchsorted(self.seqs, seq))

    def reports(self, seq: int) -> bool:
        """Whether it is this run that tells why an event has no result."""
        if self.selected is None or self.fresh is None:
            return self.first_seq <= seq <= self.last_seq
        return seq in self.selected and bool(self.fresh[self.row_of(seq)])
