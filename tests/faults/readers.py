"""Independent readers of the results: they know nothing of the gateway."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition


def topic_rows(brokers: str, topic: str) -> list[dict[str, Any]]:
    """Read what transactions have committed to a topic of one partition, in its order."""
    return asyncio.run(_topic_rows(brokers, topic))


async def _topic_rows(brokers: str, topic: str) -> list[dict[str, Any]]:
    consumer = AIOKafkaConsumer(bootstrap_servers=brokers, isolation_level="read_committed", enable_auto_commit=False)
    await consumer.start()
    rows: list[dict[str, Any]] = []
    try:
        place = TopicPartition(topic, 0)
        consumer.assign([place])
        await consumer.seek_to_beginning(place)
        # With read_committed the end is that of the last transaction that is settled.
        end = (await consumer.end_offsets([place]))[place]
        while await consumer.position(place) < end:
            for records in (await consumer.getmany(timeout_ms=1000)).values():
                rows += [json.loads(record.value or b"") for record in records]
    finally:
        await consumer.stop()
    return rows
