"""The section ``output`` of a query, alone and with its sink."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.config import ConfigError, load
from infra.messages import APPEND, OutputMode

Write = Callable[..., Path]
QOS = "qos: {latency: 3s}"
SINK = "sink: {type: file, path: out/second}"
UPDATE = "output: {mode: update, key: [customer, day]}"
COMPLETE = "output: {mode: complete}"
KAFKA = "sink: {type: kafka, brokers: b:9092, topic: totals}"
MQTT = "sink: {type: mqtt, host: broker, topic: totals}"
HTTP = "sink: {type: http, url: http://taker/}"
S3 = "sink: {type: s3, bucket: results, prefix: totals}"


def answers(write: Write, output: str, sink: str) -> list[tuple[str, str]]:
    path = write((QOS, f"{QOS}\n    {output}"), (SINK, sink))
    try:
        load(path, {})
    except ConfigError as error:
        return [(problem.key, problem.text) for problem in error.problems]
    return []


def test_append_is_the_default_and_a_key_is_kept_in_order(write: Write) -> None:
    assert load(write(), {}).queries["second"].output.wanted == APPEND
    config = load(write((QOS, f"{QOS}\n    {UPDATE}")), {})
    assert config.queries["second"].output.wanted == OutputMode(mode="update", key=("customer", "day"))


@pytest.mark.parametrize(
    ("output", "sink"),
    [
        *((UPDATE, sink) for sink in (SINK, KAFKA, MQTT, HTTP, S3)),
        *((COMPLETE, sink) for sink in (SINK, HTTP, S3)),
        ("output: {mode: update, key: []}", KAFKA),
        ("output: {mode: append}", KAFKA.replace("topic: totals", "topic: totals, key: customer")),
    ],
)
def test_these_go_together(write: Write, output: str, sink: str) -> None:
    assert answers(write, output, sink) == []


@pytest.mark.parametrize(
    ("output", "sink", "key", "says"),
    [
        ("output: {mode: upsert}", SINK, "output.mode", '"upsert" is not one of append, update, complete'),
        ("output: {mode: update}", SINK, "output.key", "is missing; list the result columns that it groups by, as in"),
        ("output: {key: [customer]}", SINK, "output.key", "is of no use with mode append, in which no result is ever"),
        (
            "output: {mode: complete, key: [customer]}",
            SINK,
            "output.key",
            "is of no use with mode complete, in which all results are replaced together; remove it",
        ),
        ("output: {mode: update, key: [a, b, a]}", SINK, "output.key", "a is listed twice; list each column once"),
        (COMPLETE, KAFKA, "output.mode", "complete cannot go into a topic: a record replaces only the record with its"),
        (COMPLETE, MQTT, "output.mode", "complete cannot go into MQTT: each row is a message of its own"),
        (
            UPDATE,
            KAFKA.replace("topic: totals", "topic: totals, key: customer"),
            "sink.key",
            "is of no use with mode update: the columns of output.key are the key of each record; remove it",
        ),
    ],
)
def test_these_do_not_and_the_answer_says_what_to_write(
    write: Write, output: str, sink: str, key: str, says: str
) -> None:
    ((where, what),) = answers(write, output, sink)
    assert where == f"queries.second.{key}"
    assert says in what


def test_the_example_of_the_documents_is_right(write: Write) -> None:
    page = (Path(__file__).parents[2] / "docs" / "output-modes.md").read_text()
    path = write()
    head, _, _ = path.read_text().partition("queries:\n")
    path.write_text(head + page.split("```yaml\n")[1].split("```")[0])
    assert load(path, {}).queries["totals"].output.wanted == OutputMode(mode="update", key=("customer",))


@pytest.mark.parametrize("output", [UPDATE, COMPLETE])
def test_another_query_reads_only_final_results(write: Write, output: str) -> None:
    path = write(("qos: {latency: 2s}", f"qos: {{latency: 2s}}\n    {output}"))
    with pytest.raises(ConfigError) as caught:
        load(path, {})
    (problem,) = caught.value.problems
    assert problem.key == "queries.second.source.name"
    assert 'query "first" emits no final results: its rows replace earlier ones' in problem.text
