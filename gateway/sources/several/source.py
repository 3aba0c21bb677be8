"""Reads several sources as one: a chunk is from one of them, and they take turns."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import msgspec
import pyarrow as pa

from gateway.connectors.position import Position
from gateway.sources.base import Backlog, Chunk, Source
from gateway.sources.several.table import in_table, own_schema
from infra.messages import EventStream
from infra.rows.base import SourceError

_RESTS_READS: Final = 8
"""A source that had nothing is asked again after so many reads of others: it may take a while to say so."""


class SeveralStreams:
    """A source whose position holds those of several sources. While one cannot be reached, none is read.

    Args:
        sources: each by the name of its stream, not opened yet.
        streams: where the columns of each are in the common table.
    """

    def __init__(self, sources: Mapping[str, Source], streams: tuple[EventStream, ...]) -> None:
        self._sources = dict(sources)
        self._streams = {stream.name: stream for stream in streams}
        self._position = Position()
        self._turns = list(self._sources)
        self._rests: dict[str, int] = dict.fromkeys(self._sources, 0)

    async def open(self, schema: pa.Schema) -> None:
        """See ``Source.open``; ``schema`` is that of the common table."""
        self._schema = schema
        for name, source in self._sources.items():
            try:
                await source.open(own_schema(self._streams[name], schema))
            except SourceError as error:
                raise SourceError(f"sources.{name}: {error}") from error

    async def read_between(self, start: Position, end: Position) -> Chunk:
        """See ``Source.read_between``."""
        read = [name for name in self._sources if start.streams.get(name) != end.streams.get(name)]
        if len(read) != 1:
            raise SourceError(
                f"records {start.record} to {end.record - 1} were read from {', '.join(read) or 'none'} of the sources "
                f"{', '.join(self._sources)}, but each run is from one: restore the sources of the config"
            )
        name = read[0]
        chunk = await self._sources[name].read_between(start.of_stream(name), end.of_stream(name))
        return self._common(name, chunk, start, more=chunk.more)

    async def seek(self, position: Position) -> None:
        """See ``Source.seek``."""
        self._position = position
        for name, source in self._sources.items():
            await source.seek(position.of_stream(name))

    async def read(self, max_records: int, max_bytes: int) -> Chunk | None:
        """See ``Source.read``."""
        for name in sorted(self._turns, key=lambda each: self._rests[each] > 0):
            chunk = await self._sources[name].read(max_records, max_bytes)
            if chunk is None:
                self._rests[name] = _RESTS_READS
                continue
            self._next_turn(name, more=chunk.more)
            more = not all(self._rests.values())
            found = self._common(name, chunk, self._position, more=more)
            self._position = found.end
            return found
        return None

    def _next_turn(self, name: str, *, more: bool) -> None:
        self._turns.remove(name)
        self._turns.append(name)
        self._rests = {each: max(0, reads - 1) for each, reads in self._rests.items()}
        self._rests[name] = 0 if more else _RESTS_READS

    def _common(self, name: str, chunk: Chunk, start: Position, *, more: bool) -> Chunk:
        """Return a chunk of one source as a chunk of all, which begins at ``start``."""
        # A source may only know by its first records where it began.
        start = msgspec.structs.replace(start, streams={**start.streams, name: chunk.start})
        record = start.record + chunk.end.record - chunk.start.record
        end = msgspec.structs.replace(start, record=record, streams={**start.streams, name: chunk.end})
        dead = tuple(replace(each, stream=name) for each in chunk.dead)
        batch = in_table(chunk.batch, self._streams[name], self._schema)
        return Chunk(batch, start, end, dead, chunk.arrivals_wall_s, more)

    async def finished(self) -> bool:
        """See ``Source.finished``."""
        return all([await source.finished() for source in self._sources.values()])

    def backlog(self) -> Backlog | None:
        """See ``Source.backlog``: of the sources that know theirs."""
        known = [backlog for source in self._sources.values() if (backlog := source.backlog()) is not None]
        oldest_s = [each.oldest_wall_s for each in known if each.oldest_wall_s is not None]
        return Backlog(sum(each.records for each in known), min(oldest_s, default=None)) if known else None

    async def acknowledge(self, position: Position) -> None:
        """See ``Source.acknowledge``: the others are acknowledged even if one of them is not there now."""
        outcomes = await asyncio.gather(
            *(source.acknowledge(position.of_stream(name)) for name, source in self._sources.items()),
            return_exceptions=True,
        )
        failed = [each for each in outcomes if isinstance(each, BaseException)]
        if failed:
            raise failed[0]

    async def close(self) -> None:
        """See ``Source.close``."""
        for source in self._sources.values():
            await source.close()
