"""The interface of every sink of results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa

from gateway.connectors.position import Position
from gateway.core.exchange.reorder import Released
from gateway.core.intervals import IntervalSet

ReleasedRows = Released[pa.RecordBatch]


class SinkUnavailableError(Exception):
    """The sink accepts nothing now (for example while a broker restarts); the gateway retries."""


class SinkError(Exception):
    """The sink can never accept these results; the message says what to do."""


class FencedError(Exception):
    """Another gateway has taken over this query's sink; this one must stop writing. The message says what to do."""


class Handover(Protocol):
    """What a gateway on another machine needs to continue; a sink stores it with its results (see decision 0098)."""

    def found(self, stored: bytes) -> None:
        """Receive what the last commit stored (JSON); called when the sink is opened."""
        ...

    def after(self, committed: IntervalSet) -> bytes:
        """Return what to store (JSON) with the commit after which ``committed`` is committed. Blocks."""
        ...


class Sink(Protocol):
    """Accepts the results of one query. Runs on the event loop; its methods are called one at a time."""

    @property
    def committed(self) -> IntervalSet:
        """The seq intervals whose results are committed; a new object after each change."""
        ...

    async def open(self) -> None:
        """Find out what is committed, after any crash, and fence earlier writers.

        Raises:
            StateError: its content belongs to another state; SinkUnavailableError or OSError: not now.
        """
        ...

    async def commit(self, releases: Sequence[ReleasedRows], source: Position) -> None:
        """Make ``releases`` (in order of release) durable and visible, with the intervals they cover.

        Committed releases are skipped. If it fails or is cancelled, the same releases may be passed again.

        Args:
            releases: at least one.
            source: everything before it is committed once this call is done.

        Raises:
            SinkUnavailableError: or OSError: not now.
            FencedError: another gateway writes here.
            SinkError: the sink can never accept them.
        """
        ...

    async def close(self) -> None:
        """Close everything that is open."""
        ...


class BlockingSink(Protocol):
    """A sink that its constructor opens, and that is written in a thread; see ``Sink`` and ``ThreadedSink``."""

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
