"""Brokers that become unavailable, records that were deleted, and bytes that are not a record."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest
from aiokafka import TopicPartition
from aiokafka.admin import RecordsToDelete

from gateway.connectors.position import Position
from gateway.sources.base import Chunk
from gateway.sources.kafka.kafkasource import KafkaSource
from infra.rows.base import SourceError, SourceUnavailableError
from tests.connectors.kafka_broker import Broker
from tests.connectors.kafka_sources import lines, make_source, producer, put, reading
from tests.connectors.source_contract import DEADLINE_S, HUGE, SCHEMA, events, read, rows


async def refused(source: KafkaSource, action: Callable[[], Awaitable[object]]) -> str:
    """The source's error about its topic when it reads; errors about the broker do not count."""
    ends = time.monotonic() + DEADLINE_S
    while time.monotonic() < ends:
        try:
            await action()
        except SourceUnavailableError:
            continue
        except SourceError as error:
            return str(error)
    raise AssertionError(f"not refused within {DEADLINE_S:g} s")


@pytest.mark.parametrize("end", [Broker.stop, Broker.kill])
async def test_a_broker_that_restarts_in_the_middle(broker: Broker, end: Callable[[Broker], None]) -> None:
    topic = await broker.create_topic(partitions=2)
    await put(broker, topic, lines(rows(0, 99)))
    async with reading(make_source(broker, topic)) as one:
        await one.until(lambda: len(one.numbers()) >= 50, "half is read")
        await asyncio.to_thread(end, broker)
        try:
            await one.until(lambda: one.outages > 0, "the outage is seen")
        finally:
            await asyncio.to_thread(broker.start)
        await put(broker, topic, lines(rows(100, 199)))
        await one.until(lambda: len(one.numbers()) >= 200, "all is read")
        assert sorted(one.numbers()) == list(range(200))


async def test_without_a_broker_it_is_opened_and_says_so_when_it_is_read(broker: Broker) -> None:
    topic = await broker.create_topic()
    await put(broker, topic, lines(rows(0, 9)))
    source = make_source(broker, topic)
    await asyncio.to_thread(broker.stop)
    try:
        await source.open(SCHEMA)
        with pytest.raises(SourceUnavailableError, match=broker.brokers):
            await source.read(10, HUGE)
        with pytest.raises(SourceUnavailableError, match=broker.brokers):
            await source.read_between(Position(0, offsets={f"{topic}/0": 0}), Position(5, offsets={f"{topic}/0": 5}))
        await source.acknowledge(Position())
    finally:
        await asyncio.to_thread(broker.start)
    assert events(await read_through(source, 10)) == rows(0, 9)
    await source.close()


async def read_through(source: KafkaSource, count: int) -> list[Chunk]:
    """Read while a broker starts."""
    while True:
        try:
            return await read(source, count)
        except SourceUnavailableError:
            await asyncio.sleep(0.1)


async def test_a_topic_that_is_not_there(broker: Broker) -> None:
    source = make_source(broker, "nobody-made-this")
    await source.open(SCHEMA)
    with pytest.raises(SourceError, match='no topic "nobody-made-this"'):
        await source.read(10, HUGE)
    await source.close()


async def delete_before(broker: Broker, topic: str, offset: int) -> None:
    """Make the retention delete the records of partition 0 before an offset."""
    async with broker.admin() as admin:
        await admin.delete_records({TopicPartition(topic, 0): RecordsToDelete(before_offset=offset)})


async def test_records_that_retention_took_are_told_with_their_place(broker: Broker) -> None:
    topic = await broker.create_topic()
    await put(broker, topic, lines(rows(0, 99)))
    source = make_source(broker, topic)
    await source.open(SCHEMA)
    chunks = await read(source, 30, max_records=10)
    await delete_before(broker, topic, 50)
    said = await refused(source, lambda: source.read_between(chunks[1].start, chunks[1].end))
    assert f"{topic}/0@10" in said
    assert "retention" in said
    await source.close()
    again = make_source(broker, topic)
    await again.open(SCHEMA)
    await again.seek(chunks[-1].end)
    assert f"{topic}/0@30" in await refused(again, lambda: again.read(10, HUGE))
    await again.close()


async def test_a_topic_that_was_made_anew_is_not_taken_for_the_old_one(broker: Broker) -> None:
    topic = await broker.create_topic()
    await put(broker, topic, lines(rows(0, 99)))
    source = make_source(broker, topic)
    await source.open(SCHEMA)
    chunks = await read(source, 100)
    await source.close()
    async with broker.admin() as admin:
        await admin.delete_topics([topic])
    await created_again(broker, topic)
    await put(broker, topic, lines(rows(0, 9)))
    again = make_source(broker, topic)
    await again.open(SCHEMA)
    assert "created again" in await refused(again, lambda: again.read_between(chunks[0].start, chunks[0].end))
    await again.seek(chunks[-1].end)
    assert "created again" in await refused(again, lambda: again.read(10, HUGE))
    await again.close()


async def created_again(broker: Broker, topic: str) -> None:
    """Create a topic; the deletion of the earlier one may not have finished yet."""
    ends = time.monotonic() + DEADLINE_S
    while True:
        try:
            await broker.create_topic(topic)
        except AssertionError:
            assert time.monotonic() < ends, "the topic is still there"
        else:
            return


async def test_only_what_was_committed_is_read_and_gaps_are_no_records(broker: Broker) -> None:
    topic = await broker.create_topic()
    async with producer(broker, transactional_id=topic) as client:
        for number in range(30):
            await client.begin_transaction()
            await client.send_and_wait(topic, lines(rows(number, number))[0])
            if number % 3 == 0:
                await client.abort_transaction()
            else:
                await client.commit_transaction()
    wanted = [n for n in range(30) if n % 3]
    source = make_source(broker, topic)
    await source.open(SCHEMA)
    chunks = await read(source, 20, max_records=3)
    assert [row["n"] for row in events(chunks)] == wanted
    assert await source.read(10, HUGE) is None
    backlog = source.backlog()
    assert backlog is not None
    assert backlog.records == 0
    for chunk in chunks:
        assert (await source.read_between(chunk.start, chunk.end)).batch.equals(chunk.batch)
    await source.close()


async def test_an_open_transaction_holds_back_what_comes_after_it(broker: Broker) -> None:
    topic = await broker.create_topic()
    source = make_source(broker, topic)
    await source.open(SCHEMA)
    async with producer(broker, transactional_id=topic) as client:
        await client.begin_transaction()
        await client.send_and_wait(topic, lines(rows(0, 0))[0])
        await put(broker, topic, lines(rows(1, 1)))
        for _ in range(20):
            assert await source.read(10, HUGE) is None
        await client.commit_transaction()
    assert events(await read(source, 2)) == rows(0, 1)
    await source.close()


async def test_compaction_of_what_was_read_is_told(broker: Broker) -> None:
    settings = {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.001"}
    topic = await broker.create_topic(settings=settings)
    async with producer(broker) as client:
        for n in range(20):
            await client.send_and_wait(topic, lines(rows(n, n))[0], key=b"the same")
    source = make_source(broker, topic)
    await source.open(SCHEMA)
    chunks = await read(source, 20)

    async def write_and_read_again() -> None:
        async with producer(broker) as client:
            await client.send_and_wait(topic, lines(rows(99, 99))[0], key=b"the same")
        await source.read_between(chunks[0].start, chunks[0].end)

    said = await refused(source, write_and_read_again)
    assert "compacted" in said
    await source.close()
