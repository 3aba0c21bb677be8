"""Spark carries partitions from Kafka to Kafka by itself: what it reads and writes is what the gateway would."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from aiokafka import AIOKafkaConsumer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from engines.direct.byjvm import PLAIN, events_of, judged, records_of, why_not
from engines.query.schemas import arrow_of
from engines.spark.session import sibling
from gateway.sinks.rows import json_rows
from infra.messages import (
    NAME_HEADERS,
    NAMES,
    NAMES_DDL,
    BrokerAccess,
    CloseQuery,
    DirectFlow,
    DirectProgress,
    KafkaReading,
    OffsetAt,
    OpenQuery,
    QueryFailed,
    QueryReady,
    QueryRefused,
    RecordFormat,
    direct_name,
)
from infra.rows.jsonlines import LineDecoder
from tests.connectors.kafka_broker import Broker
from tests.connectors.kafka_topics import sent
from tests.engines.host_site import DEADLINE_S, Gateway, host_process

pytestmark = pytest.mark.spark

JARS = Path(__file__).parents[2] / "build" / "spark-kafka" / "jars"
CONNECTOR = {"spark.jars": ",".join(map(str, sorted(JARS.glob("*.jar"))))}
DDL = "id BIGINT, n INT, value DOUBLE, note STRING, ok BOOLEAN"
SQL = "SELECT id, value * 2 AS twice, note FROM events WHERE id % 3 <> 0"
RECORD = "topic STRING, partition INT, offset BIGINT, value BINARY"

_TEXTS = st.text(st.characters(codec="utf-8"), max_size=6) | st.sampled_from(["", "{}", "} {", "\\", "é\n", "null"])
_EVENTS = st.fixed_dictionaries(
    {},
    optional={
        "id": st.none() | st.integers(-(2**63), 2**63 - 1),
        "n": st.none() | st.integers(-(2**31), 2**31 - 1),
        "value": st.none() | st.integers(-1000, 1000) | st.floats(allow_nan=False, allow_infinity=False),
        "note": st.none() | _TEXTS,
        "ok": st.none() | st.booleans(),
        "more": st.sampled_from([{"a": [1, {"b": None}]}, "x", 1.5]),
    },
)
_ODD = st.fixed_dictionaries(
    {},
    optional={
        "id": st.sampled_from([1.0, 1e3, 2**63, "7", True, [1], {}]),
        "n": st.sampled_from([2**31, 1.5, "7"]),
        "value": st.sampled_from(["NaN", "1.5", "Infinity", True]),
        "note": st.sampled_from([5, 1.5, True, [], {"a": 1}]),
        "ok": st.sampled_from([0, 1, "true"]),
    },
)
RAW = (
    b"", b" ", b"null", b"[]", b"5", b'"x"', b"{", b'{"id": 1} x', b'{"id": 1} {"id": 2}', b'{"id": 1}{"id": 2}',
    b'{"id": 1} }',
    b'{"id": 1}, {"id": 2}', b'{"id": 1},', b'{"id": 1}] [', b'{"id": 1}] [{}', b'{"id": 1}],"c":[{}',
    b"{'id': 1}", b'{id: 1}', b'{"id": 1, "id": 2}', b'{"id": NaN}', b'{"value": NaN}', b'{"id": 01}',
    b'{"value": 1e999}', b'[{"id": 1}]', b'  {"id": 3}  ', b'\xef\xbb\xbf{"id": 4}', b'{"note": "\xff"}',
    b'{"note": "\\ud800"}',
    b'{"id": 1,}', b'{"ID": 5}', b'{"id": 1 /* x */}', b'{"id":\n6}', b'{"note": "a\tb"}', b'{"value": .5}',
    b'{"value": -0.0}', b'{"n": -2147483648}', b'{"id": 9223372036854775808}', b'{"value": 1E5}', b'{"ok": tRue}',
    b'{"note": null}',
)  # fmt: skip


def columns(ddl: str) -> StructType:
    found = StructType.fromDDL(ddl)
    assert isinstance(found, StructType)
    return found


def lines(events: Sequence[dict[str, Any]]) -> list[bytes]:
    return [json.dumps(each).encode() for each in events]


def judge(spark: SparkSession, values: Sequence[bytes]) -> list[tuple[bool, dict[str, Any]]]:
    """Return of each record whether Spark reads it plainly, and what."""
    rows = [("t", 0, at, bytearray(value)) for at, value in enumerate(values)]
    found = judged(sibling(spark).createDataFrame(rows, RECORD), columns(f"{DDL}, {NAMES_DDL}")).toArrow().to_pylist()
    return [(row[PLAIN], {field: row[field] for field in columns(DDL).names}) for row in found]


def assert_read_alike(spark: SparkSession, values: Sequence[bytes]) -> None:
    """What Spark reads plainly the gateway reads, too, and with the same values."""
    decoder = LineDecoder(arrow_of(columns(DDL)))
    for value, (plain, row) in zip(values, judge(spark, values), strict=True):
        batch, dead = decoder.decode([value])
        if plain:
            assert batch.num_rows == 1, (value, dead)
            assert row == batch.to_pylist()[0], value


def test_odd_records_are_read_alike_or_not_plainly(spark: SparkSession) -> None:
    assert_read_alike(spark, RAW)


@settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
@given(events=st.lists(_EVENTS, min_size=10, max_size=40), odd=st.lists(_ODD, min_size=10, max_size=40))
def test_what_spark_reads_plainly_is_what_the_gateway_reads(
    spark: SparkSession, events: list[dict[str, Any]], odd: list[dict[str, Any]]
) -> None:
    assert_read_alike(spark, [*lines(events), *lines(odd)])


@pytest.mark.parametrize("condition", ["id > 0", "id IS NOT NULL", "note = 'x' AND ok"])
def test_a_record_that_is_no_event_is_found_though_no_condition_would_hold_for_it(
    spark: SparkSession, condition: str
) -> None:
    rows = [("t", 0, 0, bytearray(b'{"id": 1}')), ("t", 0, 1, bytearray(b"no JSON"))]
    session = sibling(spark)
    events = events_of(session.createDataFrame(rows, RECORD), columns(f"{DDL}, {NAMES_DDL}"))
    with pytest.raises(Exception, match="the record at t/0@1 is no plain event"):
        events.where(condition).select("note", *NAMES).collect()


@settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
@given(events=st.lists(_EVENTS, min_size=10, max_size=40))
def test_ordinary_events_are_plain(spark: SparkSession, events: list[dict[str, Any]]) -> None:
    assert all(plain for plain, _ in judge(spark, lines(events)))


@settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(
        st.tuples(st.none() | st.integers(-(2**63), 2**63 - 1), st.none() | st.floats(), st.none() | _TEXTS),
        min_size=1,
        max_size=20,
    )
)
def test_results_are_written_as_the_gateway_writes_them(spark: SparkSession, rows: list[tuple[Any, ...]]) -> None:
    ddl = f"id BIGINT, `a.b` DOUBLE, note STRING, {NAMES_DDL}"
    session = sibling(spark)
    frame = session.createDataFrame([(*row, "t", 1, at) for at, row in enumerate(rows)], ddl)
    found = records_of(frame, "note", {"id": "id"}).collect()
    batch = pa.RecordBatch.from_pylist(
        [dict(zip(("id", "a.b", "note"), row, strict=True)) for row in rows],
        pa.schema([("id", pa.int64()), ("a.b", pa.float64()), ("note", pa.string())]),
    )
    assert [json.loads(row.value) for row in found] == [json.loads(each) for each in json_rows(batch)]
    assert [row.key for row in found] == [row[2] for row in rows]
    for at, (record, row) in enumerate(zip(found, rows, strict=True)):
        headers = {header.key: bytes(header.value).decode() for header in record.headers}
        told = dict(zip(NAME_HEADERS, ("t", "1", str(at)), strict=True))
        assert headers == (told if row[0] is None else {**told, "id": str(row[0])})


@pytest.mark.parametrize(
    ("ddl", "results", "form", "texts", "why"),
    [
        (DDL, DDL, RecordFormat(), {}, ""),
        (DDL, DDL, RecordFormat(), {"key": "note"}, ""),
        (DDL, DDL, RecordFormat(), {"key": "value"}, "sink.key names value, which is not text"),
        (DDL, DDL, RecordFormat(strict=True), {}, "with drift: strict"),
        (DDL, DDL, RecordFormat(kind="raw"), {}, "its records are raw"),
        (f"{DDL}, at TIMESTAMP", DDL, RecordFormat(), {}, "column at of its schema is timestamp"),
        (DDL, f"{DDL}, at DATE", RecordFormat(), {}, "column at of its results is date"),
        (f"{DDL}, _offset BIGINT", DDL, RecordFormat(), {}, "columns of the records' metadata"),
    ],
)
def test_why_spark_cannot_do_it(
    spark: SparkSession, ddl: str, results: str, form: RecordFormat, texts: dict[str, str], why: str
) -> None:
    del spark  # parses the columns
    events, made = (columns(f"{each}, {NAMES_DDL}") for each in (ddl, results))
    found = why_not(events, made, form, texts)
    assert why in found
    assert bool(found) is bool(why)
    if not why:
        assert "does not tell of which event" in why_not(events, columns(results), form, {})


def event(number: int) -> bytes:
    return json.dumps({"id": number, "value": number / 4, "note": f"n{number}"}).encode()


def expected(numbers: Sequence[int]) -> list[dict[str, Any]]:
    """The results, computed without Spark."""
    return [{"id": n, "twice": n / 2, "note": f"n{n}"} for n in numbers if n % 3]


async def results(broker: Broker, topic: str, count: int) -> list[tuple[dict[str, Any], tuple[str, ...]]]:
    """Wait for so many results; return each with the name of its event."""
    consumer = AIOKafkaConsumer(topic, bootstrap_servers=broker.brokers, auto_offset_reset="earliest")
    await consumer.start()
    found: list[tuple[dict[str, Any], tuple[str, ...]]] = []
    try:
        async with asyncio.timeout(DEADLINE_S):
            while len(found) < count:
                for records in (await consumer.getmany(timeout_ms=200)).values():
                    for record in records:
                        headers = dict(record.headers)
                        name = tuple(headers[each].decode() for each in NAME_HEADERS)
                        found.append((json.loads(record.value), name))
    finally:
        await consumer.stop()
    return found


async def produced(broker: Broker, topic: str, numbers: range, *others: bytes) -> None:
    await sent(broker, topic, *((number % 2, event(number)) for number in numbers), *((0, other) for other in others))


async def test_a_host_carries_partitions_until_it_is_to_stop(broker: Broker, tmp_path: Path) -> None:
    topic, out = await broker.create_topic(partitions=2), await broker.create_topic()
    reads = KafkaReading(access=BrokerAccess(brokers=broker.brokers), format=RecordFormat())
    flow = DirectFlow(
        starts=(OffsetAt(topic, 0, 10), OffsetAt(topic, 1, 20)), access=reads.access, topic=out, checkpoint_s=5.0
    )
    plain = OpenQuery(query="q", epoch=1, schema_ddl=DDL, sql=SQL, reads=reads, names_events=True)
    spec = OpenQuery(
        query=direct_name("q"), epoch=1, schema_ddl=DDL, sql=SQL, reads=reads, names_events=True, direct=flow
    )
    await produced(broker, topic, range(100))
    numbers = [n for n in range(100) if n // 2 >= (20 if n % 2 else 10)]
    async with (
        host_process(tmp_path, master="local[3]", spark_conf=CONNECTOR) as host,
        host.gateway() as gateway,
    ):
        await gateway.until_ready()
        await opened(gateway, spec)
        found = await results(broker, out, len(expected(numbers)))
        assert sorted((row for row, _ in found), key=lambda row: row["id"]) == expected(numbers)
        assert {(row["id"] % 2, row["id"] // 2) for row, _ in found} == {(int(p), int(o)) for _, (_, p, o) in found}
        ends, read = (OffsetAt(topic, 0, 50), OffsetAt(topic, 1, 50)), 0
        while True:
            progress, _ = await gateway.expect(DirectProgress)
            read += progress.events
            if progress.ends == ends:
                break
        assert progress.real_time
        assert read == 70, "each event is counted once"
        # It shows that it lives, although nothing comes.
        progress, _ = await gateway.expect(DirectProgress)
        assert (progress.ends, progress.events, progress.stopped) == (ends, 0, False)
        await produced(broker, topic, range(100, 200))
        await results(broker, out, len(expected([*numbers, *range(100, 200)])))
        await assert_other_in_micro_batches(broker, gateway, spec)
        # Its batch ends first, so that nothing has to be read again.
        await produced(broker, topic, range(200, 210))
        await results(broker, out, len(expected([*numbers, *range(100, 210)])))
        await gateway.link.send(CloseQuery(query=spec.query, epoch=1, after_batch=True))
        assert (await until_stopped(gateway)).ends == (OffsetAt(topic, 0, 105), OffsetAt(topic, 1, 105))

        # A record that Spark would read otherwise than the gateway ends it, and says which.
        await opened(gateway, spec)
        await produced(broker, topic, range(0), b'{"id": 1, "note": 5}')
        failed, _ = await gateway.expect(QueryFailed)
        assert f"the record at {topic}/0@105 is no plain event" in failed.reason

        # Whoever opens the query itself takes everything back.
        starts = (OffsetAt(topic, 0, 106), OffsetAt(topic, 1, 105))
        await opened(gateway, _with(spec, 2, starts))
        await gateway.open(plain)
        told = [each for each in gateway.others if isinstance(each, DirectProgress)]
        assert (told[-1].epoch, told[-1].stopped) == (2, True)
        assert not [each for each in gateway.others if isinstance(each, QueryFailed)]


async def assert_other_in_micro_batches(broker: Broker, gateway: Gateway, spec: OpenQuery) -> None:
    """While another stream occupies two of three cores, one runs in micro-batches, from its offset on."""
    topic, out = await broker.create_topic(), await broker.create_topic()
    assert spec.direct is not None
    flow = msgspec.structs.replace(spec.direct, starts=(OffsetAt(topic, 0, 10),), topic=out)
    other = msgspec.structs.replace(spec, query=direct_name("other"), direct=flow)
    await sent(broker, topic, *((0, event(number)) for number in range(100)))
    await opened(gateway, other)
    found = await results(broker, out, len(expected(range(10, 100))))
    assert sorted((row for row, _ in found), key=lambda row: row["id"]) == expected(range(10, 100))
    while True:
        progress, _ = await gateway.expect(DirectProgress)
        if progress.query == other.query and progress.ends == (OffsetAt(topic, 0, 100),):
            break
    assert not progress.real_time
    await gateway.link.send(CloseQuery(query=other.query, epoch=1))
    while not (progress.query == other.query and progress.stopped):
        progress, _ = await gateway.expect(DirectProgress)


def _with(spec: OpenQuery, epoch: int, starts: tuple[OffsetAt, ...]) -> OpenQuery:
    assert spec.direct is not None
    flow = msgspec.structs.replace(spec.direct, starts=starts)
    return msgspec.structs.replace(spec, epoch=epoch, direct=flow)


async def opened(gateway: Gateway, spec: OpenQuery) -> None:
    await gateway.link.send(spec)
    ready, _ = await gateway.expect(QueryReady | QueryRefused)  # type: ignore[arg-type]
    assert isinstance(ready, QueryReady), ready


async def until_stopped(gateway: Gateway) -> DirectProgress:
    while True:
        progress, _ = await gateway.expect(DirectProgress)
        if progress.stopped:
            return progress
