"""``python -m suite.whole.copying BROKERS EVENTS RESULTS``: copy a Kafka topic with aiokafka, at least once."""

from __future__ import annotations

import asyncio
import sys

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer


async def main(brokers: str, events: str, results: str) -> None:
    """Copy until terminated: records are acknowledged by the broker before their offsets are committed."""
    consumer = AIOKafkaConsumer(
        events, bootstrap_servers=brokers, group_id=events, enable_auto_commit=False, auto_offset_reset="earliest"
    )
    producer = AIOKafkaProducer(bootstrap_servers=brokers, acks="all", linger_ms=5, max_batch_size=256 * 1024)
    async with consumer, producer:
        while True:
            sent = []
            for records in (await consumer.getmany(timeout_ms=100, max_records=20_000)).values():
                sent += [await producer.send(results, record.value, key=record.key) for record in records]
            if sent:
                await asyncio.gather(*sent)
                await consumer.commit()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
