"""The broker that other tests use."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from tests.connectors import kafka_broker
from tests.connectors.kafka_broker import Broker


async def read(broker: Broker, topic: str, count: int) -> list[bytes | None]:
    consumer = AIOKafkaConsumer(topic, bootstrap_servers=broker.brokers, auto_offset_reset="earliest")
    await consumer.start()
    try:
        return [(await asyncio.wait_for(consumer.getone(), 60)).value for _ in range(count)]
    finally:
        await consumer.stop()


@pytest.mark.parametrize("end", [Broker.stop, Broker.kill])
async def test_it_has_its_records_and_its_ports_after_a_restart(broker: Broker, end: object) -> None:
    topic = await broker.create_topic(partitions=1)
    producer = AIOKafkaProducer(bootstrap_servers=broker.brokers, transactional_id=topic)
    await producer.start()
    async with producer.transaction():
        for n in range(3):
            await producer.send_and_wait(topic, b"%d" % n)
    await producer.stop()
    before = broker.brokers
    assert callable(end)
    await asyncio.to_thread(end, broker)
    await asyncio.to_thread(broker.restart)
    assert broker.brokers == before
    assert await read(broker, topic, 3) == [b"0", b"1", b"2"]


def test_without_jars_it_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_broker, "JARS", tmp_path)
    with pytest.raises(AssertionError, match=r"run \.ci/broker"):
        Broker(tmp_path / "broker")


def test_without_java_it_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(AssertionError, match="needs Java 17"):
        Broker(tmp_path / "broker")
