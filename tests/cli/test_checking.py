"""The output of ``spillway check``, without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from gateway.config import QueryConfig
from gateway.config.models import PayloadConfig
from gateway.config.sites import GatewayConfig, PrivateConfig
from gateway.views.check import checking, checksource
from infra.messages import ColumnUse, Predicate, QueryPlan

STATELESS = QueryPlan(switch_class="stateless", switchable=True, narrow=True)


def plan(**changes: object) -> QueryPlan:
    told: dict[str, object] = {"switch_class": "stateless", "switchable": True, "narrow": True, **changes}
    return QueryPlan(**told)  # type: ignore[arg-type]


def query(**changes: object) -> QueryConfig:
    told: dict[str, object] = {
        "source": {"type": "query", "name": "other"},
        "schema": "id STRING, body STRING",
        "sql": "SELECT 1",
        "sink": {"type": "file", "path": "out"},
        "qos": {"latency": "2s"},
        **changes,
    }
    return QueryConfig.model_validate(told)


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (plan(), "stateless: any share may go anywhere; several runs share a micro-batch"),
        (plan(narrow=False), "one run in each micro-batch"),
        (plan(switchable=False, reason="rand"), "stateless, but rand"),
        (plan(switch_class="whole", switchable=False, reason="it sorts"), "whole, because it sorts"),
        (
            plan(switch_class="keyed", switchable=False, reason="it counts", keys=("customer",)),
            "keyed by customer, because it counts: an event never meets one with another customer",
        ),
        (
            plan(switch_class="keyed", switchable=False, reason="it counts", keys=("customer", "shop")),
            "keyed by customer, shop, because it counts: an event never meets one with another value in any of them",
        ),
    ],
)
def test_class(found: QueryPlan, says: str) -> None:
    assert says in checking.class_text(found)


@pytest.mark.parametrize(
    ("said", "found", "max_vms", "says"),
    [
        ({}, plan(), 1, ""),
        ({"mode": "off"}, plan(), 1, "mode is off"),
        ({}, plan(), 0, "max_vms is 0"),
        ({}, plan(switch_class="whole", switchable=False), 1, "its state cannot be moved"),
        ({}, plan(switch_class="whole", switchable=False, movable=True), 1, ""),
        ({"mode": "data"}, plan(switch_class="keyed", switchable=False, movable=True, keys=("k",)), 1, "mode auto"),
        ({}, plan(switchable=False), 1, "could change its answer"),
    ],
)
def test_what_keeps_a_query_at_home(said: dict[str, str], found: QueryPlan, max_vms: int, says: str) -> None:
    text = checking.goes_away(query(switching=said), found, max_vms)
    assert (says in text) if says else text == ""


KAFKA = {"type": "kafka", "brokers": "b:9092", "topics": ["in"]}
TOPIC = {"type": "kafka", "brokers": "b:9092", "topic": "out"}
BUCKET = {"type": "s3", "bucket": "out"}
OBJECTS = {"type": "s3", "bucket": "mails", "prefix": "in"}
REFERENCE = {"data_path": "reference"}
COPIED = {"type": "http", "listen": "127.0.0.1:0", "journal": {"replicate": True}}


ON_CLUSTER = (
    ", if each executor of spark://a:7077 has Spillway with S3's client, in this version, and credentials of its own "
    "for the bucket"
)
LOCAL = "reference: Spark's executors read the events that stay at home"


@pytest.mark.parametrize(
    ("private", "said", "found", "says"),
    [
        ({}, {"source": KAFKA}, plan(), "gateway: all events pass through the gateway: private.data_path says so"),
        (REFERENCE, {"source": KAFKA}, plan(), LOCAL),
        (
            {**REFERENCE, "spark": {"master": "spark://a:7077"}},
            {"source": KAFKA},
            plan(),
            f"{LOCAL}, if each executor of spark://a:7077 has Spillway with Kafka's client, in this version",
        ),
        (
            {"data_path": "direct"},
            {"source": KAFKA, "sink": TOPIC},
            plan(),
            "direct: Spark reads the events and writes",
        ),
        ({"data_path": "direct"}, {"source": KAFKA}, plan(), "its sink is not a topic of the same brokers"),
        (
            {"data_path": "direct"},
            {"source": {**KAFKA, "format": "raw"}, "sink": TOPIC, "schema": "_value BINARY"},
            plan(),
            "its records are not JSON with drift: lenient",
        ),
        ({"data_path": "direct"}, {"source": KAFKA, "sink": TOPIC}, plan(narrow=False), "its plan moves rows"),
        ({"data_path": "auto"}, {"source": KAFKA, "sink": TOPIC}, plan(), "direct: Spark reads the events"),
        (
            {"data_path": "direct"},
            {"source": KAFKA, "sink": TOPIC, "delivery": "exactly_once"},
            plan(),
            "gateway: all events pass through the gateway: delivery: exactly_once does not allow direct",
        ),
        ({"data_path": "auto"}, {"source": KAFKA, "sink": TOPIC, "delivery": "exactly_once"}, plan(), LOCAL),
        ({"data_path": "auto"}, {"source": KAFKA}, plan(), LOCAL),
        (
            {"data_path": "auto"},
            {"source": OBJECTS},
            plan(),
            "gateway: with a local master, auto leaves files",
        ),
        (
            {"data_path": "auto", "spark": {"master": "spark://a:7077"}},
            {"source": OBJECTS},
            plan(),
            LOCAL + ON_CLUSTER,
        ),
        (REFERENCE, {"source": OBJECTS}, plan(), LOCAL),
        ({"data_path": "direct"}, {"source": OBJECTS}, plan(), "gateway: its source is not one Kafka topic or several"),
        (REFERENCE, {"source": COPIED}, plan(), "its source is neither Kafka, nor files, nor S3"),
        (
            {**REFERENCE, "spark": {"master": "spark://a:7077"}},
            {"source": OBJECTS},
            plan(),
            LOCAL + ON_CLUSTER,
        ),
        (
            {**REFERENCE, "spark": {"master": "spark://a:7077"}},
            {"source": {**KAFKA, "sasl": {"mechanism": "PLAIN", "user": "me", "password": "secret"}}},
            plan(),
            "set spark.network.crypto.enabled in private.spark.conf",
        ),
        (REFERENCE, {"source": KAFKA}, plan(switchable=False, reason="it calls rand()"), "gateway: it calls rand()"),
        (REFERENCE, {"source": KAFKA}, plan(narrow=False), "its plan moves rows between partitions"),
    ],
)
def test_who_reads_the_events_at_home(
    private: dict[str, Any], said: dict[str, Any], found: QueryPlan, says: str
) -> None:
    shown = checking.explain(query(**said), checking.Analysed(plan=found), 0, PrivateConfig.model_validate(private))
    text = dict(shown)["data path"]
    assert text == says if says.startswith(LOCAL) else says in text


@pytest.mark.parametrize(
    ("source", "sink", "stateful", "says"),
    [
        (KAFKA, TOPIC, False, "each gateway of fleet town continues it, once this one is silent for 8 s"),
        (KAFKA, BUCKET, False, "each gateway of fleet town continues it"),
        (KAFKA, TOPIC, True, "refused without this state_dir: it keeps state"),
        (KAFKA, {"type": "file", "path": "out"}, False, "a file sink does not store where the query stands. Keep "),
        (KAFKA, {"type": "http", "url": "http://x/y"}, False, "a http sink does not store"),
        ({"type": "http", "listen": "127.0.0.1:0"}, BUCKET, False, "the journal of its http source holds events"),
        (COPIED, BUCKET, False, "each gateway of fleet town continues it"),
        (COPIED, BUCKET, True, "refused without this state_dir: it keeps state"),
        ({"type": "file", "path": "."}, BUCKET, False, "the list of the files that it has read"),
        ({"type": "query", "name": "other"}, BUCKET, False, "it reads the results of query other"),
        (OBJECTS, TOPIC, False, "each gateway of fleet town continues it, once this one is silent for 8 s"),
        ({**OBJECTS, "follow": True}, BUCKET, False, "each gateway of fleet town continues it"),
        ({**OBJECTS, "follow": True}, TOPIC, True, "refused without this state_dir: it keeps state"),
        (OBJECTS, {"type": "file", "path": "out"}, False, "a file sink does not store where the query stands. Keep "),
    ],
)
def test_who_can_continue_it(source: dict[str, Any], sink: dict[str, Any], stateful: bool, says: str) -> None:
    fleet = GatewayConfig.model_validate(
        {"state_dir": "state", "fleet": "town", "object_store": {"folder": "store"}, "lease": "8s"}
    )
    text = checking.fail_over_text(fleet, query(source=source, sink=sink), stateful=stateful)
    assert says in text
    assert ("on storage that every gateway of fleet town can reach" in text) == text.startswith("refused")


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (
            plan(switch_class="whole", switchable=False, reason="it aggregates"),
            (
                "at: an event may come up to 10s later than newer ones before its windows are closed; what comes later "
                "than that is dropped"
            ),
        ),
        (plan(), "at, which changes nothing: each event is processed alone"),
    ],
)
def test_the_event_time_is_shown(found: QueryPlan, says: str) -> None:
    said = query(schema="id STRING, at TIMESTAMP", event_time={"column": "at", "lateness": "10s"})
    assert dict(checking.explain(said, checking.Analysed(plan=found), 1, PrivateConfig()))["event time"] == says


def test_what_happens_to_late_events_is_shown() -> None:
    kept = {"column": "at", "lateness": "10s", "late": "dead-letters"}
    said, found = query(schema="id STRING, at TIMESTAMP", event_time=kept), plan(switch_class="whole", switchable=False)
    shown = dict(checking.explain(said, checking.Analysed(plan=found), 1, PrivateConfig()))["event time"]
    assert shown.endswith("; what comes later than that becomes a dead letter")
    assert said.keep_late == ("",)


@pytest.mark.parametrize(
    ("output", "says"),
    [
        ({}, "append: each result once, when it cannot change any more"),
        (
            {"mode": "update", "key": ["customer", "day"]},
            (
                "update: after each micro-batch the rows that it changed; a row replaces the earlier one by customer, "
                "day"
            ),
        ),
        ({"mode": "update", "key": []}, "as the only row"),
        ({"mode": "complete"}, "complete: after each micro-batch all rows, which replace all earlier ones"),
    ],
)
def test_the_output_mode_of_a_query_with_state_is_shown(output: dict[str, Any], says: str) -> None:
    found = checking.Analysed(plan=plan(switch_class="whole", switchable=False, reason="it aggregates"))
    assert says in dict(checking.explain(query(output=output), found, 1, PrivateConfig()))["output"]
    assert "output" not in dict(checking.explain(query(), checking.Analysed(plan=plan()), 1, PrivateConfig()))


@pytest.mark.parametrize(
    ("other", "says"),
    [
        ({"prefix": "in"}, "other (s3://mails/in): each query processes every object below its own prefix. Remove"),
        ({"prefix": "in/2026"}, "other (s3://mails/in/2026): "),
        ({"prefix": ""}, "other (s3://mails/): "),
        ({"prefix": "in-2026"}, ""),
        ({"bucket": "other"}, ""),
        ({"endpoint": "http://elsewhere:9000"}, ""),
    ],
)
def test_which_queries_read_the_same_objects(other: dict[str, str], says: str) -> None:
    queries = {
        "mine": query(source=OBJECTS),
        "other": query(source={**OBJECTS, **other}),
        "topic": query(source=KAFKA),
    }
    mine, others = (checksource.other_readers_text(queries, name) for name in ("mine", "other"))
    assert mine.startswith(says) if says else mine == ""
    assert others.startswith("mine (s3://mails/in): ") if says else others == ""
    assert checksource.other_readers_text(queries, "topic") == ""


def test_columns_name_nested_fields() -> None:
    kept = pa.schema([("id", pa.string()), ("user", pa.struct([("name", pa.string())]))])
    needed = plan(needed_schema=kept.serialize().to_pybytes())
    assert checking.columns_text(PayloadConfig(), needed) == "id, user(name)"
    assert checking.columns_text(PayloadConfig(trim=False), needed) == "all (trim is off)"


EVENTS = pa.schema([("id", pa.string()), ("body", pa.string()), ("n", pa.int32())])
USES = (ColumnUse(column="id", copies=("id",)), ColumnUse(column="body", other="upper(body)"))


def explained(**payload: list[str]) -> dict[str, str]:
    found = plan(needed_schema=EVENTS.remove(2).serialize().to_pybytes(), uses=USES)
    said = query(schema="id STRING, body STRING, n INT", payload=payload)
    return dict(checking.explain(said, checking.Analysed(plan=found, events=EVENTS), 1, PrivateConfig()))


def test_the_form_of_each_column_is_shown() -> None:
    assert explained(encrypt=["id"])["columns sent"] == "id (encrypted), body"
    assert explained(tokenize=["id"], private=["n"])["columns sent"] == "id (tokens), body; never n"
    assert explained()["columns sent"] == "id, body"


def test_protected_fields_that_keep_a_query_at_home_are_named() -> None:
    lines = explained(encrypt=["body"])
    reason = "its plan reads body, which is encrypted: upper(body)"
    assert lines["class"] == f"stateless, but {reason}"
    assert lines["switching"] == f"stays at home: {reason}"
    assert "columns sent" not in lines


def test_a_plan_that_cannot_be_read_sends_all_and_says_why() -> None:
    assert checking.columns_text(PayloadConfig(), plan(trim_note="no plan")) == "all: no plan"


def test_rows() -> None:
    either = (Predicate(op="is_null", column=("a", "b")), Predicate(op="gt", column=("n",), value=3))
    both = (
        Predicate(op="ends_with", column=("sender",), value="@x.org"),
        Predicate(op="or", children=either),
    )
    text = checking.rows_text(PayloadConfig(), plan(predicates=both))
    assert text == "only where sender ends with '@x.org' and (a.b is null or n > 3)"
    assert checking.rows_text(PayloadConfig(filter=False), plan(predicates=both)) == "all (filter is off)"
    assert checking.rows_text(PayloadConfig(), plan()) == "all"
    noted = plan(needed_schema=pa.schema([]).serialize().to_pybytes(), trim_note="only Spark evaluates x")
    assert checking.rows_text(PayloadConfig(), noted) == "all (only Spark evaluates x)"


def test_codecs() -> None:
    assert checking.codecs_text(PayloadConfig(compress="none")) == "none"
    assert checking.codecs_text(PayloadConfig(compress={"body": "zstd"})) == "body zstd, all others none"
    assert checking.codecs_text(PayloadConfig()).startswith("auto")


def test_thresholds_and_order_are_written_with_their_units() -> None:
    assert checking.thresholds_text(query().thresholds) == (
        "launch a VM above 2.4s, send above 2s, keep a VM above 1s or if it was sent more than 1MB; tolerance 1s"
    )
    third = checking.thresholds_text(query(qos={"latency": "3s"}).thresholds)
    assert third.startswith("launch a VM above 3.6s, send above 3s, keep a VM above 1.5s")
    assert checking.order_text(query()) == "by arrival; a gap is waited for at most 30s"
    assert checking.order_text(query(order="off")).startswith("off")


def test_lines_of_a_query_that_may_leave_and_of_one_that_stays() -> None:
    found = checking.Analysed(plan=STATELESS, results=pa.schema([("n", pa.int32())]))
    leaves = dict(checking.explain(query(), found, 1, PrivateConfig()))
    assert list(leaves) == [
        "class", "data path", "switching", "columns sent", "rows sent", "codecs", "thresholds", "order", "results",
    ]  # fmt: skip
    assert leaves["results"] == "n int32"
    assert "columns sent" not in dict(checking.explain(query(switching={"mode": "off"}), found, 1, PrivateConfig()))


def test_checkpoints_of_a_stateful_query_are_where_executors_must_find_them(tmp_path: Path) -> None:
    found = checking.Analysed(plan(switch_class="whole", switchable=False, reason="it counts"))

    def text(**said: object) -> str | None:
        return dict(checking.explain(query(), found, 0, PrivateConfig.model_validate({"spark": said}))).get(
            "checkpoints"
        )

    assert text() is None
    assert text(checkpoints=tmp_path) == str(tmp_path)
    assert text(checkpoints=tmp_path, master="spark://a:7077") == (
        f"{tmp_path}, which each executor of spark://a:7077 must share: the query is refused if one does not"
    )
    assert f"{tmp_path / 'none'}, which does not exist: create it" in str(text(checkpoints=tmp_path / "none"))
    stateless, there = checking.Analysed(plan()), PrivateConfig.model_validate({"spark": {"checkpoints": tmp_path}})
    assert "checkpoints" not in dict(checking.explain(query(), stateless, 0, there))
