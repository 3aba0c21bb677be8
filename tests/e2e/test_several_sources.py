"""Orders from Kafka meet payments from a file: joined with state, and side by side without; a kill in the middle."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import random
import signal
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer

from tests.connectors.kafka_broker import Broker
from tests.e2e.harness import EAGER, Gateway, until

EVENTS = 800
BEGIN = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
JOIN = """
    SELECT orders.id, payments.id AS payment, orders.amount - payments.amount AS missing
    FROM orders JOIN payments
      ON orders.customer = payments.customer AND payments.at BETWEEN orders.at AND orders.at + INTERVAL 20 SECONDS
    WHERE orders.amount > 1
"""
UNION = "SELECT concat('o', id) AS id, amount FROM orders UNION ALL SELECT id, amount FROM payments WHERE amount > 2"


def at(number: int) -> str:
    return (BEGIN + dt.timedelta(seconds=number / 10)).isoformat(timespec="milliseconds")


def orders() -> list[dict[str, Any]]:
    return [{"id": n, "customer": f"c{n % 17}", "amount": 1 + n % 5, "at": at(n)} for n in range(EVENTS)]


def payments() -> list[dict[str, Any]]:
    """In some disorder: up to 3 s late, and the watermark allows an hour."""
    drawn = random.Random(5)
    found = [
        {"id": f"p{n}", "customer": f"c{n * 7 % 19}", "amount": 1 + n % 4, "at": at(n - drawn.randint(0, 30))}
        for n in range(0, EVENTS, 2)
    ]
    return [
        *found[: len(found) // 2],
        {"id": "bad", "customer": "c1", "amount": "much", "at": at(0)},
        *found[len(found) // 2 :],
    ]


def joined() -> Counter[tuple[Any, ...]]:
    """What the join returns, computed by hand."""
    good = [each for each in payments() if each["id"] != "bad"]
    later = dt.timedelta(seconds=20)
    time = dt.datetime.fromisoformat
    return Counter(
        (order["id"], payment["id"], order["amount"] - payment["amount"])
        for order in orders()
        for payment in good
        if order["amount"] > 1 and order["customer"] == payment["customer"]
        if time(order["at"]) <= time(payment["at"]) <= time(order["at"]) + later
    )


def side_by_side() -> Counter[tuple[Any, ...]]:
    paid = [each for each in payments() if each["id"] != "bad" and each["amount"] > 2]
    return Counter(
        [*((f"o{each['id']}", each["amount"]) for each in orders()), *((p["id"], p["amount"]) for p in paid)]
    )


async def send(broker: Broker, topic: str, events: list[dict[str, Any]]) -> None:
    async with AIOKafkaProducer(bootstrap_servers=broker.brokers) as producer:
        sent = [await producer.send(topic, json.dumps(event).encode()) for event in events]
        await producer.send(topic, b"no order")
        await asyncio.gather(*sent)


def query(folder: Path, broker: Broker, topic: str, name: str, sql: str) -> dict[str, Any]:
    timed = {"event_time": {"column": "at", "lateness": "1h"}}
    return {
        "sources": {
            "orders": {
                "source": {"type": "kafka", "brokers": broker.brokers, "topics": [topic]},
                "schema": "id BIGINT, customer STRING, amount INT, at TIMESTAMP",
                **timed,
            },
            "payments": {
                "source": {"type": "file", "path": str(folder / "payments.jsonl")},
                "schema": "id STRING, customer STRING, amount INT, at TIMESTAMP",
                **timed,
            },
        },
        "sql": sql,
        "sink": {"type": "file", "path": str(folder / "out" / name)},
        "qos": {"latency": "1s"},
        "runs": {"max_events": 100},
        "switching": EAGER,
    }


def found(gateway: Gateway, name: str) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row.values()) for row in gateway.rows(name))


def has(gateway: Gateway, name: str, rows: int) -> bool:
    return sum(found(gateway, name).values()) >= rows


def test_events_of_two_sources_meet_exactly_once(
    tmp_path: Path, state_dir: Path, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "payments.jsonl").write_text("".join(json.dumps(event) + "\n" for event in payments()))
    topic = asyncio.run(broker.create_topic())
    asyncio.run(send(broker, topic, orders()[: EVENTS // 2]))
    queries = {
        "joined": query(tmp_path, broker, topic, "joined", JOIN),
        "together": query(tmp_path, broker, topic, "together", UNION),
    }
    gateway = Gateway(tmp_path, state_dir, queries)
    monkeypatch.setenv("SPILLWAY_FAILPOINTS", "source.acknowledge.after=kill@5")
    gateway.start()
    assert gateway.wait() == -signal.SIGKILL, gateway.tail()
    monkeypatch.delenv("SPILLWAY_FAILPOINTS")
    gateway.start()
    asyncio.run(send(broker, topic, orders()[EVENTS // 2 :]))
    wanted = {"joined": joined(), "together": side_by_side()}
    assert all(len(each) > 300 for each in wanted.values())
    for name, rows in wanted.items():
        until(partial(has, gateway, name, sum(rows.values())), f"{name} is complete")
    gateway.kill(signal.SIGTERM)
    assert gateway.wait() == 0, gateway.tail()
    for name, rows in wanted.items():
        assert found(gateway, name) == rows
        letters = (state_dir / "queries" / name / "dead-letters.jsonl").read_text().splitlines()
        stated = Counter((json.loads(letter)["stream"], json.loads(letter)["raw"][:8]) for letter in letters)
        assert stated == Counter({("orders", "no order"): 2, ("payments", '{"id": "'): 1})
