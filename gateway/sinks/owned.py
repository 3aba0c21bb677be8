"""A sink that is written only while this gateway owns its fleet, and that may continue where an earlier sink ended."""

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
        self._before_seq = 0
        self._of: IntervalSet | None = None
        self._committed = IntervalSet()

    @property
    def inner(self) -> Sink:
        """The sink that writes."""
        return self._inner

    def continue_at(self, seq: int) -> None:
        """Count everything before ``seq`` as committed: this sink, or the one that the config named before, has it."""
        self._before_seq, self._of = seq, None

    @property
    def committed(self) -> IntervalSet:
        """See ``Sink.committed``."""
        inner = self._inner.committed
        if not self._before_seq:
            return inner
        if self._of is not inner:
            self._of, self._committed = inner, IntervalSet([(0, self._before_seq - 1), *inner])
        return self._committed

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
