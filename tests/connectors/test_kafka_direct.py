"""What Spark has delivered by itself, as the control topic and the results' headers tell it, with a real broker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa
from aiokafka import AIOKafkaProducer
from hypothesis import given
from hypothesis import strategies as st

from gateway.connectors.position import Position
from gateway.core.exchange.reorder import Released
from gateway.query.direct.notes import DeliveryNotes
from gateway.sinks.base import ReleasedRows
from gateway.sinks.kafka.carried import UNKNOWN, CarriedParts
from gateway.sinks.kafka.kafkasink import KafkaSink
from gateway.sinks.kafka.naming import EventName, missing, unnamed
from gateway.sinks.kafka.resultstopic import ResultsTopic
from infra.clock import SystemClock
from infra.messages import NAMES
from tests.connectors.kafka_broker import Broker
from tests.connectors.kafka_sinks import make_sink, records

Made = tuple[int, EventName | None]


def named(*made: Made) -> pa.RecordBatch:
    """Results, each with a number and the record that it was made of."""
    columns: list[list[Any]] = [[number for number, _ in made]]
    columns += [[None if name is None else name[at] for _, name in made] for at in range(len(NAMES))]
    types = (pa.int64(), pa.string(), pa.int32(), pa.int64())
    arrays = [pa.array(values, kind) for values, kind in zip(columns, types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=["n", *NAMES])


def released(seq: int, *made: Made) -> ReleasedRows:
    return Released(seq, seq, named(*made), False)


def at(**offsets: int) -> Position:
    return Position(offsets={place.replace("_", "/"): offset for place, offset in offsets.items()})


async def told(broker: Broker, topic: str) -> list[tuple[int, EventName | None]]:
    return [
        (msgspec.json.decode(record.value or b"")["n"], EventName.of(record.headers))
        for record in await records(broker, topic)
    ]


async def by_spark(broker: Broker, topic: str, *made: tuple[int, EventName]) -> None:
    async with AIOKafkaProducer(bootstrap_servers=broker.brokers) as producer:
        for number, name in made:
            await producer.send_and_wait(topic, msgspec.json.encode({"n": number}), headers=name.headers)


def results_of(broker: Broker, topic: str) -> ResultsTopic:
    return ResultsTopic({"bootstrap_servers": broker.brokers}, topic)


async def reopened(broker: Broker, topic: str, epoch: int) -> KafkaSink:
    sink = make_sink(broker.brokers, topic, epoch=epoch)
    await sink.open()
    return sink


async def test_results_name_their_records_in_headers_only(broker: Broker) -> None:
    topic = await broker.create_topic()
    sink = await reopened(broker, topic, 1)
    one, two = EventName("in", 0, 7), EventName("in", 1, 3)
    await sink.commit([released(0, (1, one), (2, one), (3, two), (4, None))], at(in_0=8, in_1=4))
    assert await told(broker, topic) == [(1, one), (2, one), (3, two), (4, None)]
    assert {len(msgspec.json.decode(record.value or b"")) for record in await records(broker, topic)} == {1}
    await sink.close()


async def test_another_gateway_leaves_out_what_spark_had_delivered(broker: Broker) -> None:
    topic = await broker.create_topic()
    sink = await reopened(broker, topic, 1)
    seven, eight, nine = (EventName("in", 0, offset) for offset in (7, 8, 9))
    await sink.commit([released(0, (7, seven))], at(in_0=8))
    before = await results_of(broker, topic).ends()
    assert sink.direct is None
    await sink.note_direct("0", {"in/0": 8}, before)
    await by_spark(broker, topic, (8, eight), (80, eight), (9, nine))
    await sink.close()

    later = await reopened(broker, topic, 2)
    assert later.direct == before
    assert later.source.offsets == {"in/0": 8}
    delivered, ends = await results_of(broker, topic).names_after(before, later.source.offsets)
    assert (await results_of(broker, topic).names_after(ends, later.source.offsets))[0] == {}
    assert delivered == Counter({eight: 2, nine: 1})
    later.leave_out(UNKNOWN, delivered)
    await later.commit([released(1, (8, eight), (80, eight), (81, eight))], at(in_0=9))
    assert later.direct == before, "what Spark has delivered is not passed yet"
    assert not later.passed
    await later.commit([released(2, (9, nine)), released(3, (10, EventName("in", 0, 10)))], at(in_0=11))
    assert later.direct is None
    assert later.passed
    assert [number for number, _ in await told(broker, topic)] == [7, 8, 80, 9, 81, 10]
    await later.close()
    last = await reopened(broker, topic, 3)
    assert last.direct is None
    await last.close()


async def test_progress_moves_the_source_and_names_before_it_do_not_count(broker: Broker) -> None:
    topic = await broker.create_topic()
    sink = await reopened(broker, topic, 1)
    results = results_of(broker, topic)
    await sink.note_direct("0", {"in/0": 0}, await results.ends())
    await by_spark(broker, topic, (0, EventName("in", 0, 0)), (1, EventName("in", 0, 1)))
    ends = await results.ends()
    await by_spark(broker, topic, (2, EventName("in", 0, 2)))
    await sink.note_direct("0", {"in/0": 2}, ends)
    assert sink.source.offsets == {"in/0": 2}

    async def names(begins: Mapping[int, int], source: Mapping[str, int]) -> Mapping[EventName, int]:
        return (await results.names_after(begins, source))[0]

    assert await names({}, {"in/0": 2}) == {EventName("in", 0, 2): 1}
    assert await names(ends, {"in/0": 0}) == {EventName("in", 0, 2): 1}
    assert await names({}, {"in/1": 0}) == {}, "of partitions of others"
    await sink.close()


async def test_the_newest_result_tells_how_long_after_its_record_it_came(broker: Broker) -> None:
    events, topic = await broker.create_topic(), await broker.create_topic()
    results = results_of(broker, topic)
    assert await results.newest({f"{events}/0": 0}) is None
    async with AIOKafkaProducer(bootstrap_servers=broker.brokers) as producer:
        await producer.send_and_wait(events, b"old", timestamp_ms=1_000)
        sent = await producer.send_and_wait(events, b"new", timestamp_ms=10_000)
        name = EventName(events, 0, sent.offset)
        await producer.send_and_wait(topic, b"{}", headers=name.headers, timestamp_ms=12_500)
        other = EventName("other", 3, 7)
        await producer.send_and_wait(topic, b"{}", headers=other.headers, timestamp_ms=20_000)
    assert await results.newest({f"{events}/0": name.offset}) == (name, 2.5)
    assert await results.newest({f"{events}/0": name.offset + 1}) is None
    assert await results.newest({"other/0": 0}) is None


async def test_runs_that_were_logged_and_not_delivered_do_not_hide_what_spark_has_delivered(broker: Broker) -> None:
    topic = await broker.create_topic()
    sink = await reopened(broker, topic, 1)
    await sink.note_direct("0", {"in/0": 8}, await results_of(broker, topic).ends())
    eight, nine = EventName("in", 0, 8), EventName("in", 0, 9)
    await by_spark(broker, topic, (8, eight), (9, nine))
    await sink.close()

    later = await reopened(broker, topic, 2)
    notes = DeliveryNotes(later, results_of(broker, topic), SystemClock())
    # The gateway had taken over, and had read up to offset 12.
    assert await notes.recover(at(in_0=12, in_1=3)) == at(in_0=12, in_1=3)
    await later.commit([released(0, (8, eight), (9, nine), (10, EventName("in", 0, 10)))], at(in_0=12, in_1=3))
    assert [number for number, _ in await told(broker, topic)] == [8, 9, 10]
    assert await notes.recover(at(in_0=12)) == at(in_0=12), "nothing is left to be found"
    await later.close()


async def test_while_spark_carries_a_part_the_gateway_commits_others(broker: Broker) -> None:
    topic = await broker.create_topic()
    sink = await reopened(broker, topic, 1)
    before = await results_of(broker, topic).ends()
    await sink.note_direct("0", {"in/0": 8}, before)
    await sink.commit([released(0, (3, EventName("in", 1, 3)))], at(in_0=5, in_1=4))
    assert sink.source.offsets == {"in/0": 8, "in/1": 4}, "a run that was read earlier does not take Spark back"
    assert sink.direct == before
    await sink.note_direct("0", {"in/0": 9}, before)
    assert sink.source.offsets == {"in/0": 9, "in/1": 4}
    await sink.close()
    later = await reopened(broker, topic, 2)
    assert later.source.offsets == {"in/0": 9, "in/1": 4}
    assert later.direct == before
    assert not later.passed
    later.leave_out(UNKNOWN, {})
    assert later.passed
    await later.note_direct("1", {"in/1": 4}, {0: 2})
    assert later.direct == {0: 2}
    await later.close()


def test_of_several_parts_the_earliest_result_counts_until_its_part_is_passed() -> None:
    parts = CarriedParts()
    assert parts.results() is None
    parts.note("0", {"in/0": 5}, {0: 10, 1: 4})
    parts.note("1", {"in/1": 7}, {0: 8, 1: 6, 2: 9})
    assert parts.settled
    assert parts.results() == {0: 8, 1: 4}, "a partition that one note does not have is read from its start"
    parts.leave_out("1", {EventName("in", 1, 8): 2})
    assert not parts.settled
    assert parts.names == {EventName("in", 1, 8): 2}
    assert parts.merged(at(in_0=3, in_1=9)).offsets == {"in/0": 5, "in/1": 9}
    assert parts.passed(at(in_0=99, in_1=8)) == []
    passed = parts.passed(at(in_0=99, in_1=9))
    assert passed == ["1"]
    assert parts.results(passed) == {0: 10, 1: 4}
    parts.forget(passed)
    assert parts.settled
    assert parts.names == {}
    parts.leave_out("0", {})
    assert parts.settled, "Spark has delivered nothing that the gateway would read again"


NAMES_OF = st.sampled_from([EventName("in", partition, offset) for partition in range(2) for offset in range(4)])


@given(st.lists(NAMES_OF | st.none()), st.dictionaries(NAMES_OF, st.integers(0, 4)))
def test_of_each_record_the_first_results_are_left_out_as_many_as_are_there(
    names: Sequence[EventName | None], delivered: Mapping[EventName, int]
) -> None:
    rows = missing(names, delivered)
    assert rows == sorted(set(rows))
    for name in {name for name in names if name is not None}:
        mine = [row for row, each in enumerate(names) if each == name]
        assert [row for row in rows if names[row] == name] == mine[delivered.get(name, 0) :]
    assert [row for row in rows if names[row] is None] == [row for row, each in enumerate(names) if each is None]


def test_results_without_names_are_as_they_are() -> None:
    batch = pa.RecordBatch.from_pydict({"n": [1, 2]})
    assert unnamed(batch) == (batch, [])
    kept, names = unnamed(named((1, None), (2, EventName("in", 0, 5))))
    assert kept.schema.names == ["n"]
    assert names == [None, EventName("in", 0, 5)]
    assert EventName.of([("spillway-topic", b"in")]) is None
