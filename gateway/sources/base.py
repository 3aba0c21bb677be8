"""The interface of every source of events."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import pyarrow as pa

from gateway.connectors.position import Position
from infra.messages import Range
from infra.rows.base import DeadRecord
from policies.arrays import Array, IntArray


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive records of a source: the events among them, in order, and those that could not be decoded.

    Attributes:
        batch: the events.
        start: position of the first record.
        end: position after the last record.
        dead: the records that could not be decoded.
        arrivals_wall_s: times at which the source got the records (s since 1970), if it knows; shape (n,). A record
            without a time is left out.
        more: False if the source has nothing more at the moment, so that it is useful to wait for more.
    """

    batch: pa.RecordBatch
    start: Position
    end: Position
    dead: tuple[DeadRecord, ...] = ()
    arrivals_wall_s: Array | None = field(default=None, compare=False)
    more: bool = True

    @property
    def arrival_wall_s(self) -> float | None:
        """Return the mean of these times."""
        return None if self.arrivals_wall_s is None else float(self.arrivals_wall_s.mean())


@dataclass(frozen=True, slots=True)
class Ahead:
    """Consecutive records of a source that were not read: what there is of a ``Chunk`` without reading.

    Its positions count offsets or lines, some of which may have no record.
    """

    start: Position
    end: Position
    arrivals_wall_s: Array | None = field(default=None, compare=False)
    more: bool = True

    @property
    def offsets(self) -> int:
        """How many there are."""
        return self.end.record - self.start.record


@dataclass(frozen=True, slots=True)
class Loaded:
    """The events of ``Ahead``.

    Attributes:
        batch: the events.
        index: how many offsets come before each, ascending; shape (n,).
        dead: how many offsets come before each record that could not be decoded, and the record.
    """

    batch: pa.RecordBatch
    index: IntArray
    dead: tuple[tuple[int, DeadRecord], ...]


@dataclass(frozen=True, slots=True)
class Backlog:
    """The unread records of a source: how many, and when the oldest came (s since 1970)."""

    records: int
    oldest_wall_s: float | None


class Source(Protocol):
    """A source that returns the same records again for the same positions.

    A source that cannot replay (MQTT, HTTP) keeps a journal, and acknowledges to its senders what is in it. It runs on
    the event loop. Its methods are called one at a time, except ``backlog`` and ``acknowledge``, which may be called
    meanwhile. A cancelled call leaves the source usable.
    """

    async def open(self, schema: pa.Schema) -> None:
        """Prepare to deliver batches of exactly ``schema``.

        Raises:
            SourceError: it cannot be read; SourceUnavailableError: not now.
        """
        ...

    async def read_between(self, start: Position, end: Position) -> Chunk:
        """Return exactly the records that were read between two positions.

        Raises:
            SourceError: it does not have them any more; SourceUnavailableError: not now.
        """
        ...

    async def seek(self, position: Position) -> None:
        """Continue from ``position``."""
        ...

    async def read(self, max_records: int, max_bytes: int) -> Chunk | None:
        """Return the next records, at least one; None when there are none now (see ``finished``).

        Raises:
            SourceError: it cannot be read; SourceUnavailableError: not now.
        """
        ...

    async def finished(self) -> bool:
        """Return whether no record will ever follow those that were read."""
        ...

    def backlog(self) -> Backlog | None:
        """Return the records that are available but unread; None if the source does not know."""
        ...

    async def acknowledge(self, position: Position) -> None:
        """Acknowledge that everything before ``position`` is committed and will not be read again.

        Raises:
            SourceUnavailableError: not now; acknowledging a later position covers this one.
        """
        ...

    async def close(self) -> None:
        """Close everything that is open."""
        ...


@runtime_checkable
class ReferableSource(Protocol):
    """A source whose positions name records that others can read, too, without this source."""

    async def ahead(self, max_records: int, max_bytes: int) -> Ahead | Chunk | None:
        """Return the next records without reading them; None when there are none now.

        Records that others cannot find come as a chunk. A source that does not know sizes ignores ``max_bytes``.

        Raises:
            SourceError: it cannot be read; SourceUnavailableError: not now.
        """
        ...

    async def ranges(self, start: Position, end: Position) -> tuple[Range, ...]:
        """Return which records ``ahead`` has passed over, in order; may be called while any other method runs.

        Raises:
            SourceError: it does not know them any more; SourceUnavailableError: not now.
        """
        ...

    async def read_range(self, start: Position, end: Position) -> Loaded:
        """Return the events of ``ahead``; may be called while any other method runs, but once at a time.

        Raises:
            SourceError: it does not have them any more; SourceUnavailableError: not now.
        """
        ...


class BlockingSource(Protocol):
    """A source that is read in a thread; its methods are those of ``Source``; see ``ThreadedSource``."""

    def open(self, schema: pa.Schema) -> None:
        """See ``Source.open``."""
        ...

    def seek(self, position: Position) -> None:
        """See ``Source.seek``; the same position always gives the same records."""
        ...

    def read(self, max_records: int, max_bytes: int) -> Chunk | None:
        """See ``Source.read``."""
        ...

    @property
    def finished(self) -> bool:
        """See ``Source.finished``."""
        ...

    def close(self) -> None:
        """See ``Source.close``."""
        ...
