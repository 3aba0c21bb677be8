"""Executors read the events of runs by reference: answers are those of the same events by value."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from engines.reading.references import row_of
from engines.streaming.feed import stream_of
from gateway.config.connectors.security import TlsConfig
from infra.messages import BrokerAccess, KafkaReading, OffsetRange, OpenQuery, RecordFormat
from tests.connectors.kafka_broker import PASSWORD, USER, Broker
from tests.connectors.kafka_topics import sent
from tests.engines.host_site import host_process
from tests.engines.spark_cluster import cluster
from tests.engines.stream_bench import Bench, Running

pytestmark = pytest.mark.spark

SCHEMA = "id BIGINT, name STRING"
DOUBLED = "SELECT id, CAST(name AS INT) * 2 AS twice FROM events WHERE id % 3 <> 0"


def line(number: int, name: str = "") -> bytes:
    return json.dumps({"id": number, "name": name or str(number)}).encode()


def doubled(numbers: Sequence[int]) -> list[dict[str, Any]]:
    """What the query answers, computed without Spark."""
    return [{"id": number, "twice": 2 * number} for number in numbers if number % 3]


async def topic_of(broker: Broker, partitions: Mapping[int, Sequence[bytes]]) -> str:
    topic = await broker.create_topic(partitions=len(partitions))
    await sent(broker, topic, *[(number, value) for number, values in partitions.items() for value in values])
    return topic


def filled(broker: Broker, *partitions: Sequence[bytes]) -> str:
    return asyncio.run(topic_of(broker, dict(enumerate(partitions))))


def opened(bench: Bench, broker: Broker, sql: str = DOUBLED, **spec: Any) -> Running:
    access = BrokerAccess(brokers=broker.brokers)
    return bench.open(sql, schema=SCHEMA, reads=KafkaReading(access=access, format=RecordFormat()), **spec)


def put(running: Running, tag: object, *ranges: OffsetRange) -> None:
    running.stream.put_ranges([stream_of(row_of(each)) for each in ranges], tag)


def counts(running: Running) -> dict[object, tuple[int, int]]:
    found = [answer.items[0] for answer in running.collected.answers]
    return {item.tag: (item.counts.events, item.counts.dead) for item in found if item.counts is not None}


def test_each_run_has_the_results_of_its_ranges(bench: Bench, broker: Broker) -> None:
    topic = filled(broker, [line(n) for n in range(100)], [line(n) for n in range(1_000, 1_050)])
    running = opened(bench, broker)
    assert running.stream.by_reference
    put(running, "both", OffsetRange(topic, 0, 10, 40), OffsetRange(topic, 1, 0, 20))
    put(running, "one", OffsetRange(topic, 0, 40, 100))
    put(running, "again", OffsetRange(topic, 0, 10, 12))
    assert running.results(3) == {
        "both": doubled([*range(10, 40), *range(1_000, 1_020)]),
        "one": doubled(range(40, 100)),
        "again": doubled([10, 11]),
    }
    assert counts(running) == {"both": (50, 0), "one": (60, 0), "again": (2, 0)}


def test_records_that_are_no_events_are_counted_and_rows_that_fail_are_told(bench: Bench, broker: Broker) -> None:
    values = [line(n) for n in range(30)]
    values[3], values[20] = b"no JSON", b"[]"
    values[4] = line(4, "four")
    topic = filled(broker, values)
    running = opened(bench, broker)
    put(running, "dirty", OffsetRange(topic, 0, 0, 15))
    put(running, "clean", OffsetRange(topic, 0, 15, 30))
    found = running.results(2)
    assert found["dirty"] == doubled([n for n in range(15) if n not in (3, 4)])
    assert found["clean"] == doubled([n for n in range(15, 30) if n != 20])
    assert counts(running) == {"dirty": (14, 1), "clean": (14, 1)}
    poison = {answer.items[0].tag: answer.poison for answer in running.collected.answers}
    assert [bad.row for bad in poison["dirty"]] == [3], "the fourth event, as the fourth record is none"
    assert not poison["clean"]


def test_a_run_with_its_events_is_answered_among_them(bench: Bench, broker: Broker) -> None:
    topic = filled(broker, [line(n) for n in range(10)])
    running = opened(bench, broker)
    put(running, "by reference", OffsetRange(topic, 0, 0, 10))
    running.put("by value", [{"id": 7, "name": "7"}, {"id": 9, "name": "9"}])
    assert running.results(2) == {"by reference": doubled(range(10)), "by value": doubled([7, 9])}


def test_what_the_topic_does_not_hold_ends_the_query_with_the_reason(bench: Bench, broker: Broker) -> None:
    topic = filled(broker, [line(n) for n in range(5)])
    running = opened(bench, broker)
    put(running, "too far", OffsetRange(topic, 0, 0, 9))
    assert f"does not hold the records at {topic}/0@0 any more" in running.collected.wait_for_death()


@pytest.mark.parametrize("how", ["a certificate", "a login"])
def test_executors_reach_brokers_that_want(bench: Bench, broker: Broker, how: str) -> None:
    topic = filled(broker, [line(n) for n in range(10)])
    ca, certificate, key = TlsConfig.model_validate(broker.tls).files
    access = {
        "a certificate": BrokerAccess(brokers=broker.tls_brokers, tls=True, ca=ca, certificate=certificate, key=key),
        "a login": BrokerAccess(brokers=broker.sasl_brokers, mechanism="PLAIN", user=USER, password=PASSWORD),
    }[how]
    running = bench.open(DOUBLED, schema=SCHEMA, reads=KafkaReading(access=access, format=RecordFormat()))
    assert running.stream.by_reference
    put(running, "run", OffsetRange(topic, 0, 0, 10))
    assert running.results(1) == {"run": doubled(range(10))}
    assert PASSWORD not in repr(running.stream.query.spec)


async def test_executors_of_a_cluster_read_by_themselves(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    dirty = [line(n) for n in range(30)]
    dirty[7] = b"no JSON"
    topic = await topic_of(broker, {0: dirty, 1: [line(n) for n in range(100, 120)]})
    reads = KafkaReading(access=BrokerAccess(brokers=broker.brokers), format=RecordFormat())
    with cluster(tmp_path / "cluster", []) as spark:
        async with host_process(tmp_path / "driver", master=spark.master) as host, host.gateway() as gateway:
            await gateway.until_ready()
            spec = OpenQuery(query="q", epoch=1, schema_ddl=SCHEMA, sql=DOUBLED, max_batch_runs=3, reads=reads)
            query = await gateway.open(spec)
            assert query.ready.by_reference
            await query.refer(0, OffsetRange(topic, 0, 0, 20), OffsetRange(topic, 1, 0, 20))
            await query.refer(40, OffsetRange(topic, 0, 20, 30))
            found = {message.first_seq: (message, batch) for message, batch in await query.completed(2)}
    expected = doubled([*(n for n in range(20) if n != 7), *range(100, 120)])
    assert {seq: batch.to_pylist() for seq, (_, batch) in found.items()} == {0: expected, 40: doubled(range(20, 30))}
    assert {seq: (message.events, message.dead) for seq, (message, _) in found.items()} == {0: (39, 1), 40: (10, 0)}


def test_without_the_files_of_tls_executors_do_not_read(bench: Bench) -> None:
    access = BrokerAccess(brokers="127.0.0.1:1", tls=True, ca="none.pem")
    reads = KafkaReading(access=access, format=RecordFormat())
    assert not bench.open(DOUBLED, schema=SCHEMA, reads=reads).stream.by_reference


@pytest.mark.parametrize(
    "sql",
    ["SELECT id FROM events UNION ALL SELECT id + 1 FROM events", "SELECT /*+ REPARTITION(2) */ id FROM events"],
)
def test_a_plan_that_is_not_narrow_gets_its_events(bench: Bench, broker: Broker, sql: str) -> None:
    running = opened(bench, broker, sql)
    assert not running.stream.by_reference
    running.put("run", [{"id": 7, "name": "7"}])
    assert {row["id"] for row in running.results(1)["run"]} <= {7, 8}
    with pytest.raises(ValueError, match="came by reference, and cannot be read here"):
        put(running, "run", OffsetRange("t", 0, 0, 1))
