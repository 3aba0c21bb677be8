"""Which settings of a Kafka source are valid, and which are refused when the config is loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from gateway.config.connectors.kafka import KafkaSourceConfig
from gateway.config.queries import QueryConfig
from gateway.connectors.kafkaclients import client_settings

GOOD = {"type": "kafka", "brokers": "b:9092", "topics": ["t"]}
HEADERS = "_headers ARRAY<STRUCT<key: STRING, value: BINARY>>"


def query(schema: str, **said: Any) -> QueryConfig:
    return QueryConfig.model_validate(
        {
            "source": {**GOOD, **said},
            "schema": schema,
            "sql": "SELECT 1 FROM events",
            "sink": {"type": "file", "path": "out"},
            "qos": {"latency": "1s"},
        }
    )


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("n BIGINT", {}),
        ("n BIGINT, _key STRING NOT NULL, _timestamp TIMESTAMP, _topic STRING, _partition INT, _offset BIGINT", {}),
        (f"n BIGINT, {HEADERS}", {}),
        ("n BIGINT, _headers array<struct<`key` string,value binary>>", {}),
        ("_value BINARY, _key BINARY", {"format": "raw"}),
        ("n BIGINT", {"format": "avro", "avro_schema": "a.avsc"}),
        ("n BIGINT", {"format": "confluent-avro", "avro_schema": "a.avsc"}),
    ],
)
def test_what_fits_together_is_taken(schema: str, said: dict[str, Any]) -> None:
    source = query(schema, **said).source
    assert isinstance(source, KafkaSourceConfig)
    assert source.start == "earliest"


@pytest.mark.parametrize(
    ("schema", "said", "says"),
    [
        ("n BIGINT, _timestamp TIMESTAMP_NTZ", {}, "_timestamp"),
        ("n BIGINT, _headers MAP<STRING, BINARY>", {}, "_headers"),
        ("n BIGINT, _offset INT", {}, "_offset"),
        ("_key STRING", {}, "choose format raw"),
        ("n BIGINT", {"format": "raw"}, "it has n"),
        ("_value STRING", {"format": "raw"}, "_value BINARY"),
        ("_key BINARY", {"format": "raw"}, "has no _value"),
        ("n BIGINT", {"format": "avro"}, "needs avro_schema"),
        ("n BIGINT", {"avro_schema": "a.avsc"}, "is not used"),
        ("n BIGINT", {"topics": ["a", "b", "a"]}, "a is listed twice"),
        ("n BIGINT", {"topics": []}, "at least 1"),
        ("n BIGINT", {"start": "newest"}, "earliest"),
        ("n BIGINT", {"tls": {"certificate": "c.pem"}}, "certificate and key go together"),
        ("n BIGINT", {"sasl": {"mechanism": "GSSAPI", "user": "u", "password": "p"}}, "SCRAM"),
    ],
)
def test_what_does_not_fit_together_is_refused(schema: str, said: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        query(schema, **said)


def test_a_login_and_tls_become_the_clients_arguments(tmp_path: Path) -> None:
    sasl = {"mechanism": "SCRAM-SHA-256", "user": "u", "password": "p"}
    plain = client_settings(KafkaSourceConfig.model_validate({**GOOD, "brokers": "a:1,b:2"}))
    assert (plain["bootstrap_servers"], plain["security_protocol"]) == (["a:1", "b:2"], "PLAINTEXT")
    both = client_settings(KafkaSourceConfig.model_validate({**GOOD, "tls": {}, "sasl": sasl}))
    assert both["security_protocol"] == "SASL_SSL"
    assert both["ssl_context"].check_hostname
    assert (both["sasl_mechanism"], both["sasl_plain_username"], both["sasl_plain_password"]) == (
        "SCRAM-SHA-256",
        "u",
        "p",
    )
    assert client_settings(KafkaSourceConfig.model_validate({**GOOD, "tls": {}}))["security_protocol"] == "SSL"
