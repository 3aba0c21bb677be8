"""The records that a consumer has fetched and that are not read yet: by partition, in order, bounded."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby, islice
from operator import attrgetter

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

from gateway.sources.base import SourceError, SourceUnavailableError

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


class Fetched:
    """Records of a consumer's partitions, returned in fair shares.

    It holds at most what one call of ``fill`` asked for, and what the consumer had buffered of one partition.
    """

    def __init__(self, consumer: AIOKafkaConsumer) -> None:
        self._consumer = consumer
        # Each record with its size.
        self._held: dict[TopicPartition, deque[tuple[ConsumerRecord, int]]] = {}
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
        times = [held[0][0].timestamp for held in self._held.values() if held and held[0][0].timestamp >= 0]
        return min(times) / 1000 if times else None

    def next_offset(self, partition: TopicPartition) -> int | None:
        """Return the offset of the first record that it holds of a partition."""
        held = self._held.get(partition)
        return held[0][0].offset if held else None

    def drop(self, partitions: Sequence[TopicPartition] | None = None) -> None:
        """Drop the records of some partitions, or of all."""
        for partition in list(self._held) if partitions is None else partitions:
            for _, size_bytes in self._held.pop(partition, ()):
                self._forget(size_bytes)

    async def fill(
        self, partitions: Sequence[TopicPartition], max_records: int, max_bytes: int, *, wait_s: float
    ) -> None:
        """Fetch until it holds more than ``max_records`` or ``max_bytes``, if there are so many.

        Each partition gives its share, then any of them the rest. If there are no records, it waits for the first one.
        """
        share = math.ceil(max_records / len(partitions)) + 1
        # It begins after the last partition of the previous call, so that none is left out for long.
        turned = self._turn % len(partitions)
        for i, partition in enumerate([*partitions[turned:], *partitions[:turned]], start=turned + 1):
            if self._bytes >= max_bytes:
                break
            self._turn = i
            lacking = share - len(self._held.get(partition, ()))
            if lacking > 0:
                await self._fetch([partition], lacking)
        lacking = max_records + 1 - self._count
        if lacking > 0 and self._bytes < max_bytes:
            holds_some = any(self._held.get(partition) for partition in partitions)
            await self._fetch(partitions, lacking, wait_s=0.0 if holds_some else wait_s)

    async def _fetch(self, partitions: Sequence[TopicPartition], max_records: int, *, wait_s: float = 0.0) -> None:
        found = await self._consumer.getmany(*partitions, timeout_ms=int(1000 * wait_s), max_records=max_records)
        for partition, records in found.items():
            sizes_bytes = [record_bytes(record) for record in records]
            self._held.setdefault(partition, deque()).extend(zip(records, sizes_bytes, strict=True))
            self._count += len(records)
            self._bytes += sum(sizes_bytes)

    def first(self, max_records: int, max_bytes: int) -> list[ConsumerRecord]:
        """Return, without removing them, at most this many records, at least one if any, by partition and offset.

        ``max_bytes`` may be exceeded by the last record. The shares of the partitions are as even as possible.
        """
        open_ones = [partition for partition in sorted(self._held) if self._held[partition]]
        turned = self._takes % max(1, len(open_ones))
        order = [*open_ones[turned:], *open_ones[:turned]]
        counts = dict.fromkeys(open_ones, 0)
        left, left_bytes = max_records, max_bytes
        while order and left > 0 and left_bytes > 0:
            share = max(1, left // len(order))
            for partition in list(order):
                held, begun = self._held[partition], counts[partition]
                ends = min(begun + min(share, left), len(held))
                for _, size_bytes in islice(held, begun, ends):
                    if left_bytes <= 0:
                        break
                    left_bytes -= size_bytes
                    counts[partition] += 1
                left -= counts[partition] - begun
                if counts[partition] == len(held):
                    order.remove(partition)
        return [record for partition in open_ones for record, _ in islice(self._held[partition], counts[partition])]

    def take_before(self, partition: TopicPartition, offset: int) -> list[ConsumerRecord]:
        """Return and remove the records of a partition before ``offset``."""
        held = self._held.get(partition, deque())
        taken = []
        while held and held[0][0].offset < offset:
            record, size_bytes = held.popleft()
            taken.append(record)
            self._forget(size_bytes)
        return taken

    def take(self, records: Sequence[ConsumerRecord]) -> None:
        """Remove records that ``first`` has returned."""
        self._takes += 1
        for (topic, number), shown in groupby(records, attrgetter("topic", "partition")):
            held = self._held[TopicPartition(topic, number)]
            for record in shown:
                taken, size_bytes = held.popleft()
                assert taken is record, "records are removed in the order in which they were returned"
                self._forget(size_bytes)

    def _forget(self, size_bytes: int) -> None:
        self._count -= 1
        self._bytes -= size_bytes


def record_bytes(record: ConsumerRecord) -> int:
    """Return the approximate memory of a record."""
    size_bytes = len(record.value or b"") + len(record.key or b"") + _RECORD_OVERHEAD_BYTES
    if record.headers:
        size_bytes += sum(len(key) + len(value or b"") for key, value in record.headers)
    return size_bytes
