"""Reads known offsets again, whoever owns the partitions now."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition

from infra.kafka.fetched import Fetched, as_source_errors, gone
from infra.kafka.fetching import FETCHING, STOP_S
from infra.messages import OffsetRange
from infra.rows.base import SourceUnavailableError

_HELD_BYTES_MAX: Final = 8 * 2**20
_WAIT_S: Final = 0.5
_SILENT_S: Final = 20.0


class Rereader:
    """A consumer without a group. It connects for the first read, and stays connected until one fails.

    Consecutive reads use its buffers. Its methods are called one at a time.

    Args:
        settings: how to reach the brokers.
        what: names what it does, in errors.
    """

    def __init__(self, settings: Mapping[str, Any], what: str) -> None:
        self._settings = settings
        self._what = what
        self._open: AIOKafkaConsumer | None = None
        self._next: dict[TopicPartition, int] = {}

    async def stop(self) -> None:
        """Disconnect, if it is connected."""
        consumer, self._open = self._open, None
        if consumer is not None:
            async with asyncio.timeout(STOP_S):
                await consumer.stop()

    async def read(
        self, start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], count: int
    ) -> list[ConsumerRecord]:
        """Return the records from ``start`` to ``end`` (exclusive), by partition and offset; about ``count``.

        Raises:
            SourceError: a partition does not contain the whole range.
            SourceUnavailableError: the brokers do not answer.
        """
        try:
            with as_source_errors(self._what):
                await self._connect()
                return await self._read(start, end, count)
        except BaseException:
            await self.stop()
            raise

    async def read_ranges(self, ranges: Sequence[OffsetRange]) -> list[ConsumerRecord]:
        """Return the records of ranges of different partitions, as ``read`` does."""
        begins = {TopicPartition(each.topic, each.partition): each.begin for each in ranges}
        ends = {TopicPartition(each.topic, each.partition): each.end for each in ranges}
        return await self.read(begins, ends, sum(each.end - each.begin for each in ranges))

    async def _connect(self) -> None:
        if self._open is None:
            self._open = self._consumer = AIOKafkaConsumer(**self._settings, **FETCHING)
            self._fetched = Fetched(self._consumer)
            self._next.clear()
            await self._consumer.start()

    async def _read(
        self, start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], count: int
    ) -> list[ConsumerRecord]:
        async with asyncio.timeout(_SILENT_S):
            await self._seek(start, end)
        found: dict[TopicPartition, list[ConsumerRecord]] = {partition: [] for partition in sorted(end)}
        left = set(end)
        while left:
            before = {partition: self._next[partition] for partition in left}
            await self._step(sorted(left), end, found, count)
            left = {partition for partition in left if self._next[partition] < end[partition]}
            if all(self._next[partition] == before[partition] for partition in left) and left:
                await self._wait_for_more(sorted(left))
        return [record for records in found.values() for record in records]

    async def _seek(self, start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> None:
        if set(end) - self._consumer.assignment():
            self._consumer.assign(sorted(end))
            self._fetched.drop()
            self._next.clear()
        for partition in end:
            if self._next.get(partition) != start[partition]:
                self._consumer.seek(partition, start[partition])
                self._fetched.drop([partition])
                self._next[partition] = start[partition]
        first = await self._consumer.beginning_offsets(list(end))
        last = await self._consumer.end_offsets(list(end))
        lost = {each: start[each] for each in end if not first[each] <= start[each] <= end[each] <= last[each]}
        if lost:
            raise gone(lost)

    async def _step(
        self,
        partitions: list[TopicPartition],
        end: Mapping[TopicPartition, int],
        found: dict[TopicPartition, list[ConsumerRecord]],
        count: int,
    ) -> None:
        held = self._fetched
        await held.fill(partitions, held.count + count, held.held_bytes + _HELD_BYTES_MAX, wait_s=0.0)
        for partition in partitions:
            found[partition] += held.take_before(partition, end[partition])
            upcoming = held.next_offset(partition)
            # Between two records there may be offsets without one: ends of transactions, and compacted records.
            reached = await self._consumer.position(partition) if upcoming is None else end[partition]
            self._next[partition] = min(reached, end[partition])
            if reached > end[partition]:
                self._consumer.seek(partition, end[partition])

    async def _wait_for_more(self, partitions: list[TopicPartition]) -> None:
        held = self._fetched
        for _ in range(int(_SILENT_S / _WAIT_S)):
            positions = [await self._consumer.position(partition) for partition in partitions]
            await held.fill(partitions, held.count + 1, held.held_bytes + _HELD_BYTES_MAX, wait_s=_WAIT_S)
            now = [await self._consumer.position(partition) for partition in partitions]
            if any(held.next_offset(partition) is not None for partition in partitions) or positions != now:
                return
        raise SourceUnavailableError(f"no broker gave the records of {partitions} within {_SILENT_S:g} s")
