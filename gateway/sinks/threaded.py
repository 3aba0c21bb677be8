"""Runs sinks whose calls block, such as files, in a thread."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence

from gateway.connectors.position import Position
from gateway.core.intervals import IntervalSet
from gateway.sinks.base import BlockingSink, ReleasedRows, SinkError
from infra.threads import run_to_end

# The gateway waits for a full disk; none of these errors goes away by waiting.
_REFUSALS = frozenset(
    {
        errno.EACCES,
        errno.EISDIR,
        errno.ELOOP,
        errno.ENAMETOOLONG,
        errno.ENOENT,
        errno.ENOTDIR,
        errno.EPERM,
        errno.EROFS,
    }
)


class ThreadedSink:
    """The ``Sink`` over a ``BlockingSink``.

    Args:
        make: makes the inner sink, which opens it; called in a thread.
        opened: the inner sink, where there is one already.
    """

    def __init__(self, make: Callable[[], BlockingSink], opened: BlockingSink | None = None) -> None:
        self._make = make
        self._inner = opened

    @property
    def committed(self) -> IntervalSet:
        """See ``Sink.committed``."""
        return IntervalSet() if self._inner is None else self._inner.committed

    async def open(self) -> None:
        """See ``Sink.open``."""
        self._inner = await run_to_end(self._make)

    async def commit(self, releases: Sequence[ReleasedRows], source: Position) -> None:
        """See ``Sink.commit``."""
        inner = self._inner
        assert inner is not None, "the sink is opened before it is written"
        try:
            await run_to_end(lambda: inner.commit(releases, source))
        except OSError as error:
            if error.errno not in _REFUSALS:
                raise
            where = f"{error.filename}: " if error.filename else ""
            raise SinkError(f"{where}{error.strerror}: check that this user may write there") from error

    async def close(self) -> None:
        """See ``Sink.close``."""
        if self._inner is not None:
            await run_to_end(self._inner.close)
