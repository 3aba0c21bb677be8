"""The records that a consumer has fetched and that are not read yet: by partition, in order, bounded."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import accumulate

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.errors import (
    ConsumerStoppedError,
    GroupAuthorizationFailedError,
    IllegalOperation,
    KafkaError,
    OffsetOutOfRangeError,
    RecordTooLargeError,
    TopicAuthorizationFailedError,
    UnsupportedVersionError,
)

from infra.rows.base import SourceError, SourceUnavailableError

# Approximate memory of a record's bookkeeping, besides its bytes.
_RECORD_OVERHEAD_BYTES = 100
_FATAL = (GroupAuthorizationFailedError, TopicAuthorizationFailedError, UnsupportedVersionError, RecordTooLargeError)


@contextmanager
def as_source_errors(what: str) -> Iterator[None]:
    """Translate aiokafka's errors into those of sources; ``what`` names the failed action."""
    try:
        yield
    except OffsetOutOfRangeError as error:
        raise gone(dict(error.args[0])) from error
    except _FATAL as error:
        raise SourceError(f"{what}: {error!r}") from error
    except (KafkaError, ConsumerStoppedError, IllegalOperation, TimeoutError, OSError) as error:
        raise SourceUnavailableError(f"{what}: {error!r}") from error


def gone(offsets: Mapping[TopicPartition, int]) -> SourceError:
    """Return the error for offsets that their partitions do not contain (any more)."""
    places = ", ".join(f"{partition.topic}/{partition.partition}@{offset}" for partition, offset in offsets.items())
    return SourceError(
        f"the topic does not hold the records at {places} any more: its retention deleted them before they were read, "
        "or it was deleted and created again. Restore them; or, to continue without them, give the query a new "
        "state_dir and another group (and make the topic's retention longer than the gateway may be down)"
    )


@dataclass(slots=True)
class _Held:
    """Records of one partition, and the approximate memory of each."""

    records: list[ConsumerRecord] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)


class Fetched:
    """Records of a consumer's partitions, returned in fair shares.

    It holds at most what one call of ``fill`` asked for, and what the consumer had buffered of one partition.
    """

    def __init__(self, consumer: AIOKafkaConsumer) -> None:
        self._consumer = consumer
        self._held: dict[TopicPartition, _Held] = {}
        self._shown: dict[TopicPartition, int] = {}
        self._count = 0
        self._bytes = 0
        self._turn = 0
        self._takes = 0

    @property
    def count(self) -> int:
        """How many records it holds."""
        return self._count

    @property
    def held_bytes(self) -> int:
        """Approximate memory of the records that it holds."""
        return self._bytes

    def oldest_wall_s(self) -> float | None:
        """The time of the oldest record that it holds (s since 1970); None without records."""
        oldest = [held.records[0].timestamp for held in self._held.values() if held.records]
        times = [timestamp for timestamp in oldest if timestamp >= 0]
        return min(times) / 1000 if times else None

    def next_offset(self, partition: TopicPartition) -> int | None:
        """Return the offset of the first record that it holds of a partition."""
        held = self._held.get(partition)
        return held.records[0].offset if held and held.records else None

    def drop(self, partitions: Sequence[TopicPartition] | None = None) -> None:
        """Drop the records of some partitions, or of all."""
        self._shown = {}
        for partition in list(self._held) if partitions is None else partitions:
            held = self._held.pop(partition, _Held())
            self._count -= len(held.records)
            self._bytes -= sum(held.sizes)

    async def fill(
        self,
        partitions: Sequence[TopicPartition],
        max_records: int,
        max_bytes: int,
        *,
        wait_s: float,
        more_s: float = 0.0,
    ) -> None:
        """Fetch until it holds more than ``max_records`` or ``max_bytes``, if there are so many.

        Each partition gives its share, then any of them the rest.

        Args:
            partitions: to fetch from.
            max_records: how many are wanted; it fetches one more, to know whether there are more.
            max_bytes: of memory; it fetches no more once it holds so much.
            wait_s: how long to wait for a first record, if there is none.
            more_s: how long to wait for more than what the client had, if that is not enough.
        """
        share = math.ceil(max_records / len(partitions)) + 1
        # It begins after the last partition of the previous call, so that none is left out for long.
        turned = self._turn % len(partitions)
        for i, partition in enumerate([*partitions[turned:], *partitions[:turned]], start=turned + 1):
            if self._bytes >= max_bytes:
                break
            self._turn = i
            lacking = share - (len(self._held[partition].records) if partition in self._held else 0)
            if lacking > 0:
                await self._fetch([partition], lacking)
        lacking = max_records + 1 - self._count
        if lacking > 0 and self._bytes < max_bytes:
            await self._fetch(partitions, lacking, wait_s=more_s if any(map(self._holds_some, partitions)) else wait_s)

    def _holds_some(self, partition: TopicPartition) -> bool:
        return partition in self._held and bool(self._held[partition].records)

    async def _fetch(self, partitions: Sequence[TopicPartition], max_records: int, *, wait_s: float = 0.0) -> None:
        found = await self._consumer.getmany(*partitions, timeout_ms=int(1000 * wait_s), max_records=max_records)
        for partition, records in found.items():
            sizes_bytes = records_bytes(records)
            held = self._held.setdefault(partition, _Held())
            held.records += records
            held.sizes += sizes_bytes
            self._count += len(records)
            self._bytes += sum(sizes_bytes)

    def first(self, max_records: int, max_bytes: int) -> list[ConsumerRecord]:
        """Return, without removing them, at most this many records, at least one if any, by partition and offset.

        ``max_bytes`` may be exceeded by the last record. The shares of the partitions are as even as possible.
        """
        open_ones = [partition for partition in sorted(self._held) if self._held[partition].records]
        turned = self._takes % max(1, len(open_ones))
        order = [*open_ones[turned:], *open_ones[:turned]]
        counts = dict.fromkeys(open_ones, 0)
        left, left_bytes = max_records, max_bytes
        while order and left > 0 and left_bytes > 0:
            share = max(1, left // len(order))
            for partition in list(order):
                sizes, begun = self._held[partition].sizes, counts[partition]
                ends = min(begun + min(share, left), len(sizes))
                totals = list(accumulate(sizes[begun:ends], initial=0))
                # One that begins within the limit is returned, even if it exceeds it.
                taken = min(ends - begun, bisect_left(totals, left_bytes))
                left_bytes -= totals[taken]
                counts[partition] += taken
                left -= taken
                if counts[partition] == len(sizes):
                    order.remove(partition)
        self._shown = {partition: count for partition, count in counts.items() if count}
        return [record for each, count in self._shown.items() for record in self._held[each].records[:count]]

    def take(self) -> dict[TopicPartition, int]:
        """Remove the records that ``first`` has returned last; return the next offset of their partitions."""
        self._takes += 1
        shown, self._shown = self._shown, {}
        return {partition: self._pop(self._held[partition], count)[-1].offset + 1 for partition, count in shown.items()}

    def _pop(self, held: _Held, count: int) -> list[ConsumerRecord]:
        taken, held.records = held.records[:count], held.records[count:]
        gone_bytes, held.sizes = sum(held.sizes[:count]), held.sizes[count:]
        self._count -= count
        self._bytes -= gone_bytes
        return taken

    def take_before(self, partition: TopicPartition, offset: int) -> list[ConsumerRecord]:
        """Return and remove the records of a partition before ``offset``."""
        self._shown = {}
        held = self._held.get(partition, _Held())
        count = next((at for at, record in enumerate(held.records) if record.offset >= offset), len(held.records))
        return self._pop(held, count)


def records_bytes(records: Sequence[ConsumerRecord]) -> list[int]:
    """Return the approximate memory of each record."""
    return [
        _RECORD_OVERHEAD_BYTES
        + len(record.value or b"")
        + len(record.key or b"")
        + (sum(len(key) + len(value or b"") for key, value in record.headers) if record.headers else 0)
        for record in records
    ]
