"""What every sink of results offers the delivery."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa

from gateway.connectors.position import Position
from gateway.core.exchange.reorder import Released
from gateway.core.intervals import IntervalSet

ReleasedRows = Released[pa.RecordBatch]


class SinkUnavailableError(Exception):
    """The sink takes nothing now (a broker restarts, say); it is tried again."""


class SinkError(Exception):
    """The sink can never take these results as they are; the message says what to do."""


class FencedError(Exception):
    """Another gateway has taken over this query's sink; this one must stop writing. The message says what to do."""


class Sink(Protocol):
    """Takes the results of one query. Runs on the event loop; its methods are called one at a time."""

    @property
    def committed(self) -> IntervalSet:
        """The seq intervals whose results are in; a new object after each change."""
        ...

    async def open(self) -> None:
        """Find out what is committed, after whatever crash, and fence earlier writers.

        Raises:
            StateError: what is there belongs to other state; SinkUnavailableError or OSError: not now.
        """
        ...

    async def commit(self, releases: Sequence[ReleasedRows], source: Position) -> None:
        """Make ``releases`` (in order of release) durable and visible, with the intervals they cover.

        What is committed already is passed over. If it fails or is cancelled, the same releases may be given again.

        Args:
            releases: at least one.
            source: everything before it is committed once this call is done.

        Raises:
            SinkUnavailableError: or OSError: not now.
            FencedError: another gateway writes here.
            SinkError: never, as things are.
        """
        ...

    async def close(self) -> None:
        """Give back what is open."""
        ...


class BlockingSink(Protocol):
    """A sink that is opened when it is made, and written in a thread; see ``Sink`` and ``ThreadedSink``."""

    @property
    def committed(self) -> IntervalSet:
        """See ``Sink.committed``."""
        ...

    def commit(self, releases: Sequence[ReleasedRows], source: Position) -> None:
        """See ``Sink.commit``."""
        ...

    def close(self) -> None:
        """See ``Sink.close``."""
        ...
