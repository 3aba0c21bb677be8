"""Events of Kafka that stay at home are read by executors; results are those of events that pass the gateway."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer

from tests.connectors.kafka_broker import Broker
from tests.e2e.harness import Gateway, rows_in, until

EVENTS, PARTITIONS = 6_000, 3
HALF = {
    "switching": {"share": "50%", "send_above": "1ms", "keep_vm_above": "1ms"},
    "policy": {"type": "static", "vms": 1},
}
REFERENCE = {"data_path": "reference"}
HOME = {"switching": {"mode": "off"}}


def is_no_event(number: int) -> bool:
    return number % 601 == 600


def fails(number: int) -> bool:
    return number % 701 == 700


def value(number: int) -> bytes:
    if is_no_event(number):
        return b"{no JSON"
    return json.dumps({"id": number, "text": "x" if fails(number) else str(number)}).encode()


def expected() -> list[dict[str, int]]:
    """The results, computed without Spark."""
    good = (number for number in range(EVENTS) if not is_no_event(number) and not fails(number))
    return [{"id": number, "next": number + 1} for number in good if number % 2 == 0]


async def produce(broker: Broker, topic: str, first: int, count: int) -> None:
    async with AIOKafkaProducer(bootstrap_servers=broker.brokers) as producer:
        for number in range(first, first + count):
            await producer.send(topic, value(number), partition=number % 7 % PARTITIONS)


def query_of(broker: Broker, topic: str, sink: Path, cloud: dict[str, Any]) -> dict[str, Any]:
    return {
        "source": {"type": "kafka", "brokers": broker.brokers, "topics": [topic]},
        "schema": "id BIGINT, text STRING",
        "sql": "SELECT id, CAST(text AS INT) + 1 AS next FROM events WHERE id % 2 = 0 OR text = 'x'",
        "runs": {"max_events": 200},
        "sink": {"type": "file", "path": str(sink)},
        "qos": {"latency": "2s"},
        **cloud,
    }


def assert_exact(gateway: Gateway, name: str, sink: Path) -> None:
    """Every result is there once, and every dead letter."""
    assert sorted(rows_in(sink), key=lambda row: row["id"]) == expected()
    letters = (gateway.state_dir / "queries" / name / "dead-letters.jsonl").read_text().splitlines()
    assert len(letters) == sum(is_no_event(number) or fails(number) for number in range(EVENTS))


@pytest.mark.parametrize(
    ("name", "cloud", "paths"),
    [
        ("referred", HOME, ("reference", "reference")),
        ("referred-half", HALF, ("reference", "reference")),
        ("referred-first", HOME, ("reference", "gateway")),
        ("referred-later", HOME, ("gateway", "reference")),
    ],
    ids=["home", "with a VM", "then by value", "by value before"],
)
def test_dirty_events_are_exact_although_the_gateway_is_killed(
    broker: Broker, state_dir: Path, tmp_path: Path, name: str, cloud: dict[str, Any], paths: tuple[str, str]
) -> None:
    topic, sink = asyncio.run(broker.create_topic(partitions=PARTITIONS)), tmp_path / "out"
    asyncio.run(produce(broker, topic, 0, EVENTS // 2))
    query = query_of(broker, topic, sink, cloud)
    gateway = Gateway(tmp_path, state_dir, {name: query}, private={"data_path": paths[0]})
    gateway.start()
    until(lambda: len(rows_in(sink)) > EVENTS // 8, "some results")
    gateway.kill()
    asyncio.run(produce(broker, topic, EVENTS // 2, EVENTS // 2))
    gateway = Gateway(tmp_path, state_dir, {name: query}, private={"data_path": paths[1]})
    gateway.start()
    until(lambda: len(rows_in(sink)) >= len(expected()), "all results")
    gateway.kill(signal.SIGTERM)
    assert gateway.wait() == 0, gateway.tail()
    assert_exact(gateway, name, sink)
    log = gateway.log.read_text()
    assert "executors read the events that stay at home" in log
    assert ("% to vm-" in log) is (cloud is HALF)


def test_dirty_events_are_exact_although_hosts_are_killed(broker: Broker, state_dir: Path, tmp_path: Path) -> None:
    topic, sink, name = asyncio.run(broker.create_topic(partitions=PARTITIONS)), tmp_path / "out", "referred-hosts"
    gateway = Gateway(tmp_path, state_dir, {name: query_of(broker, topic, sink, HALF)}, private=REFERENCE)
    gateway.start()
    killed, third = (lambda: gateway.vm_pids()[0], gateway.home_pid), EVENTS // 3
    for part, pid in enumerate(killed):
        asyncio.run(produce(broker, topic, part * third, third))
        until(lambda part=part: len(rows_in(sink)) > len(expected()) * (3 * part + 1) // 9, f"results of part {part}")  # type: ignore[misc]
        until(lambda: bool(gateway.vm_pids()), "a VM")
        os.kill(pid(), signal.SIGKILL)
    asyncio.run(produce(broker, topic, 2 * third, third))
    until(lambda: len(rows_in(sink)) >= len(expected()), "all results")
    gateway.kill(signal.SIGTERM)
    assert gateway.wait() == 0, gateway.tail()
    assert_exact(gateway, name, sink)
