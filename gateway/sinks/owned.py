"""A sink that is written only while this gateway owns its fleet."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gateway.connectors.position import Position
from gateway.core.intervals import IntervalSet
from gateway.sinks.base import FencedError, ReleasedRows, Sink


class OwnedSink:
    """A ``Sink`` around another one, which checks the ownership before each write.

    Args:
        inner: the sink that writes.
        why_not: returns why this gateway may not write now, empty if it may.
    """

    def __init__(self, inner: Sink, why_not: Callable[[], str]) -> None:
        self._inner = inner
        self._why_not = why_not

    @property
    def committed(self) -> IntervalSet:
        """See ``Sink.committed``."""
        return self._inner.committed

    async def open(self) -> None:
        """See ``Sink.open``."""
        self._ask()
        await self._inner.open()

    async def commit(self, releases: Sequence[ReleasedRows], source: Position) -> None:
        """See ``Sink.commit``."""
        self._ask()
        await self._inner.commit(releases, source)

    async def close(self) -> None:
        """See ``Sink.close``."""
        await self._inner.close()

    def _ask(self) -> None:
        if why := self._why_not():
            raise FencedError(why)
