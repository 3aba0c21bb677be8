"""Files whose records others may read, too: they are given the places of lines or rows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
import numpy as np
import pyarrow as pa

from gateway.connectors.position import Position
from gateway.sources.base import Ahead, Chunk, Loaded
from gateway.sources.files.reading.passes import Files, PassesSource, dead_records
from gateway.sources.threaded import ThreadedSource
from infra.files.base import Portion
from infra.files.ranges import FileRangeReader
from infra.messages import FileRange, FileReading
from infra.rows.base import SourceError
from infra.threads import run_to_end


class ReferableFiles(ThreadedSource):
    """A source of files that are read here or by others.

    Args:
        inner: reads them.
        files: the same files.
        reading: where others find them.
        on_acknowledge: see ``ThreadedSource``.
    """

    def __init__(
        self,
        inner: PassesSource,
        files: Files,
        reading: FileReading,
        on_acknowledge: Callable[[Position], None] | None = None,
    ) -> None:
        super().__init__(inner, on_acknowledge)
        self._passes, self._files, self._reading = inner, files, reading
        self._again: FileRangeReader | None = None
        self._turn = asyncio.Lock()

    async def open(self, schema: pa.Schema) -> None:
        """See ``Source.open``."""
        await super().open(schema)
        self._again = FileRangeReader(self._reading, schema)

    async def ahead(self, max_records: int, max_bytes: int) -> Ahead | Chunk | None:
        """See ``ReferableSource.ahead``; the records of a file that cannot be cut come as a chunk."""
        return await run_to_end(lambda: self._passes.ahead(max_records, max_bytes))

    async def ranges(self, start: Position, end: Position) -> tuple[FileRange, ...]:
        """See ``ReferableSource.ranges``."""
        return (await run_to_end(lambda: self._range(start, end)),)

    async def read_range(self, start: Position, end: Position) -> Loaded:
        """See ``ReferableSource.read_range``."""
        assert self._again is not None, "it is open"
        (wanted,), again = await self.ranges(start, end), self._again
        async with self._turn:
            portion = await run_to_end(lambda: again.read(wanted))
        return _loaded(portion, start.record, wanted.name if self._reading.named else "")

    async def close(self) -> None:
        """See ``Source.close``."""
        await super().close()
        again = self._again
        if again is not None:
            async with self._turn:
                await run_to_end(again.close)

    def _range(self, start: Position, end: Position) -> FileRange:
        file = self._files.noted(start.part)
        if file is None:
            raise SourceError(f"file {start.part}, of which records were logged, is not known: restore the list")
        ends = end.offset if end.part == start.part else -1
        return FileRange(
            begin=start.offset, end=ends, records=end.record - start.record, **msgspec.structs.asdict(file)
        )


def _loaded(portion: Portion, first: int, place: str) -> Loaded:
    """Return the records of a range; ``place`` begins the places of those that are no events."""
    no_events = [*(each.index for each in portion.dead), *portion.blank]
    index = np.delete(np.arange(portion.records, dtype=np.int64), no_events)
    dead = dead_records(portion, first, place)
    return Loaded(portion.batch, index, tuple((each.record - first, each) for each in dead))
