"""Several members of a group, and one member that dies and returns."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import NewPartitions

from gateway.connectors.position import Position
from gateway.sources.kafka.kafkasource import KafkaSource
from infra.rows.base import SourceUnavailableError
from tests.connectors.kafka_broker import Broker
from tests.connectors.kafka_sources import lines, make_source, put, reading
from tests.connectors.source_contract import DEADLINE_S, SCHEMA, read, rows


async def committed(broker: Broker, topic: str, partitions: int = 1) -> list[int | None]:
    """The offsets that the group with this topic's name has committed."""
    consumer = AIOKafkaConsumer(bootstrap_servers=broker.brokers, group_id=topic, enable_auto_commit=False)
    consumer.assign([TopicPartition(topic, number) for number in range(partitions)])
    await consumer.start()
    try:
        return [await consumer.committed(TopicPartition(topic, number)) for number in range(partitions)]
    finally:
        await consumer.stop()


async def test_two_members_share_everything_and_nothing_comes_twice(broker: Broker) -> None:
    topic = await broker.create_topic(partitions=4)
    await put(broker, topic, lines(rows(0, 199)))
    async with reading(make_source(broker, topic, owner="a")) as a:
        await a.until(lambda: len(a.numbers()) >= 40, "the first member has read something")
        async with reading(make_source(broker, topic, owner="b")) as b:
            await b.until(lambda: bool(b.source.backlog()), "the second member has partitions")
            await put(broker, topic, lines(rows(200, 399)))
            await b.until(lambda: len(a.numbers()) + len(b.numbers()) >= 400, "all is read")
            assert sorted(a.numbers() + b.numbers()) == list(range(400))
            assert len(b.numbers()) >= 100
            for each in (a, b):
                for first in range(4):
                    of_partition = [n for n in each.numbers() if n % 4 == first]
                    assert of_partition == sorted(of_partition)


async def test_a_partition_is_handed_over_when_what_was_read_of_it_is_in_the_sink(broker: Broker) -> None:
    topic = await broker.create_topic(partitions=2)
    await put(broker, topic, lines(rows(0, 19)))
    async with reading(make_source(broker, topic, owner="a"), acknowledges=False) as a:
        await a.until(lambda: len(a.numbers()) == 20, "all is read, and nothing acknowledged")
        async with reading(make_source(broker, topic, owner="b")) as b:
            await a.until(lambda: a.source.backlog() is None, "the partitions are asked back")
            await put(broker, topic, lines(rows(20, 39)))
            assert b.numbers() == []
            a.acknowledges = True
            await a.source.acknowledge(a.chunks[-1].end)
            await b.until(lambda: len(a.numbers()) + len(b.numbers()) >= 40, "the rest is read")
            assert sorted(a.numbers() + b.numbers()) == list(range(40))
            assert len(b.numbers()) == 10


async def test_lent_partitions_are_handed_over_only_once_they_are_taken_back(broker: Broker) -> None:
    topic = await broker.create_topic(partitions=2)
    await put(broker, topic, lines(rows(0, 19)))
    async with reading(make_source(broker, topic, owner="a")) as a:
        await a.until(lambda: len(a.numbers()) == 20, "all is read and acknowledged")
        places = a.source.places()
        assert places == {f"{topic}/0": 10, f"{topic}/1": 10}
        assert a.source.lend(places) == places
        assert not a.source.wanted_back
        async with reading(make_source(broker, topic, owner="b")) as b:
            await a.until(lambda: a.source.wanted_back, "the group wants some back")
            await put(broker, topic, lines(rows(20, 39)))
            assert b.source.places() == {}
            assert b.numbers() == []
            a.source.take_back(places)
            await b.until(lambda: len(a.numbers()) + len(b.numbers()) >= 40, "the rest is read")
            assert sorted(a.numbers() + b.numbers()) == list(range(40))


async def test_a_lent_partition_is_not_read_until_it_is_taken_back_where_it_was_left(broker: Broker) -> None:
    topic = await broker.create_topic(partitions=2)
    zero, one = f"{topic}/0", f"{topic}/1"
    await put(broker, topic, lines(rows(0, 19)))
    async with reading(make_source(broker, topic, owner="a")) as a:
        await a.until(lambda: len(a.numbers()) == 20, "all is read and acknowledged")
        assert a.source.lend([one]) == {one: 10}
        assert a.source.places() == {zero: 10}
        with pytest.raises(SourceUnavailableError, match=one):
            a.source.lend([one])
        await put(broker, topic, lines(rows(20, 59)))
        await a.until(lambda: len(a.numbers()) == 40, "the other partition is read")
        await a.until(lambda: a.source.settled([zero]), "and acknowledged")
        assert await a.source.lent_ends() == {one: 30}
        assert a.source.places() == {zero: 30}
        # Somebody else has delivered ten of the twenty.
        a.source.take_back({one: 20})
        await a.until(lambda: len(a.numbers()) == 50, "the rest is read")
        assert a.source.places() == {zero: 30, one: 30}
        assert await a.source.lent_ends() == {}
        ends = {place: offset for chunk in a.chunks for place, offset in chunk.end.offsets.items()}
        assert ends == {zero: 30, one: 30}


async def test_a_close_commits_what_is_acknowledged_and_not_more(broker: Broker) -> None:
    topic = await broker.create_topic()
    await put(broker, topic, lines(rows(0, 19)))
    source = make_source(broker, topic)
    await source.open(SCHEMA)
    chunks = await read(source, 20, max_records=5)
    await source.acknowledge(chunks[1].end)
    await source.close()
    assert await committed(broker, topic) == [10]


async def test_killed_it_has_its_partitions_and_its_chunks_again_within_seconds(broker: Broker, tmp_path: Path) -> None:
    topic = await broker.create_topic(partitions=3)
    await put(broker, topic, lines(rows(0, 299)))
    log = tmp_path / "positions"
    program = Path(__file__).parent / "kafka_reader.py"
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(program), broker.brokers, topic, str(log), cwd=Path(__file__).parents[2]
    )
    ends = time.monotonic() + DEADLINE_S
    while not log.exists() or log.read_bytes().count(b"\n") < 12:
        assert process.returncode is None, "the reader ended by itself"
        assert time.monotonic() < ends, "the reader read nothing"
        await asyncio.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    await process.wait()
    whole = log.read_bytes().split(b"\n")[:-1]
    chunks = [json.loads(line) for line in whole]
    began_s = time.monotonic()
    source = make_source(broker, topic)
    await source.open(SCHEMA)
    found: list[int] = []
    position = Position()
    for said in chunks:
        start, position = (msgspec.convert(said[name], Position) for name in ("start", "end"))
        repeated = await source.read_between(start, position)
        assert repeated.batch.column("n").to_pylist() == said["n"]
        found += said["n"]
    await source.seek(position)
    rest = await read(source, 1, max_records=10)
    took_s = time.monotonic() - began_s
    rest += await read(source, 300 - len(found) - rest[0].batch.num_rows, max_records=10)
    found += [n for chunk in rest for n in chunk.batch.column("n").to_pylist()]
    assert sorted(found) == list(range(300))
    assert took_s < 38, "the session of a dead member takes 45 s to end: the place was not taken by name"
    await source.close()


async def test_latest_begins_at_the_end_even_if_nothing_was_read_before_a_crash(broker: Broker) -> None:
    topic = await broker.create_topic(partitions=2)
    await put(broker, topic, lines(rows(0, 9)))
    source = make_source(broker, topic, start="latest")
    await source.open(SCHEMA)
    assert await source.read(10, 1 << 20) is None
    await source.close()
    assert await committed(broker, topic, 2) == [5, 5]
    await put(broker, topic, lines(rows(10, 19)))
    again = make_source(broker, topic, start="latest")
    await again.open(SCHEMA)
    assert sorted(n for chunk in await read(again, 10) for n in chunk.batch.column("n").to_pylist()) == [*range(10, 20)]
    await again.close()


async def joined_again(broker: Broker, topic: str) -> KafkaSource:
    """A source that has replaced an earlier one in the group; that one began at the end of the topic."""
    source = make_source(broker, topic, start="latest")
    await source.open(SCHEMA)
    assert await source.read(10, 1 << 20) is None
    await put(broker, topic, lines(rows(0, 0)))
    await read(source, 1)
    await source.close()
    again = make_source(broker, topic, start="latest")
    await again.open(SCHEMA)
    await again.acknowledge((await read(again, 1))[-1].end)
    return again


class Watchful(AIOKafkaConsumer):  # type: ignore[misc]  # aiokafka has no types
    """Looks for new partitions several times a second; other sources do so once a minute."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **{**named, "metadata_max_age_ms": 200})


async def test_partitions_that_a_topic_gets_later_are_read_from_their_beginning(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.sources.kafka.member.AIOKafkaConsumer", Watchful)
    topic = await broker.create_topic()
    source = await joined_again(broker, topic)
    async with broker.admin() as admin:
        await admin.create_partitions({topic: NewPartitions(3)})
    await put(broker, topic, lines(rows(1, 3)), partition=2)
    found = [n for chunk in await read(source, 3) for n in chunk.batch.column("n").to_pylist()]
    assert found == [1, 2, 3]
    await source.close()


async def test_what_was_acknowledged_before_it_joined_is_committed_with_the_next(broker: Broker) -> None:
    topic = await broker.create_topic()
    await put(broker, topic, lines(rows(0, 19)))
    source = make_source(broker, topic)
    await source.open(SCHEMA)
    chunks = await read(source, 10)
    await source.close()
    again = make_source(broker, topic)
    await again.open(SCHEMA)
    await again.seek(chunks[-1].end)
    await again.acknowledge(chunks[-1].end)
    await read(again, 10)
    await again.close()
    assert await committed(broker, topic) == [10]
