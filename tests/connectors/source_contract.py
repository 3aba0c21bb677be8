"""The contract of all sources.

A connector's test module subclasses ``SourceContract`` and provides the fixture ``subject``.
"""

from __future__ import annotations

import asyncio
import time
from itertools import pairwise
from typing import Any, Protocol

import pyarrow as pa

from gateway.connectors.position import Position
from gateway.sources.base import Chunk, Source

SCHEMA = pa.schema([("id", pa.string()), ("n", pa.int64())])
HUGE = 1 << 40
DEADLINE_S = 60.0


class SourceSubject(Protocol):
    """A place that a source reads, controlled by the test.

    Attributes:
        finite: the source ends by itself after the records that were put before it was opened.
        ordered: records come in the order in which they were put (not so with several partitions or connections).
    """

    finite: bool
    ordered: bool

    async def put(self, rows: list[dict[str, Any]]) -> None:
        """Add events after all earlier ones; return when they are stored for good."""
        ...

    async def put_undecodable(self, raw: bytes) -> None:
        """Add a record that is not an event."""
        ...

    def make(self) -> Source:
        """Return a new source for the same place and state, not opened; the one before was closed or killed."""
        ...


def rows(first: int, last: int) -> list[dict[str, Any]]:
    """Events whose number is ``n``."""
    return [{"id": f"id-{'x' * (n % 5)}{n}", "n": n} for n in range(first, last + 1)]


async def read(source: Source, count: int, *, max_records: int = 1000, max_bytes: int = HUGE) -> list[Chunk]:
    """Read until ``count`` records have come."""
    ends = time.monotonic() + DEADLINE_S
    chunks: list[Chunk] = []
    records = 0
    while records < count:
        assert time.monotonic() < ends, f"{records} of {count} records came in {DEADLINE_S:g} s"
        chunk = await source.read(min(max_records, count - records), max_bytes)
        if chunk is None:
            await asyncio.sleep(0.01)
            continue
        chunks.append(chunk)
        records += chunk.end.record - chunk.start.record
    return chunks


def events(chunks: list[Chunk]) -> list[dict[str, Any]]:
    """All events of some chunks."""
    return [row for chunk in chunks for row in chunk.batch.to_pylist()]


def by_number(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Events in the order of their number."""
    return sorted(found, key=lambda row: int(row["n"]))


class SourceContract:
    """The suite."""

    def _equal(self, subject: SourceSubject, found: list[dict[str, Any]], wanted: list[dict[str, Any]]) -> None:
        assert (found if subject.ordered else by_number(found)) == wanted

    async def test_every_event_comes_once_and_is_counted(self, subject: SourceSubject) -> None:
        await subject.put(rows(0, 99))
        source = subject.make()
        await source.open(SCHEMA)
        chunks = await read(source, 100, max_records=7)
        assert chunks[0].start.record == 0
        for before, after in pairwise(chunks):
            assert after.start.record == before.end.record
        assert all(0 < chunk.end.record - chunk.start.record <= 7 for chunk in chunks)
        assert all(chunk.batch.schema == SCHEMA for chunk in chunks)
        self._equal(subject, events(chunks), rows(0, 99))
        await source.close()

    async def test_few_bytes_still_give_a_record(self, subject: SourceSubject) -> None:
        await subject.put(rows(0, 9))
        source = subject.make()
        await source.open(SCHEMA)
        self._equal(subject, events(await read(source, 10, max_bytes=1)), rows(0, 9))
        await source.close()

    async def test_the_end_of_what_is_there(self, subject: SourceSubject) -> None:
        await subject.put(rows(0, 9))
        source = subject.make()
        await source.open(SCHEMA)
        assert not await source.finished()
        await read(source, 10)
        assert await source.read(10, HUGE) is None
        assert await source.finished() == subject.finite
        backlog = source.backlog()
        assert backlog is None or backlog.records == 0
        if not subject.finite:
            await subject.put(rows(10, 19))
            self._equal(subject, events(await read(source, 10)), rows(10, 19))
        await source.close()

    async def test_between_two_positions_lies_always_the_same(self, subject: SourceSubject) -> None:
        await subject.put(rows(0, 59))
        source = subject.make()
        await source.open(SCHEMA)
        chunks = await read(source, 60, max_records=9)
        for again in (source, subject.make()):
            if again is not source:
                await source.close()
                await again.open(SCHEMA)
            for chunk in [*chunks[::2], *reversed(chunks)]:
                repeated = await again.read_between(chunk.start, chunk.end)
                assert repeated.batch.equals(chunk.batch)
                assert (repeated.start, repeated.end, repeated.dead) == (chunk.start, chunk.end, chunk.dead)
            await again.seek(chunks[-1].end)
            assert await again.read(10, HUGE) is None
        await again.close()

    async def test_after_a_restart_it_goes_on_where_it_is_told(self, subject: SourceSubject) -> None:
        await subject.put(rows(0, 49))
        source = subject.make()
        await source.open(SCHEMA)
        first = await read(source, 20, max_records=6)
        # Read, but not noted by anybody before the end: it must come again.
        await read(source, 10)
        await source.close()
        again = subject.make()
        await again.open(SCHEMA)
        await again.seek(first[-1].end)
        rest = await read(again, 30)
        assert rest[0].start.record == 20
        self._equal(subject, by_number(events(first + rest)), rows(0, 49))
        await again.close()

    async def test_what_is_not_acknowledged_stays(self, subject: SourceSubject) -> None:
        await subject.put(rows(0, 49))
        source = subject.make()
        await source.open(SCHEMA)
        chunks = await read(source, 50, max_records=5)
        await source.acknowledge(Position())
        await source.acknowledge(chunks[3].end)
        await source.acknowledge(chunks[3].end)
        await source.close()
        again = subject.make()
        await again.open(SCHEMA)
        for chunk in chunks[4:]:
            assert (await again.read_between(chunk.start, chunk.end)).batch.equals(chunk.batch)
        await again.seek(chunks[-1].end)
        await again.acknowledge(chunks[-1].end)
        assert await again.read(10, HUGE) is None
        await again.close()

    async def test_a_record_that_is_no_event_is_told_with_its_bytes(self, subject: SourceSubject) -> None:
        await subject.put(rows(0, 4))
        await subject.put_undecodable(b"this is \xff no event")
        await subject.put(rows(5, 9))
        source = subject.make()
        await source.open(SCHEMA)
        chunks = await read(source, 11, max_records=4)
        self._equal(subject, by_number(events(chunks)), rows(0, 9))
        (dead,) = [record for chunk in chunks for record in chunk.dead]
        assert dead.raw == b"this is \xff no event"
        assert dead.reason
        holder = next(chunk for chunk in chunks if chunk.dead)
        assert holder.start.record <= dead.record < holder.end.record
        again = await source.read_between(holder.start, holder.end)
        assert again.dead == holder.dead
        await source.close()

    async def test_a_cancelled_read_loses_nothing(self, subject: SourceSubject) -> None:
        await subject.put(rows(0, 9))
        source = subject.make()
        await source.open(SCHEMA)
        chunks = await read(source, 5, max_records=5)
        reading = asyncio.create_task(source.read(5, HUGE))
        await asyncio.sleep(0)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        await source.seek(chunks[-1].end)
        self._equal(subject, events(chunks + await read(source, 5)), rows(0, 9))
        await source.close()

    async def test_it_can_be_closed_twice(self, subject: SourceSubject) -> None:
        await subject.put(rows(0, 0))
        source = subject.make()
        await source.open(SCHEMA)
        await source.close()
        await source.close()
