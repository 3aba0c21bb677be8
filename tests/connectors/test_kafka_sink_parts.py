"""The pure parts of the Kafka sink: records, partitions, the division into transactions, and its config's refusals."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from gateway.config.connectors.kafka import KafkaSinkConfig, KafkaSourceConfig, circle_findings
from gateway.connectors.kafkaclients import client_settings, shared_group
from gateway.core.exchange.reorder import Released
from gateway.sinks.base import ReleasedRows, SinkError
from gateway.sinks.kafka.records import Partitioner, RecordMaker, as_text, split_by_size


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, None),
        ("é \"'", "é \"'".encode()),
        ('"quoted"', b'"quoted"'),
        ("", b""),
        (b"\x00\xff", b"\x00\xff"),
        (12, b"12"),
        (1.5, b"1.5"),
        (True, b"true"),
        (Decimal("1.50"), b"1.50"),
        (dt.datetime(2026, 11, 21, 13, 40, tzinfo=dt.UTC), b"2026-11-21T13:40:00Z"),
        (["a", 1], b'["a",1]'),
    ],
)
def test_the_text_of_a_key(value: object, text: bytes | None) -> None:
    assert as_text(value) == text


@given(
    rows=st.lists(
        st.fixed_dictionaries({"k": st.none() | st.text(max_size=3), "n": st.none() | st.integers(0, 2)}), max_size=20
    )
)
def test_equal_keys_have_equal_bytes_and_others_have_not(rows: list[dict[str, Any]]) -> None:
    schema = pa.schema([("n", pa.int64()), ("v", pa.string()), ("k", pa.string())])
    batch = pa.RecordBatch.from_pylist([{**row, "v": str(at)} for at, row in enumerate(rows)], schema=schema)
    made = RecordMaker(None, {}, ("k", "n")).records(Released(0, 20, batch, late=False))
    keys = [record.key or b"" for record in made]
    assert [msgspec.json.decode(key) for key in keys] == rows
    for one, key in zip(rows, keys, strict=True):
        assert [other == key for other in keys] == [other == one for other in rows]
    assert [msgspec.json.decode(record.value)["v"] for record in made] == [str(at) for at in range(len(rows))]


def test_the_key_of_an_only_row_is_an_empty_object() -> None:
    batch = pa.RecordBatch.from_pylist([{"n": 1}])
    (made,) = RecordMaker(None, {}, ()).records(Released(0, 0, batch, late=False))
    assert (made.key, made.value) == (b"{}", b'{"n":1}')


def test_a_column_of_the_key_that_the_results_lack_is_said() -> None:
    batch = pa.RecordBatch.from_pylist([{"n": 1}])
    with pytest.raises(SinkError, match=r'output\.key names "k", which is not a column of the results; they have n'):
        RecordMaker(None, {}, ("k",)).records(Released(0, 0, batch, late=False))


@settings(deadline=None)
@given(
    rows=st.lists(
        st.fixed_dictionaries({"k": st.none() | st.text(max_size=5), "h": st.none() | st.integers(0, 9)}), max_size=20
    ),
    late=st.booleans(),
)
def test_a_record_for_each_row_in_order(rows: list[dict[str, Any]], late: bool) -> None:
    batch = pa.RecordBatch.from_pylist(rows, schema=pa.schema([("k", pa.string()), ("h", pa.int64())]))
    made = RecordMaker("k", {"number": "h"}).records(Released(0, 20, batch, late))
    assert [msgspec.json.decode(record.value) for record in made] == rows
    assert [record.key for record in made] == [None if row["k"] is None else row["k"].encode() for row in rows]
    for record, row in zip(made, rows, strict=True):
        wanted = {"spillway-late": b"true"} if late else {}
        assert dict(record.headers) == wanted | ({} if row["h"] is None else {"number": str(row["h"]).encode()})


@settings(deadline=None)
@given(keys=st.lists(st.binary(max_size=8), max_size=20), count=st.integers(1, 7))
def test_a_key_stays_in_its_partition(keys: list[bytes], count: int) -> None:
    partitioner, partitions = Partitioner(), list(range(count))
    chosen: dict[bytes, int] = {}
    for key in keys + keys:
        partition = partitioner.choose(key, partitions)
        assert partition in partitions
        assert chosen.setdefault(key, partition) == partition
        partitioner.turn()


def test_the_partitions_of_known_keys() -> None:
    """The expected values come from the tests of Kafka's Java client (murmur2)."""
    partitioner = Partitioner()
    for key, positive_hash in [(b"21", -973932308), (b"foobar", -790332482), (b"abc", 479470107)]:
        assert partitioner.choose(key, list(range(13))) == (positive_hash & 0x7FFFFFFF) % 13


def test_without_a_key_all_partitions_take_their_turn() -> None:
    partitioner = Partitioner()
    seen = []
    for _ in range(6):
        assert partitioner.choose(None, [0, 1, 2]) == partitioner.choose(None, [0, 1, 2])
        seen.append(partitioner.choose(None, [0, 1, 2]))
        partitioner.turn()
    assert sorted(seen) == [0, 0, 1, 1, 2, 2]


@settings(deadline=None)
@given(sizes=st.lists(st.integers(0, 50), max_size=20), max_bytes=st.integers(1, 400))
def test_the_cut_keeps_all_releases_in_order(sizes: list[int], max_bytes: int) -> None:
    releases: list[ReleasedRows] = [
        Released(n, n, pa.RecordBatch.from_pydict({"n": pa.array(range(size), pa.int64())}), False)
        for n, size in enumerate(sizes)
    ]
    groups = split_by_size(releases, max_bytes)
    assert [release for group in groups for release in group] == releases
    for group in groups:
        assert len(group) == 1 or sum(release.item.nbytes for release in group) <= max_bytes


def sink(**settings: Any) -> KafkaSinkConfig:
    return KafkaSinkConfig(type="kafka", brokers="a:1, b:2", **({"topic": "out"} | settings))


def source(**settings: Any) -> KafkaSourceConfig:
    return KafkaSourceConfig(type="kafka", **({"brokers": "b:2,a:1", "topics": ("in",)} | settings))


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"topic": "a b"}, "pattern"),
        ({"topic": ""}, "pattern"),
        ({"control_topic": "out"}, "is the topic of the results"),
        ({"headers": {"spillway-late": "x"}}, "give the column another header"),
    ],
)
def test_what_a_sink_refuses(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        sink(**settings)


def test_a_circle_is_found() -> None:
    assert [finding.key for finding in circle_findings(source(topics=("x", "out")), sink())] == [("sink", "topic")]
    assert [finding.key for finding in circle_findings(source(topics=("out-progress",)), sink())] == [
        ("sink", "control_topic")
    ]
    assert circle_findings(source(topics=("out",), brokers="c:3"), sink()) == []
    assert circle_findings(source(), sink()) == []


def test_the_group_is_shared_only_on_the_same_brokers() -> None:
    assert shared_group(source(), sink(), "q") == "spillway-q"
    assert shared_group(source(group="g"), sink(), "q") == "g"
    assert shared_group(source(brokers="a:1"), sink(), "q") is None


def test_how_clients_reach_the_brokers() -> None:
    login = {"mechanism": "SCRAM-SHA-512", "user": "u", "password": "p"}
    assert client_settings(sink())["security_protocol"] == "PLAINTEXT"
    assert client_settings(sink(sasl=login))["security_protocol"] == "SASL_PLAINTEXT"
    assert client_settings(sink(tls={}))["security_protocol"] == "SSL"
    both = client_settings(sink(tls={}, sasl=login))
    assert both["security_protocol"] == "SASL_SSL"
    assert (both["sasl_mechanism"], both["sasl_plain_username"], both["sasl_plain_password"]) == (
        "SCRAM-SHA-512",
        "u",
        "p",
    )
    assert both["ssl_context"].check_hostname
