"""What every source of events offers the ingress."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from gateway.runlog import Position


@dataclass(frozen=True, slots=True)
class DeadRecord:
    """A record that is no event: where it stands (0-based), why, and its raw bytes (cut after 64 KiB)."""

    record: int
    offset: int
    reason: str
    raw: bytes


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive records of a source: the events among them, in order, and those that could not be decoded."""

    batch: pa.RecordBatch
    start: Position
    end: Position
    dead: tuple[DeadRecord, ...] = ()


class SourceError(Exception):
    """The source itself cannot be read (not one record of it); the message says what to do."""


class Source(Protocol):
    """A replayable source. Its methods block: they are called in a thread, one at a time."""

    def open(self, schema: pa.Schema) -> None:
        """Prepare to deliver batches of exactly ``schema``."""
        ...

    def seek(self, position: Position) -> None:
        """Go on from ``position``; the same position always gives the same records."""
        ...

    def read(self, max_records: int, max_bytes: int) -> Chunk | None:
        """Return the next records, at least one; None when there are none now (see ``finished``)."""
        ...

    @property
    def finished(self) -> bool:
        """Whether no record will ever come after those that were read."""
        ...

    def close(self) -> None:
        """Give back what is open."""
        ...
