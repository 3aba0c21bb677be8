"""A sample of topics, from a real broker: nobody may notice that it was read."""

from __future__ import annotations

import pyarrow as pa
import pytest
from aiokafka import TopicPartition
from aiokafka.errors import KafkaError
from hypothesis import given
from hypothesis import strategies as st

from gateway.config.connectors.kafka import KafkaSourceConfig
from gateway.sources.kafka.sampled import sample_topics, shares
from infra.rows.base import SourceError, SourceUnavailableError
from tests.connectors.kafka_broker import Broker
from tests.connectors.kafka_topics import sent
from tests.connectors.ports import free_port

SCHEMA = pa.schema([("n", pa.int64()), ("_partition", pa.int32())])
MOST_BYTES = 1 << 20


def config(brokers: str, topic: str, **said: object) -> KafkaSourceConfig:
    return KafkaSourceConfig.model_validate({"type": "kafka", "brokers": brokers, "topics": [topic], **said})


async def test_the_first_or_the_last_records_are_read_and_no_group_appears(broker: Broker) -> None:
    topic = await broker.create_topic(partitions=3)
    await sent(broker, topic, *((0, b'{"n": %d}' % n) for n in range(7)), (2, b"no JSON"), (2, b'{"n": 9}'))
    async with broker.admin() as admin:
        before = await admin.list_consumer_groups()
        first = await sample_topics(config(broker.brokers, topic), SCHEMA, 6, MOST_BYTES, strict=False)
        last = await sample_topics(config(broker.brokers, topic, start="latest"), SCHEMA, 6, MOST_BYTES, strict=False)
        assert await admin.list_consumer_groups() == before
    assert [tuple(row.values()) for row in first.batch.to_pylist()] == [(0, 0), (1, 0), (2, 0), (3, 0), (9, 2)]
    assert [(each.raw, each.record) for each in first.dead] == [(b"no JSON", 4)]
    assert first.more
    assert last.batch.column("n").to_pylist() == [3, 4, 5, 6, 9]
    whole = await sample_topics(config(broker.brokers, topic), SCHEMA, 9, MOST_BYTES, strict=False)
    assert (whole.batch.num_rows, whole.more) == (8, False)


async def test_no_more_is_read_once_there_are_enough_bytes(broker: Broker) -> None:
    topic = await broker.create_topic()
    await sent(broker, topic, *((0, b'{"n": %d}' % n) for n in range(120)))
    few = await sample_topics(config(broker.brokers, topic), SCHEMA, 1000, 1, strict=False)
    assert few.batch.column("n").to_pylist() == list(range(100))
    assert few.more


async def test_a_topic_that_does_not_exist_is_not_created(broker: Broker) -> None:
    with pytest.raises(SourceError, match='there is no topic "nowhere"'):
        await sample_topics(config(broker.brokers, "nowhere"), SCHEMA, 5, MOST_BYTES, strict=False)
    async with broker.admin() as admin:
        assert "nowhere" not in await admin.list_topics()


async def test_an_empty_topic_has_no_records(broker: Broker) -> None:
    topic = await broker.create_topic()
    chunk = await sample_topics(config(broker.brokers, topic), SCHEMA, 5, MOST_BYTES, strict=False)
    assert (chunk.batch.num_rows, chunk.more) == (0, False)


async def test_brokers_that_are_away_are_named() -> None:
    away = f"127.0.0.1:{free_port()}"
    with pytest.raises(SourceUnavailableError, match=f"reading from {away}") as raised:
        await sample_topics(config(away, "t"), SCHEMA, 5, MOST_BYTES, strict=False)
    assert isinstance(raised.value.__cause__, KafkaError)


@given(st.lists(st.integers(0, 50), min_size=1, max_size=6), st.integers(1, 100))
def test_shares_take_as_much_as_there_is_and_are_even(there: list[int], most: int) -> None:
    taken = shares({TopicPartition("t", at): count for at, count in enumerate(there)}, most)
    counts = [taken[TopicPartition("t", at)] for at in range(len(there))]
    assert sum(counts) == min(most, sum(there))
    assert all(count <= has for count, has in zip(counts, there, strict=True))
    cut = [count for count, has in zip(counts, there, strict=True) if count < has]
    assert not cut or max(counts) - min(cut) <= 1
