"""What ``sources`` accepts, and how mistakes in it are answered."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.config import ConfigError, load
from gateway.config.models import KafkaSourceConfig, SeveralSources

CONFIG = """\
gateway: {{state_dir: state}}
queries:
  matched:
    sources:
      orders:
        source: {{type: kafka, brokers: "b:9092", topics: [orders]}}
        schema: "id BIGINT, customer STRING, at TIMESTAMP"
{orders}
      payments:
        source: {{type: kafka, brokers: "b:9092", topics: [payments]}}
        schema: "id BIGINT, customer STRING, at TIMESTAMP"
    sql: {sql}
    sink: {{type: file, path: out}}
    qos: {{latency: 2s}}
{more}
"""


def write(folder: Path, *, orders: str = "", sql: str = "SELECT 1 FROM orders", more: str = "", **old: str) -> Path:
    indented = CONFIG.format(orders=f"        {orders}", sql=sql, more=f"    {more}")
    for was, now in old.items():
        assert was in indented
        indented = indented.replace(was, now)
    path = folder / "config.yaml"
    path.write_text(indented)
    return path


def problems(path: Path) -> list[tuple[str, str]]:
    with pytest.raises(ConfigError) as caught:
        load(path, {})
    return [(problem.key, problem.text) for problem in caught.value.problems]


def test_the_sources_are_read_by_the_names_of_their_streams(tmp_path: Path) -> None:
    query = load(write(tmp_path, orders="event_time: {column: at, lateness: 10s}"), {}).queries["matched"]
    assert isinstance(query.source, SeveralSources)
    topics = {name: each.topics for name, each in query.inputs.items() if isinstance(each, KafkaSourceConfig)}
    assert topics == {"orders": ("orders",), "payments": ("payments",)}
    orders, payments = query.streams
    assert orders.event_time is not None
    assert (orders.event_time.column, orders.event_time.lateness_ms) == ("at", 10_000)
    assert payments.event_time is None


@pytest.mark.parametrize(
    ("said", "key", "says"),
    [
        ({"orders": "event_time: {column: nope, lateness: 1s}"}, "sources.orders.event_time.column", "is not a column"),
        ({"orders": "evnt_time: {}"}, "sources.orders.evnt_time", 'did you mean "event_time"?'),
        ({"more": "schema: id BIGINT"}, "schema", "each of the sources has its own"),
        ({"more": "event_time: {column: at, lateness: 1s}"}, "event_time", "each of the sources has its own"),
        ({"more": "switching: {mode: keys, key: nope}"}, "switching.key", "write one of _stream, id, customer, at"),
        ({"more": "tables: {Orders: {path: t.parquet, format: parquet}}"}, "tables.Orders", "of one of the sources"),
        ({"more": "order: {by: nope}"}, "order.by", "its columns are _stream, id, customer, at"),
        (
            {"sql": "'CREATE TEMPORARY VIEW orders AS SELECT 1; SELECT 1'"},
            "sources.orders",
            "is also a view that sql creates",
        ),
        ({"payments:": "events:"}, "sources.events", "is the view of the stream"),
        ({"payments:": "ORDERS:"}, "sources", "the same name but for letter case"),
        ({"topics: [payments]": "topics: []"}, "sources.payments.source.topics", "at least 1"),
        ({"customer STRING, at": "_stream STRING, at"}, "sources.orders.schema", "rename yours"),
        ({"customer STRING, at": "`orders.id` STRING, at"}, "sources", "begins with the name of a source and a dot"),
    ],
)
def test_a_mistake_is_answered(tmp_path: Path, said: dict[str, str], key: str, says: str) -> None:
    (tmp_path / "t.parquet").touch()
    found = problems(write(tmp_path, **said))
    assert found[0][0] == f"queries.matched.{key}"
    assert says in found[0][1]


def test_one_source_alone_is_no_list_of_sources(tmp_path: Path) -> None:
    path = write(tmp_path)
    lines = path.read_text().splitlines()
    path.write_text("\n".join(lines[:8] + lines[11:]))
    assert problems(path) == [
        ("queries.matched.sources", "one source alone is given as source and schema, and its view is events")
    ]


def test_a_topic_that_one_source_reads_is_not_written(tmp_path: Path) -> None:
    sink = "{type: kafka, brokers: 'b:9092', topic: payments}"
    ((key, says),) = problems(write(tmp_path, **{"{type: file, path: out}": sink}))
    assert key == "queries.matched.sink.topic"
    assert "is a topic that the query reads" in says
