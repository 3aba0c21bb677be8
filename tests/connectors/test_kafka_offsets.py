"""Offsets of a Kafka source are committed by its sink's transactions if possible, else by the source; never by both."""

from __future__ import annotations

import asyncio
import struct
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer

from gateway.config.models import QueryConfig
from gateway.query.endpoints import Endpoints
from gateway.query.identity import Identity
from infra.clock import SystemClock
from infra.rows.base import SourceUnavailableError
from tests.connectors.kafka_broker import Broker
from tests.connectors.kafka_sources import lines, put
from tests.connectors.sink_contract import release
from tests.connectors.source_contract import DEADLINE_S, HUGE, SCHEMA, rows


async def commits(broker: Broker, group: str) -> list[int]:
    """Return each offset that was committed to a group, in order, from the broker's own records."""
    found: list[int] = []
    consumer = AIOKafkaConsumer(
        "__consumer_offsets",
        bootstrap_servers=broker.brokers,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
    )
    await consumer.start()
    try:
        places = list(consumer.assignment())
        assert places, "the topic of the offsets is there"
        ends = await consumer.end_offsets(places)
        async with asyncio.timeout(DEADLINE_S):
            while any([await consumer.position(place) < ends[place] for place in places]):
                for batch in (await consumer.getmany(timeout_ms=100)).values():
                    found += [offset for each in batch for offset in _offsets(each.key, each.value, group)]
    finally:
        await consumer.stop()
    return found


def _offsets(key: bytes | None, value: bytes | None, group: str) -> list[int]:
    """Return the offset of a record that commits one to the group (versions 0 and 1 of the key)."""
    if key is None or value is None or struct.unpack_from(">h", key)[0] > 1:
        return []
    (length,) = struct.unpack_from(">h", key, 2)
    return [struct.unpack_from(">q", value, 2)[0]] if key[4 : 4 + length].decode() == group else []


@pytest.mark.parametrize("stateful", [False, True])
@pytest.mark.parametrize("sink", ["kafka", "file"])
async def test_each_offset_is_committed_once(tmp_path: Path, broker: Broker, sink: str, stateful: bool) -> None:
    topic, out = await broker.create_topic(), await broker.create_topic()
    await put(broker, topic, lines(rows(0, 9)))
    sinks: dict[str, dict[str, Any]] = {
        "kafka": {"type": "kafka", "brokers": broker.brokers, "topic": out},
        "file": {"type": "file", "path": str(tmp_path / "out")},
    }
    query = QueryConfig.model_validate(
        {
            "source": {"type": "kafka", "brokers": broker.brokers, "topics": [topic], "group": topic},
            "schema": "id STRING, n BIGINT",
            "sql": "SELECT n FROM events",
            "sink": sinks[sink],
            "qos": {"latency": "2s"},
        }
    )
    ends = Endpoints("q", query, tmp_path, SystemClock(), lambda _: pytest.fail("it reads no query"), lambda: "")
    identity = Identity("me", "", 1)
    async with AsyncExitStack() as undo:
        written = await ends.open_sink(identity, undo, stateful=stateful)
        source, _ = await ends.open_source(identity, SCHEMA, undo, stateful=stateful)
        async with asyncio.timeout(DEADLINE_S):
            for count in (4, 6):
                chunk = None
                while chunk is None:
                    try:
                        chunk = await source.read(count, HUGE)
                    except SourceUnavailableError:
                        continue
                start, end = chunk.start.record, chunk.end.record
                assert end - start == count
                await written.commit([release(start, end - 1)], chunk.end)
                expected = [end] if sink == "kafka" and not stateful else [start] if start else []
                # A broker acknowledges a transaction before its marker is in the topic of the offsets.
                while (by_sink := await commits(broker, topic))[-1:] != expected:
                    assert by_sink[-1:] < expected, by_sink
                await source.acknowledge(chunk.end)
    assert await commits(broker, topic) == [4, 10]
