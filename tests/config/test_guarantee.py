"""The key ``delivery`` of a query, with its sources and its sink."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.config import ConfigError, load

Write = Callable[..., Path]
ONCE = "delivery: exactly_once"
FILE = "sink: {type: file, path: out/first}"
KAFKA = "sink: {type: kafka, brokers: b:9092, topic: totals}"
S3 = "sink: {type: s3, bucket: results, prefix: totals}"
MQTT = "sink: {type: mqtt, host: broker, topic: totals}"
HTTP = "sink: {type: http, url: http://taker/}"
REPLAYED = "source: {type: file, path: mail.jsonl.gz, replay: {rate: 2000/s}}\n"
PUBLISHED = "source: {type: mqtt, host: broker, topics: [mails]%s}\n"
POSTED = "source: {type: http, listen: 127.0.0.1:0}\n"
QOS = "qos: {latency: 2s}\n"
SECOND = ("source: {type: query, name: first}", "source: {type: file, path: mail.jsonl.gz}")


def answers(write: Write, delivery: str, source: str, sink: str) -> list[tuple[str, str]]:
    try:
        load(write((REPLAYED, source), (FILE, sink), (QOS, f"{QOS}    {delivery}\n"), SECOND), {})
    except ConfigError as error:
        return [(problem.key, problem.text) for problem in error.problems]
    return []


def test_a_query_insists_on_nothing_by_default(write: Write) -> None:
    assert load(write(), {}).queries["first"].delivery == "auto"


@pytest.mark.parametrize(
    ("source", "sink"),
    [
        *((REPLAYED, sink) for sink in (FILE, KAFKA, S3)),
        (POSTED, KAFKA),
        (PUBLISHED % ", qos: 2", KAFKA),
        ("source: {type: kafka, brokers: b:9092, topics: [in]}\n", KAFKA),
    ],
)
def test_these_can_deliver_exactly_once(write: Write, source: str, sink: str) -> None:
    assert answers(write, ONCE, source, sink) == []


@pytest.mark.parametrize(
    ("source", "sink", "key", "says"),
    [
        (REPLAYED, MQTT, "delivery", "cannot be exactly_once, since the sink is mqtt: a result may come twice"),
        (REPLAYED, HTTP, "delivery", "cannot be exactly_once, since the sink is http"),
        (PUBLISHED % "", KAFKA, "source.qos", "must be 2 with delivery: exactly_once, since the broker may send a"),
        (PUBLISHED % ", qos: 0", KAFKA, "source.qos", "a message of QoS 0 twice or lose it; write qos: 2"),
    ],
)
def test_these_cannot_and_the_answer_says_what_to_write(
    write: Write, source: str, sink: str, key: str, says: str
) -> None:
    ((where, what),) = answers(write, ONCE, source, sink)
    assert where == f"queries.first.{key}"
    assert says in what
    assert answers(write, "delivery: auto", source, sink) == []


def test_a_wrong_word_is_refused(write: Write) -> None:
    ((where, what),) = answers(write, "delivery: exactly-once", REPLAYED, FILE)
    assert where == "queries.first.delivery"
    assert 'did you mean "exactly_once"' in what
