"""Runs sources whose calls block, such as files, in a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pyarrow as pa

from gateway.connectors.position import Position
from gateway.sources.base import Backlog, BlockingSource, Chunk
from infra.rows.base import SourceError
from infra.threads import run_to_end

_UNBOUNDED_BYTES = 1 << 62


class ThreadedSource:
    """The ``Source`` over a ``BlockingSource`` that can always be read again.

    Args:
        inner: the source that is read.
        on_acknowledge: called with what is committed, on the event loop, so it must not block.
    """

    def __init__(self, inner: BlockingSource, on_acknowledge: Callable[[Position], None] | None = None) -> None:
        self._inner = inner
        self._on_acknowledge = on_acknowledge

    async def open(self, schema: pa.Schema) -> None:
        """See ``Source.open``."""
        await run_to_end(lambda: self._inner.open(schema))

    async def read_between(self, start: Position, end: Position) -> Chunk:
        """See ``Source.read_between``."""
        chunk = await run_to_end(lambda: self._read_between(start, end))
        if chunk is None or chunk.end != end:
            raise SourceError(
                f"records {start.record} to {end.record - 1} were taken from the source, but it no longer has them: "
                "restore the source"
            )
        return chunk

    def _read_between(self, start: Position, end: Position) -> Chunk | None:
        self._inner.seek(start)
        return self._inner.read(end.record - start.record, _UNBOUNDED_BYTES)

    async def seek(self, position: Position) -> None:
        """See ``Source.seek``."""
        await run_to_end(lambda: self._inner.seek(position))

    async def read(self, max_records: int, max_bytes: int) -> Chunk | None:
        """See ``Source.read``."""
        return await run_to_end(lambda: self._inner.read(max_records, max_bytes))

    async def finished(self) -> bool:
        """See ``Source.finished``."""
        return await asyncio.to_thread(lambda: self._inner.finished)

    def backlog(self) -> Backlog | None:
        """See ``Source.backlog``: the unread part of a file is not measured."""
        return None

    async def acknowledge(self, position: Position) -> None:
        """See ``Source.acknowledge``: a single file needs none."""
        if self._on_acknowledge is not None:
            self._on_acknowledge(position)

    async def close(self) -> None:
        """See ``Source.close``."""
        await run_to_end(self._inner.close)
