"""The compose file's services run as processes: events go in as users send them, and all results come out."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiomqtt
import boto3
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from tests.docker.docker_processes import DEADLINE_S, Stack
from tests.docker.monitoring import Prometheus, dashboard_expressions
from tests.e2e.harness import end_hosts

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1500)]

ORDERS: list[dict[str, Any]] = [{"order_id": n, "customer": f"c{n % 5}", "amount": 12.5 * n} for n in range(40)]
READINGS = [{"reading": n, "celsius": 60.0 + n} for n in range(40)]


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[Stack]:
    if not sys.platform.startswith("linux"):
        assert os.environ.get("CI") != "true", "CI must run the services of the compose file"
        pytest.skip("not run: only Linux gives each service an address of its own on loopback")
    try:
        with Stack(tmp_path) as stack:
            yield stack
    finally:
        # Engine hosts outlive a gateway that was killed because the test failed.
        end_hosts(stack.volume("state"))


async def send(stack: Stack) -> None:
    """Send all events, with separate clients."""
    async with AIOKafkaProducer(bootstrap_servers=f"{stack.addresses['kafka']}:9092") as producer:
        for order in ORDERS:
            await producer.send("orders", json.dumps(order).encode())
    async with aiomqtt.Client(stack.addresses["mosquitto"]) as client:
        for reading in READINGS:
            await client.publish(f"plant/{reading['reading']}/temperature", json.dumps(reading), qos=1)


async def committed(stack: Stack, count: int) -> list[tuple[str, dict[str, Any]]]:
    """Return key and value of the results in the topic once there are this many."""
    consumer = AIOKafkaConsumer(
        "large-orders",
        bootstrap_servers=f"{stack.addresses['kafka']}:9092",
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    )
    found: list[tuple[str, dict[str, Any]]] = []
    async with consumer, asyncio.timeout(DEADLINE_S):
        while len(found) < count:
            batches = await consumer.getmany(timeout_ms=1000)
            found += [(r.key.decode(), json.loads(r.value)) for batch in batches.values() for r in batch]
    return found


def stored(stack: Stack) -> list[dict[str, Any]]:
    """Return the rows in the bucket: those of the parts that the latest manifest names."""
    told = stack.environment("gateway")
    store = boto3.client(
        "s3",
        endpoint_url=told["S3_ENDPOINT"],
        region_name="us-east-1",
        aws_access_key_id="any",
        aws_secret_access_key="any",
    )

    def load(key: str) -> bytes:
        body: bytes = store.get_object(Bucket=told["BUCKET"], Key=key)["Body"].read()
        return body

    listed = store.list_objects_v2(Bucket=told["BUCKET"], Prefix="hot/manifest/").get("Contents", [])
    manifest = json.loads(load(max(each["Key"] for each in listed)))
    assert not manifest["page"]
    return [json.loads(line) for part in manifest["parts"] for line in load(f"hot/parts/{part}").splitlines()]


async def prometheus_knows(stack: Stack, events: int) -> None:
    """Wait until Prometheus has these events and has evaluated all alerts; it accepts what the dashboard asks."""
    server = Prometheus(f"{stack.addresses['prometheus']}:9090")
    ends = time.monotonic() + DEADLINE_S
    scraped, health = -1, set[str]()
    while (scraped, health) != (events, {"ok"}):
        assert time.monotonic() < ends, (scraped, await asyncio.to_thread(server.rules), stack.log("prometheus"))
        await asyncio.sleep(0.5)
        found = await asyncio.to_thread(server.series, "sum(spillway_query_events_total)")
        scraped = int(found[0]["value"][1]) if found else -1
        health = set((await asyncio.to_thread(server.rules)).values())
    (gateway,) = await asyncio.to_thread(server.series, 'up{job="spillway"}')
    assert gateway["value"][1] == "1"
    for expression in dashboard_expressions():
        await asyncio.to_thread(server.series, expression)


async def test_what_is_sent_comes_out_and_the_gateway_ends_in_order(stack: Stack) -> None:
    *others, last, prometheus, grafana = stack.order
    # The last one is a third-party program that is not on this machine.
    assert (last, prometheus, grafana) == ("gateway", "prometheus", "grafana")
    for name in others:
        stack.start(name)
    assert stack.processes["prepare"].wait(DEADLINE_S) == 0, stack.log("prepare")
    stack.start("prepare")  # there is no harm in doing it again
    stack.start("gateway")
    assert not stack.is_healthy("gateway")
    await asyncio.to_thread(stack.start, "prometheus")  # when the gateway is healthy

    await send(stack)
    orders = [order for order in ORDERS if order["amount"] > 100]
    results = await committed(stack, len(orders))
    expected = [
        (o["customer"], {k: o[k] for k in ("order_id", "customer")} | {"gross": o["amount"] * 1.19}) for o in orders
    ]
    assert sorted(results, key=lambda each: each[1]["order_id"]) == expected

    hot = [r for r in READINGS if r["celsius"] > 80]
    ends = time.monotonic() + DEADLINE_S
    while len(rows := stored(stack)) < len(hot):
        assert time.monotonic() < ends, (rows, stack.log("gateway"))
        await asyncio.sleep(0.5)
    assert sorted(rows, key=lambda row: row["reading"]) == [
        {"sensor": f"plant/{r['reading']}/temperature", "reading": r["reading"], "celsius": r["celsius"]} for r in hot
    ]

    # It was the cluster that computed them: the worker's two cores are the application's.
    with urllib.request.urlopen(f"http://{stack.addresses['spark-master']}:8080/json/") as answer:
        master = json.load(answer)
    assert [(app["name"], app["cores"]) for app in master["activeapps"]] == [("spillway", 2)]

    await prometheus_knows(stack, len(ORDERS) + len(READINGS))

    gateway = stack.processes["gateway"]
    gateway.send_signal(getattr(signal, stack.stop_signal))
    assert await asyncio.to_thread(gateway.wait, DEADLINE_S) == 0, stack.log("gateway")
    assert not stack.is_healthy("gateway")
