"""The bounded buffer between a consumer and a source, with a consumer that is made of lists."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import (
    CorruptRecordException,
    GroupAuthorizationFailedError,
    KafkaConnectionError,
    OffsetOutOfRangeError,
)
from hypothesis import given
from hypothesis import strategies as st

from gateway.sources.kafka.partitions import by_partition, key_of, partition_of
from infra.kafka.fetched import Fetched, as_source_errors, records_bytes
from infra.rows.base import SourceError, SourceUnavailableError
from tests.connectors.kafka_records import record

HUGE = 1 << 40


class ListConsumer:
    """Has all records at once, and returns the requested ones of a partition."""

    def __init__(self, sizes: Sequence[Sequence[int]]) -> None:
        self.partitions = [TopicPartition("t", number) for number in range(len(sizes))]
        self._left = {
            partition: [
                replace(record(b"x" * size, offset=i), partition=partition.partition)
                for i, size in enumerate(of_partition)
            ]
            for partition, of_partition in zip(self.partitions, sizes, strict=True)
        }

    async def getmany(self, *partitions: TopicPartition, timeout_ms: int, max_records: int) -> dict[Any, Any]:
        found = {}
        for partition in partitions:
            taken, self._left[partition] = self._left[partition][:max_records], self._left[partition][max_records:]
            max_records -= len(taken)
            if taken:
                found[partition] = taken
            if not max_records:
                break
        return found


SIZES = st.lists(st.lists(st.integers(0, 300), max_size=25), min_size=1, max_size=4)


@given(sizes=SIZES, max_records=st.integers(1, 30), max_bytes=st.integers(1, 3000))
def test_everything_comes_once_in_order_within_the_limits(
    sizes: list[list[int]], max_records: int, max_bytes: int
) -> None:
    consumer: Any = ListConsumer(sizes)
    fetched = Fetched(consumer)
    found: dict[int, list[int]] = {number: [] for number in range(len(sizes))}
    while True:
        asyncio.run(fetched.fill(consumer.partitions, max_records, max_bytes, wait_s=0))
        records = fetched.first(max_records, max_bytes)
        assert records == fetched.first(max_records, max_bytes)
        assert len(records) <= max_records
        taken_bytes = records_bytes(records)
        assert sum(taken_bytes) - max(taken_bytes, default=0) < max_bytes
        places = [(each.partition, each.offset) for each in records]
        assert places == sorted(places)
        fetched.take()
        for number, offset in places:
            found[number].append(offset)
        if not records:
            break
    assert found == {number: list(range(len(of_partition))) for number, of_partition in enumerate(sizes)}
    assert (fetched.count, fetched.held_bytes) == (0, 0)


async def test_shares_are_even_and_what_one_does_not_use_others_have() -> None:
    consumer: Any = ListConsumer([[0] * 100, [0] * 100, [0] * 2])
    fetched = Fetched(consumer)
    await fetched.fill(consumer.partitions, 30, HUGE, wait_s=0)
    records = fetched.first(30, HUGE)
    shares = [sum(each.partition == number for each in records) for number in range(3)]
    assert shares[2] == 2
    assert min(shares[:2]) >= 10
    assert fetched.count > len(records), "the oldest of what is left is known"


async def test_large_records_of_many_partitions_take_turns() -> None:
    consumer: Any = ListConsumer([[1000] * 100 for _ in range(4)])
    fetched = Fetched(consumer)
    seen = []
    for _ in range(20):
        # A share is two records here, and one is more than is wanted.
        await fetched.fill(consumer.partitions, 4, 10, wait_s=0)
        records = fetched.first(4, 10)
        assert len(records) == 1
        seen.append(records[0].partition)
        fetched.take()
    assert [seen.count(number) for number in range(4)] == [6, 6, 4, 4]


async def test_one_record_at_a_time_comes_from_each_partition_in_turn() -> None:
    consumer: Any = ListConsumer([[0] * 50, [0] * 50])
    fetched = Fetched(consumer)
    seen = []
    for _ in range(10):
        await fetched.fill(consumer.partitions, 1, HUGE, wait_s=0)
        records = fetched.first(1, HUGE)
        seen.append(records[0].partition)
        fetched.take()
    assert sorted(seen) == [0] * 5 + [1] * 5


async def test_records_before_an_offset_and_those_of_a_partition_that_is_lost() -> None:
    consumer: Any = ListConsumer([[0] * 10, [0] * 10])
    one, other = consumer.partitions
    fetched = Fetched(consumer)
    await fetched.fill(consumer.partitions, 20, HUGE, wait_s=0)
    assert [each.offset for each in fetched.take_before(one, 4)] == [0, 1, 2, 3]
    assert fetched.next_offset(one) == 4
    fetched.drop([other])
    assert fetched.next_offset(other) is None
    assert fetched.count == 6
    assert fetched.oldest_wall_s() == pytest.approx(1_700_000_000.123)
    fetched.drop()
    assert (fetched.count, fetched.held_bytes, fetched.oldest_wall_s()) == (0, 0, None)


@pytest.mark.parametrize(
    ("error", "kind", "says"),
    [
        (OffsetOutOfRangeError({TopicPartition("t", 3): 7}), SourceError, "t/3@7"),
        (GroupAuthorizationFailedError("g"), SourceError, "GroupAuthorization"),
        (KafkaConnectionError("gone"), SourceUnavailableError, "gone"),
        (CorruptRecordException("crc"), SourceUnavailableError, "crc"),
        (TimeoutError(), SourceUnavailableError, "Timeout"),
    ],
)
def test_errors_of_the_client_become_those_of_sources(error: Exception, kind: type[Exception], says: str) -> None:
    with pytest.raises(kind, match=says), as_source_errors("reading"):
        raise error


@given(st.text("abc._-/", min_size=1), st.integers(0, 1 << 31))
def test_the_name_of_a_partition_leads_back_to_it(topic: str, number: int) -> None:
    partition = TopicPartition(topic, number)
    assert partition_of(key_of(partition)) == partition
    assert by_partition({key_of(partition): 5}) == {partition: 5}
