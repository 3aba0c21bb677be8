"""Topics that are created, deleted, and created again."""

from __future__ import annotations

import asyncio
import time

from aiokafka import AIOKafkaProducer

from gateway.config.connectors.kafka import KafkaSourceConfig
from gateway.connectors.kafkaclients import client_settings
from gateway.sources.kafka.topicids import topics_of
from infra.rows.base import SourceError
from tests.connectors.kafka_broker import Broker
from tests.connectors.source_contract import DEADLINE_S


def config(broker: Broker, *topics: str) -> KafkaSourceConfig:
    return KafkaSourceConfig.model_validate({"type": "kafka", "brokers": broker.brokers, "topics": topics})


async def until_there(broker: Broker, topic: str, *, there: bool) -> None:
    """Wait until the broker confirms it."""
    gives_up_s = time.monotonic() + DEADLINE_S
    while there != await is_there(broker, topic):
        assert time.monotonic() < gives_up_s
        await asyncio.sleep(0.05)


async def is_there(broker: Broker, topic: str) -> bool:
    try:
        return bool(await topics_of(client_settings(config(broker, topic)), [topic]))
    except SourceError:
        return False


async def made(broker: Broker, name: str | None = None) -> str:
    """Create a topic, and return its name once all brokers know it."""
    topic = await broker.create_topic(name)
    await until_there(broker, topic, there=True)
    return topic


async def made_anew(broker: Broker, topic: str) -> None:
    """Delete a topic, and create it again once it is gone."""
    async with broker.admin() as admin:
        await admin.delete_topics([topic])
    await until_there(broker, topic, there=False)
    await made(broker, topic)


async def sent(broker: Broker, topic: str, *values: tuple[int, bytes]) -> None:
    """Send records, each with its partition, and wait for the broker."""
    producer = AIOKafkaProducer(bootstrap_servers=broker.brokers)
    await producer.start()
    try:
        for partition, value in values:
            await producer.send_and_wait(topic, value, partition=partition)
    finally:
        await producer.stop()
