"""Reads some records of topics without joining a group, so that nobody notices."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa
from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition

from gateway.config.connectors.kafka import KafkaSourceConfig
from gateway.connectors.kafkaclients import client_settings, close_client, start_client
from gateway.connectors.position import Position
from gateway.sources.base import Chunk
from gateway.sources.kafka.formats import record_format
from gateway.sources.kafka.partitions import partitions_of
from infra.clienttls import BadTlsFilesError
from infra.kafka.events import RecordDecoder
from infra.kafka.fetched import as_source_errors, records_bytes
from infra.kafka.fetching import FETCHING, REQUEST_TIMEOUT_MS
from infra.rows.base import SourceError

_WITHIN_S: Final = 30.0
_WAIT_MS: Final = 500


async def sample_topics(
    config: KafkaSourceConfig, schema: pa.Schema, most: int, most_bytes: int, *, strict: bool
) -> Chunk:
    """Return the first records of the topics; with ``start: latest`` the last ones.

    No offset is committed, and no topic is created.

    Args:
        config: the source's config.
        schema: of the events.
        most: so many offsets of all partitions are read at most; some of them may have no record.
        most_bytes: no more is read after so many bytes.
        strict: see docs/schema-drift.md.

    Returns:
        The events, by partition and offset; ``more`` says whether the topics have other records.

    Raises:
        SourceError: a topic does not exist, or a column cannot be filled.
        SourceUnavailableError: the brokers do not answer.
    """
    try:
        settings = client_settings(config)
    except BadTlsFilesError as error:
        raise SourceError(str(error)) from error
    decoder = RecordDecoder(record_format(config, strict=strict), schema)
    with as_source_errors(f"reading from {config.brokers}"):
        async with asyncio.timeout(_WITHIN_S):
            records, more = await _records(config, settings, most, most_bytes)
    batch, dead = await asyncio.to_thread(decoder.decode, records, 0)
    return Chunk(batch, Position(), Position(len(records)), dead, more=more)


async def _records(
    config: KafkaSourceConfig, settings: Mapping[str, Any], most: int, most_bytes: int
) -> tuple[list[ConsumerRecord], bool]:
    partitions = await partitions_of({**settings, "request_timeout_ms": REQUEST_TIMEOUT_MS}, config.topics)
    consumer = AIOKafkaConsumer(**settings, **FETCHING)
    consumer.assign(partitions)
    try:
        await start_client(consumer)
        first = await consumer.beginning_offsets(partitions)
        last = await consumer.end_offsets(partitions)
        there = {each: last[each] - first[each] for each in partitions}
        wanted = shares(there, most)
        begins = {each: first[each] if config.start == "earliest" else last[each] - wanted[each] for each in partitions}
        ends = {each: begins[each] + wanted[each] for each in partitions if wanted[each]}
        records, whole = await _read(consumer, begins, ends, most_bytes)
    finally:
        await close_client(consumer.stop())
    return records, not whole or wanted != there


def shares(there: Mapping[TopicPartition, int], most: int) -> dict[TopicPartition, int]:
    """Return how much to take of each partition: as evenly as possible, ``most`` in all.

    Args:
        there: how much each partition has.
        most: of all together.
    """
    taken, left = dict.fromkeys(there, 0), most
    for number, partition in enumerate(sorted(there, key=lambda each: (there[each], each))):
        taken[partition] = min(there[partition], math.ceil(left / (len(there) - number)))
        left -= taken[partition]
    return taken


async def _read(
    consumer: AIOKafkaConsumer,
    begins: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    most_bytes: int,
) -> tuple[list[ConsumerRecord], bool]:
    """Return the records before ``ends``, and whether these are all."""
    for partition in ends:
        consumer.seek(partition, begins[partition])
    found: list[ConsumerRecord] = []
    left, size_bytes = set(ends), 0
    while left and size_bytes < most_bytes:
        for partition, records in (await consumer.getmany(*sorted(left), timeout_ms=_WAIT_MS, max_records=100)).items():
            kept = [record for record in records if record.offset < ends[partition]]
            found += kept
            size_bytes += sum(records_bytes(kept))
        left = {partition for partition in left if await consumer.position(partition) < ends[partition]}
    found.sort(key=lambda record: (record.topic, record.partition, record.offset))
    return found, not left
