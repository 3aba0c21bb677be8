"""A query that Spark carries from Kafka to Kafka by itself, and what must come out."""

from __future__ import annotations

import asyncio
import json
import os
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import Any
from unittest.mock import patch

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from gateway.demo.kafka.turns import carried_by_spark, turns_in
from infra.messages import NAME_HEADERS
from tests.connectors.kafka_broker import Broker
from tests.e2e.harness import Gateway, end_hosts, kill_gateways, until

PARTITIONS = 2
SQL = "SELECT id, value * 2 AS twice, note FROM events WHERE id % 3 <> 0"
JARS = Path(__file__).parents[2] / "build" / "spark-kafka" / "jars"
SPARK = {"master": "local[3]", "conf": {"spark.jars": ",".join(map(str, sorted(JARS.glob("*.jar"))))}}


def event(number: int) -> bytes:
    return json.dumps({"id": number, "value": number / 4, "note": f"n{number}"}).encode()


def expected(numbers: range) -> list[dict[str, Any]]:
    """The results, computed without Spark."""
    return [{"id": n, "twice": n / 2, "note": f"n{n}"} for n in numbers if n % 3]


class Site:
    """A topic of events and one of results, and gateways over them.

    Args:
        broker: of the topics.
        folder: for all files.
        hosts: the state_dir of several sites, one after the other, so that Spark at home is started once.
        name: of the query, among those of these sites.
    """

    def __init__(self, broker: Broker, folder: Path, hosts: Path | None = None, name: str = "carried") -> None:
        self.broker, self.folder, self.state_dir, self.name = broker, folder, hosts or folder / "state", name
        self.state_dir.mkdir(exist_ok=True)
        self.events = asyncio.run(broker.create_topic(partitions=PARTITIONS))
        self.results = asyncio.run(broker.create_topic())
        self.gateway: Gateway

    def start(self, failpoints: str = "", **more: Any) -> None:
        """Start a gateway; ``more`` is of its query, ``failpoints`` as in ``SPILLWAY_FAILPOINTS``."""
        self.gateway = self.configure(**more)
        self._turns_before = len(turns_in(self.gateway.log)) if self.gateway.log.exists() else 0
        with patch.dict(os.environ, {"SPILLWAY_FAILPOINTS": failpoints}):
            self.gateway.start()

    def configure(self, **more: Any) -> Gateway:
        """Write the config, and return a gateway over it that is not started."""
        query = {
            "source": {"type": "kafka", "brokers": self.broker.brokers, "topics": [self.events]},
            "schema": "id BIGINT, value DOUBLE, note STRING",
            "sql": SQL,
            "runs": {"max_events": 200},
            "sink": {"type": "kafka", "brokers": self.broker.brokers, "topic": self.results},
            "qos": {"latency": "60s"},
            "switching": {"mode": "off"},
            **more,
        }
        private = {"data_path": "direct"}
        return Gateway(self.folder, self.state_dir, {self.name: query}, spark=SPARK, private=private)

    @property
    def letters(self) -> Path:
        """The file of dead letters."""
        return self.state_dir / "queries" / self.name / "dead-letters.jsonl"

    def close(self) -> None:
        """End all of it."""
        kill_gateways()
        end_hosts(self.state_dir)

    def produce(self, numbers: range, *others: bytes) -> None:
        """Send events, and records that are none."""

        async def send() -> None:
            async with AIOKafkaProducer(bootstrap_servers=self.broker.brokers) as producer:
                for number in numbers:
                    await producer.send(self.events, event(number), partition=number % PARTITIONS)
                for other in others:
                    await producer.send(self.events, other, partition=0)

        asyncio.run(send())

    def records(self) -> list[tuple[dict[str, Any], dict[str, str]]]:
        """Return the results so far, with their headers."""

        async def read() -> list[tuple[dict[str, Any], dict[str, str]]]:
            consumer = AIOKafkaConsumer(bootstrap_servers=self.broker.brokers, isolation_level="read_committed")
            await consumer.start()
            try:
                partition = TopicPartition(self.results, 0)
                consumer.assign([partition])
                await consumer.seek_to_beginning()
                end = (await consumer.end_offsets([partition]))[partition]
                found = []
                while await consumer.position(partition) < end:
                    for records in (await consumer.getmany(timeout_ms=200)).values():
                        found += [
                            (json.loads(each.value), {key: value.decode() for key, value in each.headers})
                            for each in records
                        ]
                return found
            finally:
                await consumer.stop()

        return asyncio.run(read())

    def wait_for(self, count: int) -> None:
        """Wait for so many results."""
        until(lambda: len(self.records()) >= count, f"{count} results")

    def said(self, text: str) -> bool:
        """Return whether the gateways have logged this."""
        return text in self.gateway.log.read_text()

    def carried(self) -> set[int]:
        """Return which partitions Spark carries, as the present gateway has logged it."""
        places = carried_by_spark(turns_in(self.gateway.log)[self._turns_before :])
        return {int(place.rpartition("/")[2]) for place in places}

    def wait_until_carried(self, partitions: Collection[int] = range(PARTITIONS)) -> None:
        """Wait until Spark carries these partitions."""
        until(lambda: self.carried() >= set(partitions), f"Spark carries partitions {partitions}")

    def assert_exact(self, numbers: range, *, once: bool = True) -> None:
        """Check the results; without ``once`` those count once that name the same event."""
        records = self.records()
        names = [tuple(headers[each] for each in NAME_HEADERS) for _, headers in records]
        if once:
            repeated = [name for name, count in Counter(names).items() if count > 1]
            assert not repeated, f"{len(repeated)} come twice, the first ones {repeated[:5]}"
        found = {name: row for name, (row, _) in zip(names, records, strict=True)}
        assert sorted(found.values(), key=lambda row: row["id"]) == expected(numbers)
        for partition in range(PARTITIONS):
            offsets = [int(offset) for _, number, offset in dict.fromkeys(names) if int(number) == partition]
            assert offsets == sorted(offsets), "in order within each partition"
