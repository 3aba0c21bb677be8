"""A Kafka source that looks ahead names every record once, and can read what it named."""

from __future__ import annotations

import time
from typing import Any

import pytest

from gateway.connectors.position import Position
from gateway.sources.base import Ahead, Loaded
from gateway.sources.kafka.kafkasource import KafkaSource
from infra.rows.base import SourceError
from tests.connectors.kafka_broker import Broker
from tests.connectors.kafka_sources import lines, make_source, producer, put
from tests.connectors.source_contract import DEADLINE_S, HUGE, SCHEMA, rows


async def opened(broker: Broker, topic: str) -> KafkaSource:
    source = make_source(broker, topic)
    await source.open(SCHEMA)
    return source


async def next_ahead(source: KafkaSource, most: int = 10_000) -> Ahead:
    gives_up_s = time.monotonic() + DEADLINE_S
    while (found := await source.ahead(most, 1 << 20)) is None:
        assert time.monotonic() < gives_up_s
    return found


async def next_ids(source: KafkaSource) -> list[int]:
    gives_up_s = time.monotonic() + DEADLINE_S
    while (chunk := await source.read(10_000, HUGE)) is None:
        assert time.monotonic() < gives_up_s
    return [int(number) for number in chunk.batch.column("n").to_pylist()]


def ids(loaded: Loaded) -> list[Any]:
    return list(loaded.batch.column("n").to_pylist())


async def test_ranges_follow_each_other_and_have_each_record_once(broker: Broker) -> None:
    topic = await broker.create_topic(partitions=3)
    await put(broker, topic, lines(rows(0, 99)))
    source = await opened(broker, topic)
    try:
        found: list[int] = []
        at, offsets = Position(), 0
        while offsets < 100:
            ahead = await next_ahead(source, 7)
            assert ahead.start.record == at.record
            assert 1 <= ahead.offsets <= 7
            assert ahead.arrivals_wall_s is not None
            assert len(ahead.arrivals_wall_s) == ahead.offsets
            loaded = await source.read_range(ahead.start, ahead.end)
            assert loaded.index.tolist() == list(range(ahead.offsets))
            found += ids(loaded)
            at, offsets = ahead.end, offsets + ahead.offsets
        assert sorted(found) == list(range(100))
        assert not ahead.more
        assert await source.ahead(7, 1 << 20) is None
        backlog = source.backlog()
        assert backlog is not None
        assert (backlog.records, backlog.oldest_wall_s) == (0, None)
    finally:
        await source.close()


async def test_an_index_counts_offsets_without_an_event(broker: Broker) -> None:
    topic = await broker.create_topic()
    async with producer(broker, transactional_id=f"{topic}-t") as client:
        for number, commits in ((0, True), (1, False), (2, True)):
            await client.begin_transaction()
            await client.send_and_wait(topic, lines(rows(number, number))[0])
            await (client.commit_transaction() if commits else client.abort_transaction())
    await put(broker, topic, [b"no JSON", *lines(rows(3, 3))])
    source = await opened(broker, topic)
    try:
        ahead = await next_ahead(source)
        assert ahead.offsets == 8, "three records, three ends of transactions, two records"
        loaded = await source.read_range(ahead.start, ahead.end)
        assert (ids(loaded), loaded.index.tolist()) == ([0, 2, 3], [0, 4, 7])
        assert [(at, dead.offset) for at, dead in loaded.dead] == [(6, 6)]
    finally:
        await source.close()


async def test_reading_goes_on_where_looking_ahead_stopped_and_back(broker: Broker) -> None:
    topic = await broker.create_topic()
    await put(broker, topic, lines(rows(0, 19)))
    source = await opened(broker, topic)
    try:
        first = await next_ahead(source, 5)
        read = await next_ids(source)
        assert read[0] == 5
        await put(broker, topic, lines(rows(20, 29)))
        after = await next_ahead(source)
        found = ids(await source.read_range(first.start, first.end)) + read
        found += ids(await source.read_range(after.start, after.end))
        assert found == list(range(30))
    finally:
        await source.close()


async def test_what_was_named_and_is_gone_is_told(broker: Broker) -> None:
    topic = await broker.create_topic()
    await put(broker, topic, lines(rows(0, 3)))
    source = await opened(broker, topic)
    try:
        ahead = await next_ahead(source)
        beyond = Position(ahead.end.record + 5, offsets={key: each + 5 for key, each in ahead.end.offsets.items()})
        with pytest.raises(SourceError, match="does not hold the records"):
            await source.read_range(ahead.start, beyond)
    finally:
        await source.close()
