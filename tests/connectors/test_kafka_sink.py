"""The properties of the Kafka sink beyond the contract of all sinks, with a real broker."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.partitioner import murmur2

from gateway.connectors.position import Position
from gateway.core.exchange.reorder import Released
from gateway.sinks.base import FencedError, ReleasedRows, SinkError, SinkUnavailableError
from gateway.sinks.kafka.control import ControlRecord, ControlTopic
from infra import failpoints
from infra.clock import SystemClock
from infra.statefiles import StateError
from tests.connectors.kafka_broker import PASSWORD, USER, Broker
from tests.connectors.kafka_sinks import make_sink, records, values
from tests.connectors.sink_contract import at, release, row
from tests.support.waiting import DEADLINE_S


def results(first: int, last: int, **columns: list[Any]) -> ReleasedRows:
    """Results with columns of the test."""
    return Released(first, last, pa.RecordBatch.from_pydict(columns), False)


def control(broker: Broker, topic: str, query: str = "q") -> ControlTopic:
    return ControlTopic(f"{topic}-progress", query, {"bootstrap_servers": broker.brokers}, SystemClock())


# ------------------------------------------------------------------------------------------------------- records


async def test_keys_headers_and_order_in_each_partition(broker: Broker) -> None:
    topic = await broker.create_topic(partitions=3)
    sink = make_sink(broker.brokers, topic, key="city", headers={"source": "from", "n": "number"})
    await sink.open()
    number = list(range(60))
    cities: list[str | None] = [f"city {n % 7}" for n in number]
    cities[13] = None
    place = [None if n % 2 else f"place {n}" for n in number]
    for first in range(0, 60, 20):
        part = slice(first, first + 20)
        await sink.commit(
            [results(first, first + 19, city=cities[part], number=number[part], **{"from": place[part]})],
            at(first + 19),
        )
    found = await records(broker, topic)
    assert sorted(msgspec.json.decode(record.value or b"")["number"] for record in found) == number
    for record in found:
        value = msgspec.json.decode(record.value or b"")
        n = value["number"]
        assert value == {"city": cities[n], "number": n, "from": place[n]}
        assert record.key == (None if cities[n] is None else str(cities[n]).encode())
        assert dict(record.headers) == {"n": b"%d" % n} | ({} if n % 2 else {"source": f"place {n}".encode()})
        if record.key is not None:
            assert record.partition == (murmur2(record.key) & 0x7FFFFFFF) % 3, "as Java's clients choose"
    for partition in range(3):
        numbers = [msgspec.json.decode(r.value or b"")["number"] for r in found if r.partition == partition]
        keyed = [n for n in numbers if n != 13]
        assert keyed == sorted(keyed)
    await sink.close()


async def test_results_without_a_key_keep_their_order_within_a_commit_and_use_all_partitions(broker: Broker) -> None:
    topic = await broker.create_topic(partitions=3)
    sink = make_sink(broker.brokers, topic)
    await sink.open()
    for first in range(0, 60, 10):
        await sink.commit([release(first, first + 9)], at(first + 9))
    found = await records(broker, topic)
    assert {record.partition for record in found} == {0, 1, 2}
    by_commit: dict[int, list[tuple[int, int]]] = {}
    for record in found:
        n = msgspec.json.decode(record.value or b"")["id"]
        by_commit.setdefault(n // 10, []).append((record.partition, n))
    for commit, placed in by_commit.items():
        assert len({partition for partition, _ in placed}) == 1
        assert [n for _, n in placed] == list(range(10 * commit, 10 * commit + 10))
    await sink.close()


async def test_late_results_are_marked(broker: Broker) -> None:
    topic = await broker.create_topic()
    sink = make_sink(broker.brokers, topic)
    await sink.open()
    await sink.commit([release(2, 3), release(0, 1, late=True)], at(3))
    marks = [(msgspec.json.decode(r.value or b"")["id"], dict(r.headers)) for r in await records(broker, topic)]
    assert marks == [(2, {}), (3, {}), (0, {"spillway-late": b"true"}), (1, {"spillway-late": b"true"})]
    await sink.close()


async def test_a_column_that_is_not_there(broker: Broker) -> None:
    topic = await broker.create_topic()
    sink = make_sink(broker.brokers, topic, key="town")
    await sink.open()
    with pytest.raises(
        SinkError, match=r'sink\.key names "town", which is not a column of the results; they have id, text'
    ):
        await sink.commit([release(0, 4)], at(4))
    await sink.close()
    assert await values(broker, topic) == []


async def test_more_than_one_transaction_takes(broker: Broker) -> None:
    topic = await broker.create_topic()
    sink = make_sink(broker.brokers, topic, transaction_bytes=2000)
    await sink.open()
    await sink.commit([release(first, first + 19) for first in range(0, 400, 20)], at(399))
    assert await values(broker, topic) == [row(n) for n in range(400)]
    assert len(await records(broker, f"{topic}-progress")) > 5
    await sink.close()


async def test_many_megabytes(broker: Broker) -> None:
    topic = await broker.create_topic(partitions=2)
    sink = make_sink(broker.brokers, topic)
    await sink.open()
    began_s = time.monotonic()
    text = "x" * 500
    given = [results(n, n + 999, n=list(range(n, n + 1000)), text=[text] * 1000) for n in range(0, 50_000, 1000)]
    await sink.commit(given, at(49_999))
    print(f"50,000 results of 500 bytes in {time.monotonic() - began_s:.2f} s")
    found = [msgspec.json.decode(record.value or b"")["n"] for record in await records(broker, topic)]
    assert sorted(found) == list(range(50_000))
    await sink.close()


# ---------------------------------------------------------------------------------------------------------- sizes


async def test_a_topic_that_takes_small_batches_only(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    topic = await broker.create_topic(settings={"max.message.bytes": "2000"})
    sink = make_sink(broker.brokers, topic)
    await sink.open()
    await sink.commit([release(first, first + 99) for first in range(0, 500, 100)], at(499))
    assert await values(broker, topic) == [row(n) for n in range(500)]
    assert "does not accept a batch this large" in caplog.text
    await sink.close()


async def test_a_result_that_is_too_large_says_where_it_is(broker: Broker) -> None:
    topic = await broker.create_topic(settings={"max.message.bytes": "2000"})
    sink = make_sink(broker.brokers, topic)
    await sink.open()
    await sink.commit([release(0, 9)], at(9))
    given = [release(10, 19), results(20, 24, id=[20], text=["x" * 3000])]
    for _ in range(2):
        with pytest.raises(SinkError, match=r"of the events 20 to 24 is too large .*: raise its max.message.bytes"):
            await sink.commit(given, at(24))
    await sink.close()
    assert await values(broker, topic) == [row(n) for n in range(10)]


# -------------------------------------------------------------------------------------------------------- offsets


async def offsets_of(broker: Broker, group: str) -> dict[str, int]:
    async with broker.admin() as admin:
        found = await admin.list_consumer_group_offsets(group)
    return {f"{place.topic}/{place.partition}": said.offset for place, said in found.items()}


async def offsets_become(broker: Broker, group: str, expected: dict[str, int]) -> None:
    """Wait for offsets: a broker acknowledges a transaction before its marker is in the topic of the offsets."""
    async with asyncio.timeout(DEADLINE_S):
        while (found := await offsets_of(broker, group)) != expected:
            await asyncio.sleep(0.05)
    assert found == expected


async def test_the_offsets_of_the_source_move_with_the_results_or_not_at_all(broker: Broker) -> None:
    topic, source = await broker.create_topic(), await broker.create_topic(partitions=2)
    group = f"group-{topic}"

    def offsets(zero: int, one: int) -> dict[str, int]:
        return {f"{source}/0": zero, f"{source}/1": one}

    def position(zero: int, one: int) -> Position:
        return Position(zero + one, offsets=offsets(zero, one))

    async with AsyncExitStack() as undo:
        member = AIOKafkaConsumer(source, bootstrap_servers=broker.brokers, group_id=group, enable_auto_commit=False)
        undo.push_async_callback(member.stop)
        await member.start()  # the group has an active member, as in a running gateway
        sink = make_sink(broker.brokers, topic, group=group)
        undo.push_async_callback(sink.close)
        await sink.open()
        await sink.commit([release(0, 4)], position(3, 2))
        await offsets_become(broker, group, offsets(3, 2))
        with failpoints.installed("sink.commit.prepared=eio@1"), pytest.raises(OSError, match="prepared"):
            await sink.commit([release(5, 9)], position(5, 5))
        await sink.close()
        assert await offsets_of(broker, group) == offsets(3, 2)
        again = make_sink(broker.brokers, topic, group=group, epoch=2)
        undo.push_async_callback(again.close)
        await again.open()
        await again.commit([release(5, 9)], position(5, 5))
        await offsets_become(broker, group, offsets(5, 5))
        assert await values(broker, topic) == [row(n) for n in range(10)]


# ----------------------------------------------------------------------------------------------- failing in midst


@pytest.mark.parametrize(("place", "visible"), [("prepared", 0), ("visible", 5)])
async def test_an_error_in_the_midst_is_settled_before_anything_is_written(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, place: str, visible: int
) -> None:
    topic = await broker.create_topic()
    sink = make_sink(broker.brokers, topic)
    await sink.open()
    with failpoints.installed(f"sink.commit.{place}=eio@1"), pytest.raises(OSError, match=place):
        await sink.commit([release(0, 4)], at(4))
    # Closed it leaves nothing open that a reader would wait for.
    await sink.close()
    assert await values(broker, topic) == [row(n) for n in range(visible)]
    await sink.commit([release(0, 4), release(5, 9)], at(9))
    assert await values(broker, topic) == [row(n) for n in range(10)]
    await sink.close()


async def test_cancelled_at_any_moment(broker: Broker) -> None:
    topic = await broker.create_topic()
    sink = make_sink(broker.brokers, topic)
    await sink.open()
    first = 0
    for attempt in range(25):
        writing = asyncio.create_task(sink.commit([release(first, first + 4)], at(first + 4)))
        await asyncio.sleep(0.002 * attempt)
        writing.cancel()
        done = (await asyncio.gather(writing, return_exceptions=True))[0]
        assert done is None or isinstance(done, asyncio.CancelledError)
        if done is None:
            first += 5
    await sink.commit([release(first, first + 4)], at(first + 4))
    assert await values(broker, topic) == [row(n) for n in range(first + 5)]
    await sink.close()


# --------------------------------------------------------------------------------------------------------- owners


async def test_other_state_is_refused_and_fences_nobody(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = await broker.create_topic()
    mine = make_sink(broker.brokers, topic)
    await mine.open()
    await mine.commit([release(0, 4)], at(4))
    with pytest.raises(StateError, match=r"from a different state_dir .*: restore the state, or choose"):
        await make_sink(broker.brokers, topic, owner="somebody else", epoch=7).open()
    starts, start = [], AIOKafkaProducer.start

    async def noting(producer: AIOKafkaProducer) -> None:
        starts.append(producer)
        await start(producer)

    monkeypatch.setattr(AIOKafkaProducer, "start", noting)
    await mine.commit([release(5, 9)], at(9))
    assert starts == [], "it was not fenced: it needs no new producer"
    await mine.close()


async def test_two_states_that_begin_at_once(broker: Broker) -> None:
    """In an empty topic neither finds the other, but one is still refused."""
    topic = await broker.create_topic()
    sinks = [make_sink(broker.brokers, topic, owner=owner) for owner in ("me", "somebody else")]
    said = await asyncio.gather(*(sink.open() for sink in sinks), return_exceptions=True)
    written = []
    for sink, error in zip(sinks, said, strict=True):
        try:
            if error is None:
                await sink.commit([release(0, 4)], at(4))
                written.append(sink)
        except (StateError, SinkUnavailableError):
            pass
    assert len(written) <= 1
    assert await values(broker, topic) == [row(n) for n in range(5 * len(written))]
    assert all(error is None or isinstance(error, StateError | SinkUnavailableError) for error in said)
    for sink in sinks:
        await sink.close()


async def test_a_copy_of_the_state_takes_over_and_the_first_notices(broker: Broker) -> None:
    topic = await broker.create_topic()
    first, copy = make_sink(broker.brokers, topic), make_sink(broker.brokers, topic)
    await first.open()
    await first.commit([release(0, 4)], at(4))
    await copy.open()
    assert list(copy.committed) == [(0, 4)]
    with pytest.raises(FencedError, match="let each have a state_dir of its own"):
        await first.commit([release(5, 9)], at(9))
    await copy.commit([release(5, 9)], at(9))
    assert await values(broker, topic) == [row(n) for n in range(10)]
    await first.close()
    await copy.close()


async def test_a_lower_epoch_is_refused_at_once(broker: Broker) -> None:
    topic = await broker.create_topic()
    sink = make_sink(broker.brokers, topic, epoch=5)
    await sink.open()
    with pytest.raises(FencedError, match="its epoch is 5, this one's 4"):
        await make_sink(broker.brokers, topic, epoch=4).open()
    await sink.commit([release(0, 4)], at(4))
    await sink.close()


async def test_two_queries_share_a_topic(broker: Broker) -> None:
    topic = await broker.create_topic()
    one, other = (
        make_sink(broker.brokers, topic, query="one"),
        make_sink(broker.brokers, topic, query="other", owner="o"),
    )
    await one.open()
    await other.open()
    await one.commit([release(0, 4)], at(4))
    await other.commit([release(0, 9)], at(9))
    await one.commit([release(5, 9)], at(9))
    assert sorted(item["id"] for item in await values(broker, topic)) == sorted([*range(10), *range(10)])
    for query in ("one", "other"):
        progress = await control(broker, topic, query).last(settled=True)
        assert progress is not None
        assert progress.committed == [(0, 9)]
    await one.close()
    await other.close()


# -------------------------------------------------------------------------------------------------- control topic


async def test_what_stands_behind_another_querys_open_transaction_is_not_missed(broker: Broker) -> None:
    topic = await broker.create_topic()
    sink = make_sink(broker.brokers, topic)
    await sink.open()
    other = AIOKafkaProducer(bootstrap_servers=broker.brokers, transactional_id=f"other-{topic}")
    await other.start()
    await other.begin_transaction()
    await other.send_and_wait(f"{topic}-progress", b"{}", key=b"other", partition=0)
    await sink.commit([release(0, 4)], at(4))
    await sink.close()
    again = make_sink(broker.brokers, topic, epoch=2)
    opening = asyncio.create_task(again.open())
    done, _ = await asyncio.wait([opening], timeout=1.0)
    assert not done, "it must know how the transaction before its record ends"
    await other.commit_transaction()
    await opening
    assert list(again.committed) == [(0, 4)]
    await other.stop()
    await again.close()


async def test_a_long_control_topic_is_read_from_its_end(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = await broker.create_topic()
    sink = make_sink(broker.brokers, topic)
    await sink.open()
    await sink.commit([release(0, 4)], at(4))
    await sink.close()
    # Thousands of records and marks of other queries, committed and aborted, before and after one of ours.
    other = AIOKafkaProducer(bootstrap_servers=broker.brokers, transactional_id=f"other-{topic}")
    await other.start()
    progress = msgspec.json.encode(ControlRecord("other", 1, "w", [(0, 1)], Position()))

    async def others(transactions: int) -> None:
        for number in range(transactions):
            await other.begin_transaction()
            for _ in range(10):
                await other.send(f"{topic}-progress", progress, key=b"other", partition=0)
            await (other.abort_transaction() if number % 3 == 0 else other.commit_transaction())

    await others(150)
    sink = make_sink(broker.brokers, topic, epoch=2)
    await sink.open()
    assert list(sink.committed) == [(0, 4)]
    for first in range(5, 505, 5):
        await sink.commit([release(first, first + 4)], at(first + 4))
    await sink.close()
    looked_at: list[tuple[int, int]] = []
    real = ControlTopic.last_between

    async def watch(self: ControlTopic, consumer: AIOKafkaConsumer, start: int, stop: int) -> bytes | None:
        looked_at.append((start, stop))
        return await real(self, consumer, start, stop)

    monkeypatch.setattr(ControlTopic, "last_between", watch)
    last = await control(broker, topic).last(settled=True)
    assert last is not None
    assert last.committed == [(0, 504)]
    assert sum(stop - start for start, stop in looked_at) == 64, "the last window is enough"
    looked_at.clear()
    await others(150)
    assert await control(broker, topic).last(settled=True) == last
    assert len(looked_at) > 2
    assert all(later[1] == earlier[0] for earlier, later in pairwise(looked_at))
    await other.stop()


async def test_an_aborted_record_of_progress_does_not_count(broker: Broker) -> None:
    topic = await broker.create_topic()
    sink = make_sink(broker.brokers, topic)
    await sink.open()
    await sink.commit([release(0, 4)], at(4))
    await sink.close()
    cheat = AIOKafkaProducer(bootstrap_servers=broker.brokers, transactional_id=f"cheat-{topic}")
    await cheat.start()
    await cheat.begin_transaction()
    progress = msgspec.json.encode(ControlRecord("me", 1, "w", [(0, 99)], Position()))
    await cheat.send_and_wait(f"{topic}-progress", progress, key=b"q", partition=0)
    await cheat.abort_transaction()
    await cheat.stop()
    again = make_sink(broker.brokers, topic, epoch=2)
    await again.open()
    assert list(again.committed) == [(0, 4)]
    await again.close()


async def test_the_control_topic_is_made_compacted_with_one_partition(broker: Broker) -> None:
    topic = await broker.create_topic(partitions=3)
    sink = make_sink(broker.brokers, topic, control_topic=f"{topic}.control")
    await sink.open()
    await sink.close()
    async with broker.admin() as admin:
        described: Any = (await admin.describe_topics([f"{topic}.control"]))[0]
    assert len(described["partitions"]) == 1
    assert len(await records(broker, f"{topic}.control")) == 1, "the claim"


async def test_a_control_topic_that_forgets_is_refused(broker: Broker) -> None:
    topic, forgetful = await broker.create_topic(), await broker.create_topic(settings={"cleanup.policy": "delete"})
    with pytest.raises(StateError, match=r"has cleanup\.policy=delete and would lose the progress: set it to compact"):
        await make_sink(broker.brokers, topic, control_topic=forgetful).open()


async def test_a_control_topic_with_something_else_in_it(broker: Broker) -> None:
    topic = await broker.create_topic()
    other = await broker.create_topic(settings={"cleanup.policy": "compact"})
    producer = AIOKafkaProducer(bootstrap_servers=broker.brokers)
    await producer.start()
    await producer.send_and_wait(other, b"something else", key=b"q")
    await producer.stop()
    with pytest.raises(StateError, match=r"cannot be read .*: set another control_topic"):
        await make_sink(broker.brokers, topic, control_topic=other).open()


async def test_a_topic_that_is_not_there(broker: Broker) -> None:
    with pytest.raises(StateError, match="the topic nowhere does not exist: create it"):
        await make_sink(broker.brokers, "nowhere").open()


# ---------------------------------------------------------------------------------------------------------- access


async def test_with_a_login(broker: Broker) -> None:
    topic = await broker.create_topic()
    sasl = {"mechanism": "SCRAM-SHA-512", "user": USER, "password": PASSWORD}
    sink = make_sink(broker.sasl_brokers, topic, sasl=sasl)
    await sink.open()
    await sink.commit([release(0, 4)], at(4))
    await sink.close()
    assert await values(broker, topic) == [row(n) for n in range(5)]


async def test_with_a_wrong_login(broker: Broker) -> None:
    topic = await broker.create_topic()
    sink = make_sink(broker.sasl_brokers, topic, sasl={"mechanism": "PLAIN", "user": USER, "password": "wrong"})
    with pytest.raises(SinkUnavailableError, match="cannot be opened"):
        await sink.open()


def test_an_authority_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(StateError, match=r"query q: tls\.ca .* is not a PEM file of authorities"):
        make_sink("127.0.0.1:1", "t", tls={"ca": str(tmp_path / "no.pem")})
