"""Answers do not depend on who reads the events: executors from Kafka, Spark by itself, or who sends them along."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engines.direct.byjvm import events_of, records_of
from engines.query.known import KnownQueries
from engines.reading.references import row_of
from engines.spark.session import sibling
from engines.streaming.feed import pack, stream_of
from gateway.sinks.rows import json_rows
from infra.messages import BrokerAccess, KafkaReading, OffsetRange, OpenQuery, RecordFormat
from infra.rows.jsonlines import LineDecoder
from tests.connectors.kafka_broker import Broker
from tests.connectors.kafka_topics import sent
from tests.engines.stream_bench import Bench, answered, assert_alike

pytestmark = pytest.mark.spark

SCHEMA = "id BIGINT, amount INT, price DOUBLE, note STRING, ok BOOLEAN, at TIMESTAMP, tags ARRAY<STRING>"
QUERIES = (
    "SELECT * FROM events",
    "SELECT id, CASE WHEN ok THEN amount ELSE 0 END AS a FROM events WHERE price > 0 OR price IS NULL",
    "SELECT id, tag FROM events LATERAL VIEW OUTER explode(tags) t AS tag",
    "SELECT id, CAST(note AS INT) + 1 AS next, date_trunc('HOUR', at) AS hour FROM events",
)
FLAT = "id BIGINT, amount INT, price DOUBLE, note STRING, ok BOOLEAN"
BY_ITSELF = (
    "SELECT * FROM events",
    "SELECT id, CASE WHEN ok THEN amount ELSE 0 END AS a FROM events WHERE price > 0 OR price IS NULL",
    "SELECT id, word FROM events LATERAL VIEW OUTER explode(split(note, '2')) t AS word",
    "SELECT id, CAST(note AS INT) + 1 AS next FROM events WHERE ok",
)
RECORD = "topic STRING, partition INT, offset BIGINT, value BINARY"
PARTITIONS = 2

_EVENTS = st.fixed_dictionaries(
    {"id": st.integers(0, 99)},
    optional={
        "amount": st.none() | st.integers(-(2**31), 2**31 - 1),
        "price": st.none() | st.floats(allow_nan=False, allow_infinity=False),
        "note": st.none() | st.sampled_from(["1", "22", "é\n", "x"]),
        "ok": st.none() | st.booleans(),
        "at": st.sampled_from(["2026-01-02 03:04:05", "2026-01-02T03:04:05.678Z", None]),
        "tags": st.none() | st.lists(st.none() | st.sampled_from(["a", "b"]), max_size=3),
        "unknown": st.just({"a": [1]}),
    },
).map(lambda event: json.dumps(event).encode())
_NO_EVENTS = st.sampled_from([b"{no JSON", b"[]", b'{"id": "seven"}', b'{"id": 1, "amount": 3000000000}', b"\xff"])
_RECORDS = st.lists(st.one_of(_EVENTS, _EVENTS, _EVENTS, _NO_EVENTS), max_size=12)
_CUTS = st.lists(st.tuples(*[st.integers(0, 12)] * PARTITIONS), max_size=3)

Parts = tuple[Sequence[bytes], ...]


def runs_of(records: Parts, cuts: Sequence[tuple[int, ...]]) -> list[list[tuple[int, int]]]:
    """Cut the records of all partitions into runs: of each partition the records from here to there."""
    ends = [*sorted(cuts, key=sum), tuple(len(part) for part in records)]
    at, found = [0] * PARTITIONS, []
    for each in ends:
        end = [min(len(part), max(begin, stop)) for part, begin, stop in zip(records, at, each, strict=True)]
        found.append(list(zip(at, end, strict=True)))
        at = end
    return [run for run in found if any(begin < end for begin, end in run)]


class Both:
    """One query, open twice: it gets the same records by reference and by value."""

    def __init__(self, bench: Bench, broker: Broker, sql: str) -> None:
        reads = KafkaReading(access=BrokerAccess(brokers=broker.brokers), format=RecordFormat())
        self.broker = broker
        self.topic = asyncio.run(broker.create_topic(partitions=PARTITIONS))
        self.referring = bench.open(sql, schema=SCHEMA, reads=reads)
        self.valued = bench.open(sql, schema=SCHEMA)
        self.decoder = LineDecoder(self.valued.schema)
        self.written, self.tags = [0] * PARTITIONS, itertools.count()
        assert self.referring.stream.by_reference
        assert not self.valued.stream.by_reference

    def put(self, records: Parts, runs: Sequence[Sequence[tuple[int, int]]]) -> list[tuple[int, int, int]]:
        """Put runs on both paths; return of each its tag, its events and its dead records."""
        numbered = ((number, value) for number, part in enumerate(records) for value in part)
        asyncio.run(sent(self.broker, self.topic, *numbered))
        told = []
        for run in runs:
            tag = next(self.tags)
            ranges = [
                OffsetRange(self.topic, number, self.written[number] + begin, self.written[number] + end)
                for number, (begin, end) in enumerate(run)
                if begin < end
            ]
            self.referring.stream.put_ranges([stream_of(row_of(each)) for each in ranges], tag)
            lines = [line for part, (begin, end) in zip(records, run, strict=True) for line in part[begin:end]]
            events, dead = self.decoder.decode(lines)
            self.valued.stream.put(pack(events), tag, 0, 0)
            told.append((tag, events.num_rows, len(dead)))
        self.written = [before + len(part) for before, part in zip(self.written, records, strict=True)]
        return told


@pytest.mark.parametrize("sql", QUERIES)
def test_both_paths_answer_alike(bench: Bench, broker: Broker, sql: str) -> None:
    both = Both(bench, broker, sql)

    @settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
    @given(records=st.tuples(*[_RECORDS] * PARTITIONS), cuts=_CUTS)
    def alike(records: Parts, cuts: list[tuple[int, ...]]) -> None:
        told = both.put(records, runs_of(records, cuts))
        assert_alike(both.referring, both.valued, told)

    alike()


@pytest.mark.parametrize("sql", BY_ITSELF)
def test_spark_by_itself_answers_alike_or_fails(bench: Bench, sql: str) -> None:
    valued, asked = bench.open(sql, schema=FLAT), OpenQuery(query="d", epoch=1, schema_ddl=FLAT, sql=sql)
    direct = KnownQueries().understand(bench.spark, msgspec.structs.replace(asked, names_events=True))
    decoder, tags = LineDecoder(valued.schema), itertools.count()

    def by_itself(values: Sequence[bytes]) -> list[dict[str, Any]]:
        rows = [("t", 0, at, bytearray(value)) for at, value in enumerate(values)]
        records = sibling(bench.spark).createDataFrame(rows, RECORD)
        written = records_of(direct.build(events_of(records, direct.columns)), "", {}).collect()
        return [json.loads(record.value) for record in written]

    @settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
    @given(events=st.lists(_EVENTS, min_size=1, max_size=12), odd=st.none() | _NO_EVENTS | st.just(b'{"note": 5}'))
    def alike(events: list[bytes], odd: bytes | None) -> None:
        batch, dead = decoder.decode(events)
        assert not dead
        tag = next(tags)
        valued.stream.put(pack(batch), tag, 0, 0)
        rows, poison = answered(valued, [tag])[tag]
        if odd is not None or poison:
            with pytest.raises(Exception, match="is no plain event" if odd is not None else "CAST_INVALID_INPUT"):
                by_itself([*events, *([] if odd is None else [odd])])
        else:
            assert by_itself(events) == [json.loads(line) for line in json_rows(rows)]

    alike()


def test_runs_are_all_records_once() -> None:
    records: Parts = ([b"a", b"b", b"c"], [b"d"])
    assert runs_of(records, [(1, 0), (3, 1)]) == [[(0, 1), (0, 0)], [(1, 3), (0, 1)]]
    assert runs_of(records, []) == [[(0, 3), (0, 1)]]
    assert runs_of(([], []), [(2, 2)]) == []
