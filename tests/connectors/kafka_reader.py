"""A program that reads a topic until it is killed, and records each chunk."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import msgspec

from gateway.config.connectors.kafka import KafkaSourceConfig
from gateway.sources.kafka.kafkasource import KafkaSource
from infra.clock import SystemClock
from tests.connectors.source_contract import SCHEMA


async def main(brokers: str, topic: str, log: Path) -> None:
    """Read with the same owner as in the tests."""
    config = KafkaSourceConfig(type="kafka", brokers=brokers, topics=(topic,), group=topic)
    source = KafkaSource(config, query="q", owner="me", clock=SystemClock())
    await source.open(SCHEMA)
    with log.open("a") as file:
        while True:
            chunk = await source.read(10, 1 << 20)
            if chunk is not None:
                said = {
                    "start": msgspec.to_builtins(chunk.start),
                    "end": msgspec.to_builtins(chunk.end),
                    "n": chunk.batch.column("n").to_pylist(),
                }
                file.write(json.dumps(said) + "\n")
                file.flush()
                await source.acknowledge(chunk.start)


asyncio.run(main(sys.argv[1], sys.argv[2], Path(sys.argv[3])))
