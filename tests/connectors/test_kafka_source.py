"""What the Kafka source reads, and how: order, shares, chunks, formats, logins."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from aiokafka import TopicPartition
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.sources.base import Backlog
from gateway.sources.kafka import member
from gateway.sources.kafka.kafkasource import KafkaSource
from gateway.sources.kafka.member import Member
from infra.rows.base import SourceError, SourceUnavailableError
from tests.connectors.kafka_broker import PASSWORD, USER, Broker
from tests.connectors.kafka_records import AVRO, avro
from tests.connectors.kafka_sources import lines, make_source, producer, put, reading
from tests.connectors.source_contract import DEADLINE_S, HUGE, SCHEMA, events, read, rows


async def opened(source: KafkaSource, schema: pa.Schema = SCHEMA) -> KafkaSource:
    await source.open(schema)
    return source


async def test_a_chunk_has_its_share_of_each_partition_in_order(broker: Broker) -> None:
    topic = await broker.create_topic(partitions=4)
    await put(broker, topic, lines(rows(0, 1999)))
    source = await opened(make_source(broker, topic))
    chunks = await read(source, 2000, max_records=40)
    for chunk in chunks:
        places = [n % 4 for n in chunk.batch.column("n").to_pylist()]
        assert places == sorted(places)
    for partition in range(4):
        numbers = [row["n"] for row in events(chunks) if row["n"] % 4 == partition]
        assert numbers == list(range(partition, 2000, 4))
    full = [Counter(row["n"] % 4 for row in chunk.batch.to_pylist()) for chunk in chunks[5:-5]]
    assert any(min(shares[partition] for partition in range(4)) >= 5 for shares in full)
    await source.close()


@pytest.mark.parametrize("max_records", [1, 100])
async def test_a_busy_partition_does_not_hide_the_others(broker: Broker, max_records: int) -> None:
    topic = await broker.create_topic(partitions=2)
    await put(broker, topic, lines(rows(0, 4999)), partition=0)
    await put(broker, topic, lines(rows(5000, 5009)), partition=1)
    source = await opened(make_source(broker, topic))
    found: list[int] = []
    while 5009 not in found:
        chunk = await source.read(max_records, HUGE)
        found += [] if chunk is None else [row["n"] for row in events([chunk])]
    assert len(found) < 4000
    await source.close()


async def test_two_topics_of_one_source(broker: Broker) -> None:
    one, other = await broker.create_topic(), await broker.create_topic()
    await put(broker, one, lines(rows(0, 9)))
    await put(broker, other, lines(rows(10, 19)))
    schema = pa.schema([*SCHEMA, ("_topic", pa.string())])
    source = await opened(make_source(broker, one, other), schema)
    chunks = await read(source, 20)
    assert {row["n"]: row["_topic"] for row in events(chunks)} == {n: one if n < 10 else other for n in range(20)}
    assert chunks[-1].end.offsets == {f"{one}/0": 10, f"{other}/0": 10}
    await source.close()


async def test_what_came_since_the_client_asked_is_read_at_once(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = await broker.create_topic()
    await put(broker, topic, lines(rows(0, 0)))
    source = await opened(make_source(broker, topic))
    await read(source, 1)
    await put(broker, topic, lines(rows(1, 1)))
    async with asyncio.timeout(DEADLINE_S):
        while source.backlog() != Backlog(1, None):
            await asyncio.sleep(0.01)
    # The client has one record, and asks for no other before that one is taken.
    await put(broker, topic, lines(rows(2, 2)))
    monkeypatch.setattr(member, "MORE_S", DEADLINE_S)
    chunk = await source.read(100, HUGE)
    assert chunk is not None
    assert events([chunk]) == rows(1, 2)
    await source.close()


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cuts=st.lists(st.tuples(st.integers(1, 60), st.integers(1, 4000)), min_size=1, max_size=12))
def test_any_cut_is_read_again_exactly(broker: Broker, cuts: list[tuple[int, int]]) -> None:

    asyncio.run(cut_and_read_again(broker, cuts))


async def cut_and_read_again(broker: Broker, cuts: list[tuple[int, int]]) -> None:
    topic = await broker.create_topic(partitions=3)
    await put(broker, topic, [*lines(rows(0, 99)), b"?", *lines(rows(100, 149))])
    source = await opened(make_source(broker, topic))
    chunks = []
    for max_records, max_bytes in cuts:
        chunk = await source.read(max_records, max_bytes)
        if chunk is not None:
            assert chunk.end.record - chunk.start.record <= max_records
            chunks.append(chunk)
    done = chunks[-1].end.record if chunks else 0
    chunks += await read(source, 151 - done) if done < 151 else []
    assert Counter(row["n"] for row in events(chunks)) == Counter(range(150))
    again = await opened(make_source(broker, topic, owner="somebody else"))
    for chunk in chunks:
        repeated = await again.read_between(chunk.start, chunk.end)
        assert repeated.batch.equals(chunk.batch)
        assert (repeated.start, repeated.end, repeated.dead) == (chunk.start, chunk.end, chunk.dead)
        assert repeated.arrival_wall_s == chunk.arrival_wall_s
    whole = await again.read_between(chunks[0].start, chunks[-1].end)
    assert whole.batch.num_rows == 150
    await again.close()
    await source.close()


async def test_headers_keys_and_times_are_kept(broker: Broker) -> None:
    topic = await broker.create_topic()
    async with producer(broker) as client:
        headers = [("trace", b"\x00\x01"), ("trace", b"2")]
        await client.send_and_wait(topic, b'{"n": 1}', key=b"k", headers=headers, timestamp_ms=1_700_000_000_500)
        await client.send_and_wait(topic, b'{"n": 2}', timestamp_ms=1_700_000_001_500)
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    schema = pa.schema(
        [("n", pa.int64()), ("_key", pa.binary()), ("_headers", kind), ("_timestamp", pa.timestamp("us", tz="UTC"))]
    )
    source = await opened(make_source(broker, topic), schema)
    chunks = await read(source, 2)
    found = events(chunks)
    assert [row.pop("_timestamp").timestamp() for row in found] == [1_700_000_000.5, 1_700_000_001.5]
    assert found == [
        {"n": 1, "_key": b"k", "_headers": [{"key": key, "value": value} for key, value in headers]},
        {"n": 2, "_key": None, "_headers": []},
    ]
    if len(chunks) == 1:
        assert chunks[0].arrival_wall_s == pytest.approx(1_700_000_001.0)
    await source.close()


async def test_avro_and_raw_from_a_broker(broker: Broker, tmp_path: Path) -> None:
    topic = await broker.create_topic()
    await put(broker, topic, [avro(n) for n in range(5)])
    path = tmp_path / "reading.avsc"
    path.write_text(json.dumps(AVRO))
    source = await opened(
        make_source(broker, topic, format="avro", avro_schema=str(path)), pa.schema([("n", pa.int64())])
    )
    assert [row["n"] for row in events(await read(source, 5))] == list(range(5))
    await source.close()
    raw = await opened(
        make_source(broker, topic, group=f"{topic}-raw", format="raw"), pa.schema([("_value", pa.binary())])
    )
    assert [row["_value"] for row in events(await read(raw, 5))] == [avro(n) for n in range(5)]
    await raw.close()


async def test_the_backlog_says_how_much_and_how_old(broker: Broker) -> None:
    topic = await broker.create_topic()
    before_s = time.time()
    await put(broker, topic, lines(rows(0, 99)))
    source = await opened(make_source(broker, topic))
    assert source.backlog() is None
    chunks = await read(source, 10)
    backlog = source.backlog()
    assert backlog is not None
    assert backlog.records == 90
    assert backlog.oldest_wall_s is not None
    assert before_s - 1 < backlog.oldest_wall_s < time.time() + 1
    assert all(chunk.more for chunk in chunks)
    rest = await read(source, 90)
    assert not rest[-1].more
    assert source.backlog() == type(backlog)(0, None)
    await source.close()


async def test_records_that_are_large_are_cut_by_bytes(broker: Broker) -> None:
    topic = await broker.create_topic()
    await put(broker, topic, [b'{"id": "%s", "n": %d}' % (b"x" * 100_000, n) for n in range(30)])
    source = await opened(make_source(broker, topic))
    chunks = await read(source, 30, max_bytes=250_000)
    assert [row["n"] for row in events(chunks)] == list(range(30))
    assert max(chunk.batch.num_rows for chunk in chunks) == 3
    await source.close()


async def test_what_is_held_is_bounded_while_nothing_is_taken(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = await broker.create_topic(partitions=3)
    await put(broker, topic, [b'{"id": "%s", "n": %d}' % (b"x" * 20_000, n) for n in range(900)])
    source = await opened(make_source(broker, topic))
    await read(source, 30, max_records=10, max_bytes=100_000)
    member = source.member
    assert isinstance(member, Member)
    # What was asked for, and what the client's buffer of a partition holds.
    assert member.fetched.held_bytes < 100_000 + 3 * 2**20
    assert member.fetched.count > 0
    await source.close()


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_a_login(broker: Broker, mechanism: str) -> None:
    topic = await broker.create_topic()
    await put(broker, topic, lines(rows(0, 9)))
    sasl = {"mechanism": mechanism, "user": USER, "password": PASSWORD}
    source = await opened(make_source(broker, topic, brokers=broker.sasl_brokers, sasl=sasl))
    chunks = await read(source, 10)
    assert events(chunks) == rows(0, 9)
    assert (await source.read_between(chunks[0].start, chunks[0].end)).batch.equals(chunks[0].batch)
    await source.close()


async def test_a_wrong_password_is_told_without_it(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    topic = await broker.create_topic()
    sasl = {"mechanism": "PLAIN", "user": USER, "password": "guessed"}
    source = await opened(make_source(broker, topic, brokers=broker.sasl_brokers, sasl=sasl))
    with pytest.raises((SourceError, SourceUnavailableError), match="as gateway") as caught:
        await source.read(10, HUGE)
    assert "Authentication failed" in caplog.text
    assert "guessed" not in caplog.text + str(caught.value)
    await source.close()


async def test_tls_with_a_certificate_of_ones_own(broker: Broker) -> None:
    topic = await broker.create_topic()
    await put(broker, topic, lines(rows(0, 9)))
    source = await opened(make_source(broker, topic, brokers=broker.tls_brokers, tls=broker.tls))
    chunks = await read(source, 10)
    assert events(chunks) == rows(0, 9)
    assert (await source.read_between(chunks[0].start, chunks[0].end)).batch.equals(chunks[0].batch)
    await source.close()


@pytest.mark.parametrize("lacking", ["ca", "certificate"])
async def test_tls_to_a_stranger_or_as_one_is_refused(broker: Broker, lacking: str) -> None:
    without = {"ca": ("ca",), "certificate": ("certificate", "key")}[lacking]
    tls = {name: path for name, path in broker.tls.items() if name not in without}
    source = await opened(make_source(broker, "any", brokers=broker.tls_brokers, tls=tls))
    with pytest.raises(SourceUnavailableError, match=broker.tls_brokers):
        await source.read(10, HUGE)
    await source.close()


async def test_files_of_tls_that_are_not_there(broker: Broker, tmp_path: Path) -> None:
    source = make_source(broker, "t", tls={"ca": str(tmp_path / "nothing.pem")})
    with pytest.raises(SourceError, match="tls"):
        await source.open(SCHEMA)


async def test_an_acknowledgement_of_what_was_not_read_here_is_not_committed(broker: Broker) -> None:
    topic = await broker.create_topic()
    await put(broker, topic, lines(rows(0, 9)))
    async with reading(make_source(broker, topic), acknowledges=False) as one:
        await one.until(lambda: len(one.numbers()) == 10, "all is read")
        elsewhere = one.chunks[-1].end
        await one.source.acknowledge(type(elsewhere)(99, offsets={"other/0": 77}))
        member: Any = one.source.member
        assert TopicPartition("other", 0) not in member.committed
