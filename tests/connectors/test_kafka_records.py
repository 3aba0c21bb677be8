"""How Kafka records become events, without a broker."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config.connectors.kafka import KafkaSourceConfig
from gateway.sources.kafka.formats import record_format
from infra.kafka.events import RecordDecoder
from infra.rows.base import DeadRecord, SourceError
from tests.connectors.kafka_records import AVRO, avro, record

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
KEPT: list[tuple[str, pa.DataType]] = [
    ("_key", pa.string()),
    ("_timestamp", pa.timestamp("us", tz="UTC")),
    ("_headers", HEADERS),
    ("_topic", pa.string()),
    ("_partition", pa.int32()),
    ("_offset", pa.int64()),
]
N = pa.schema([("n", pa.int64())])


def decoder(schema: pa.Schema, **said: Any) -> RecordDecoder:
    config = KafkaSourceConfig.model_validate({"type": "kafka", "brokers": "b:9092", "topics": ["t"], **said})
    return RecordDecoder(record_format(config), schema)


def decode(
    values: Sequence[bytes | None], schema: pa.Schema = N, **said: Any
) -> tuple[list[dict[str, Any]], tuple[DeadRecord, ...]]:
    records = [record(value, offset=10 * i) for i, value in enumerate(values)]
    batch, dead = decoder(schema, **said).decode(records, 100)
    batch.validate(full=True)
    assert batch.schema == schema
    return batch.to_pylist(), dead


def test_json_on_several_lines_is_one_event() -> None:
    assert decode([b'{\r\n  "n":\n 1\n}\n', b'{"n": 2, "more": [1]}', b"{}"])[0] == [{"n": 1}, {"n": 2}, {"n": None}]


def test_what_is_no_event_is_told_with_its_number_place_and_bytes() -> None:
    values = [b'{"n": 1}', b"\xff", b'{"n": "x"}', b" \n", b'{"n": 2}', b'{"n": 3} {"n": 4}', b"null"]
    events, dead = decode(values)
    assert events == [{"n": 1}, {"n": 2}]
    assert [(each.record, each.offset, each.place, each.raw) for each in dead] == [
        (100 + i, 10 * i, f"t/2@{10 * i}", values[i]) for i in (1, 2, 3, 5, 6)
    ]
    assert all(each.reason for each in dead)
    long = decode([b"x" * 100_000])[1]
    assert len(long[0].raw) == 100_000, "the dead letter cuts it, and says so"


def test_what_the_broker_keeps_is_in_columns_that_are_named() -> None:
    schema = pa.schema([("_key", pa.string()), ("n", pa.int64()), *KEPT[1:]])
    twice = (("trace", b"\x00\xff"), ("trace", b""), ("empty", None))
    batch, dead = decoder(schema).decode([record(b'{"n": 5}', offset=7, key="schl\u00fc".encode(), headers=twice)], 0)
    assert dead == ()
    (event,) = batch.to_pylist()
    assert event.pop("_timestamp").timestamp() == pytest.approx(1_700_000_000.123)
    assert event == {
        "n": 5,
        "_key": "schl\u00fc",
        "_headers": [{"key": key, "value": value} for key, value in twice],
        "_topic": "t",
        "_partition": 2,
        "_offset": 7,
    }


def test_a_key_that_is_no_text_is_kept_as_bytes_or_is_dead() -> None:
    bytes_schema = pa.schema([("_key", pa.binary()), *N])
    text_schema = pa.schema([("_key", pa.string()), *N])
    odd = record(b'{"n": 5}', key=b"\xff")
    assert decoder(bytes_schema).decode([odd], 0)[0].to_pylist() == [{"_key": b"\xff", "n": 5}]
    batch, dead = decoder(text_schema).decode([odd], 0)
    assert batch.num_rows == 0
    assert "BINARY" in dead[0].reason


def test_a_record_without_a_time_has_none() -> None:
    schema = pa.schema([("_timestamp", pa.timestamp("us", tz="UTC")), *N])
    batch, _ = decoder(schema).decode([record(b"{}", timestamp=-1)], 0)
    assert batch.to_pylist() == [{"_timestamp": None, "n": None}]


def test_a_tombstone_is_an_event_of_nulls_where_its_key_can_be_seen() -> None:
    schema = pa.schema([("_key", pa.binary()), *N, ("_offset", pa.int64())])
    records = [
        record(value, offset=i, key=b"%d" % i) for i, value in enumerate([None, b'{"n": 1}', None, b"?", None, b"{}"])
    ]
    batch, dead = decoder(schema).decode(records, 0)
    assert batch.to_pylist() == [
        {"_key": b"%d" % i, "n": 1 if i == 1 else None, "_offset": i} for i in range(6) if i != 3
    ]
    assert [each.offset for each in dead] == [3]


def test_a_tombstone_is_dead_where_it_says_nothing() -> None:
    events, dead = decode([None, b'{"n": 1}'])
    assert events == [{"n": 1}]
    assert (dead[0].raw, "tombstone" in dead[0].reason) == (b"", True)
    never_null = pa.schema([("_key", pa.binary()), pa.field("n", pa.int64(), nullable=False)])
    assert "NOT NULL" in decode([None], never_null)[1][0].reason


def test_raw_takes_everything_as_it_is() -> None:
    schema = pa.schema([("_value", pa.binary()), ("_offset", pa.int64())])
    events, dead = decode([b"\x00\xff", None, b""], schema, format="raw")
    assert [event["_value"] for event in events] == [b"\x00\xff", None, b""]
    assert dead == ()


@given(st.lists(st.sampled_from([b'{"n": 1}', b"", b"?", None, b'{"n": 2}']), max_size=12))
def test_every_record_is_an_event_or_dead_and_keeps_its_offset(values: list[bytes | None]) -> None:
    schema = pa.schema([("_key", pa.binary()), *N, ("_offset", pa.int64())])
    batch, dead = decoder(schema).decode([record(value, offset=i) for i, value in enumerate(values)], 0)
    found = {event["_offset"]: event["n"] for event in batch.to_pylist()}
    wanted = {b'{"n": 1}': 1, b'{"n": 2}': 2, None: None}
    assert found == {i: wanted[value] for i, value in enumerate(values) if value in wanted}
    assert [each.offset for each in dead] == [i for i, value in enumerate(values) if value in (b"", b"?")]


# ------------------------------------------------------------------------------------------------------------- Avro


@pytest.fixture
def avro_schema(tmp_path: Path) -> str:
    path = tmp_path / "reading.avsc"
    path.write_text(json.dumps(AVRO))
    return str(path)


SOME = pa.schema([("text", pa.string()), ("n", pa.int64()), ("at", pa.timestamp("us", tz="UTC"))])


def test_avro_gives_the_columns_that_are_named(avro_schema: str) -> None:
    events, dead = decode([avro(1, "a"), avro(2)], SOME, format="avro", avro_schema=avro_schema)
    assert [(event["n"], event["text"]) for event in events] == [(1, "a"), (2, None)]
    assert events[0]["at"].timestamp() == pytest.approx(1_700_000_000.000001)
    assert dead == ()


def test_avro_that_does_not_fill_its_bytes_is_dead(avro_schema: str) -> None:
    values = [avro(1), avro(2) + b"\0", avro(3)[:-1], b"", b"\xff" * 40]
    events, dead = decode(values, SOME, format="avro", avro_schema=avro_schema)
    assert [event["n"] for event in events] == [1]
    assert [each.raw for each in dead] == values[1:]


def test_the_number_of_a_registry_is_passed_over(avro_schema: str) -> None:
    values = [b"\0\0\0\0\x07" + avro(1), avro(2), b"\0\0"]
    events, dead = decode(values, SOME, format="confluent-avro", avro_schema=avro_schema)
    assert [event["n"] for event in events] == [1]
    assert [each.record for each in dead] == [101, 102]


def test_avro_values_that_the_column_cannot_hold_are_dead_alone(avro_schema: str) -> None:
    schema = pa.schema([("n", pa.int32())])
    values = [avro(1), avro(1 << 40), avro(3)]
    events, dead = decode(values, schema, format="avro", avro_schema=avro_schema)
    assert [event["n"] for event in events] == [1, 3]
    assert [each.record for each in dead] == [101]
    never_null = pa.schema([pa.field("text", pa.string(), nullable=False)])
    events, dead = decode([avro(1), avro(2, "b")], never_null, format="avro", avro_schema=avro_schema)
    assert events == [{"text": "b"}]
    assert "NOT NULL" in dead[0].reason


# ---------------------------------------------------------------------------------------------------------- refused


@pytest.mark.parametrize(
    ("schema", "said", "what"),
    [
        (pa.schema([("_offset", pa.string()), *N]), {}, "_offset"),
        (pa.schema([("_headers", pa.map_(pa.string(), pa.binary())), *N]), {}, "_headers"),
        (pa.schema([("_key", pa.string())]), {}, "format raw"),
        (pa.schema([("n", pa.int64())]), {"format": "raw"}, "_value BINARY"),
        (pa.schema([("_value", pa.string())]), {"format": "raw"}, "_value BINARY"),
        (pa.schema([("nowhere", pa.int64())]), {"format": "avro", "avro_schema": "AVRO"}, "nowhere"),
        (N, {"format": "avro", "avro_schema": "missing.avsc"}, "not a readable Avro schema"),
    ],
)
def test_what_cannot_be_filled_is_refused(schema: pa.Schema, said: dict[str, Any], what: str, avro_schema: str) -> None:
    if said.get("avro_schema") == "AVRO":
        said = {**said, "avro_schema": avro_schema}
    with pytest.raises(SourceError, match=what):
        decoder(schema, **said)


@pytest.mark.parametrize("text", ["{", "[]", '"long"', '{"type": "nothing"}', '{"type": "record"}'])
def test_a_file_that_is_no_avro_schema_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "bad.avsc"
    path.write_text(text)
    with pytest.raises(SourceError, match=r"bad\.avsc"):
        decoder(N, format="avro", avro_schema=str(path))
