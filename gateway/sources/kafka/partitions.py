"""Partitions of topics, and their metadata from the brokers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from aiokafka import ConsumerRecord, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import UnknownTopicOrPartitionError, for_code

from gateway.connectors.kafkaclients import close_client, start_client
from gateway.connectors.position import Position
from infra.messages import OffsetRange
from infra.rows.base import SourceError
from policies.arrays import IntArray


def key_of(partition: TopicPartition) -> str:
    """Return the name of a partition in a ``Position``."""
    return f"{partition.topic}/{partition.partition}"


def partition_of(key: str) -> TopicPartition:
    """Return the partition of a name in a ``Position``."""
    topic, _, number = key.rpartition("/")
    return TopicPartition(topic, int(number))


def by_partition(offsets: Mapping[str, int]) -> dict[TopicPartition, int]:
    """Return the offsets of a ``Position`` by partition."""
    return {partition_of(key): offset for key, offset in offsets.items()}


def ranges_between(start: Position, end: Position) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """Return where the records between two positions begin and end in each partition that has some, in order."""
    moved = sorted(
        (partition_of(key), offset) for key, offset in end.offsets.items() if start.offsets.get(key, offset) < offset
    )
    return {each: start.offsets[key_of(each)] for each, _ in moved}, dict(moved)


def offset_ranges(start: Position, end: Position) -> tuple[OffsetRange, ...]:
    """Return the records between two positions, in order."""
    begins, ends = ranges_between(start, end)
    return tuple(OffsetRange(each.topic, each.partition, begin, ends[each]) for each, begin in begins.items())


def offsets_before(
    records: Sequence[ConsumerRecord], begins: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> IntArray:
    """Return how many offsets of some ranges, which follow each other, come before each of their records."""
    before, first = {}, 0
    for partition, begin in begins.items():
        before[partition] = first - begin
        first += ends[partition] - begin
    places = [before[TopicPartition(record.topic, record.partition)] + record.offset for record in records]
    return np.array(places, np.int64)


async def partitions_of(settings: Mapping[str, Any], topics: Sequence[str]) -> list[TopicPartition]:
    """Ask the brokers for the partitions of topics.

    Raises:
        SourceError: a topic does not exist.
        KafkaError: the brokers do not answer.
    """
    admin = AIOKafkaAdminClient(**settings)
    try:
        await start_client(admin)
        found = await admin.describe_topics(list(topics))
    finally:
        await close_client(admin.close())
    partitions = []
    for topic in found:
        error = for_code(topic["error_code"])
        if error is UnknownTopicOrPartitionError:
            raise no_topic(topic["topic"], settings)
        if topic["error_code"]:
            raise error(topic["topic"])
        partitions += [TopicPartition(topic["topic"], each["partition"]) for each in topic["partitions"]]
    return sorted(partitions)


def no_topic(topic: str, settings: Mapping[str, Any]) -> SourceError:
    """Return the error for a topic that does not exist."""
    return SourceError(
        f'there is no topic "{topic}" at the brokers {settings["bootstrap_servers"]}: create it, or correct topics'
    )
