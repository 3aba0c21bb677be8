"""The config's sections about Kafka."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from gateway.config.connectors.security import SaslConfig, TlsConfig
from gateway.config.words.fields import AnyPath, Finding, Section, refuse

LATE_HEADER: Final = "spillway-late"
# Kafka's limit, with room for a control topic's suffix.
TopicName = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,240}$")]


# The columns that are filled from a record's metadata, and their types.
_KEPT: Final[dict[str, tuple[str, ...]]] = {
    "_key": ("BINARY", "STRING"),
    "_timestamp": ("TIMESTAMP",),
    "_headers": ("ARRAY<STRUCT<key: STRING, value: BINARY>>",),
    "_topic": ("STRING",),
    "_partition": ("INT", "BIGINT"),
    "_offset": ("BIGINT",),
}


class KafkaSourceConfig(Section):
    """Records of topics, read as a member of a consumer group.

    Columns ``_key``, ``_timestamp``, ``_headers``, ``_topic``, ``_partition`` and ``_offset`` of the query's schema
    are filled from the record's metadata; ``raw`` puts the record itself into ``_value`` (BINARY).

    Attributes:
        brokers: host:port, several parted by commas.
        topics: the topics to read, at least one.
        group: the consumer group. Default: ``spillway-<query>``.
        format: the format of a record's value; ``confluent-avro`` begins with a schema id, which is skipped.
        avro_schema: the file of the writers' schema; needed for both kinds of Avro.
        start: where a group without committed offsets begins; partitions that a topic gets later begin at their
            earliest record.
        tls: how to reach brokers with TLS.
        sasl: how to log in.
    """

    type: Literal["kafka"]
    brokers: str = Field(min_length=1, examples=["broker-1:9092,broker-2:9092"])
    topics: Annotated[tuple[TopicName, ...], Field(min_length=1, max_length=100)] = Field(examples=[["orders"]])
    group: str | None = Field(default=None, examples=["large-orders"])
    format: Literal["json", "avro", "confluent-avro", "raw"] = "json"
    avro_schema: AnyPath | None = Field(default=None, examples=["order.avsc"])
    start: Literal["earliest", "latest"] = "earliest"
    tls: TlsConfig | None = None
    sasl: SaslConfig | None = None

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        findings = []
        needs_schema = self.format in ("avro", "confluent-avro")
        if needs_schema and self.avro_schema is None:
            what = f"format {self.format} needs avro_schema, the file of the schema that the values are written with"
            findings.append(Finding(key=("avro_schema",), what=what))
        if not needs_schema and self.avro_schema is not None:
            what = f"is not used with format {self.format}; remove it, or choose format avro or confluent-avro"
            findings.append(Finding(key=("avro_schema",), what=what))
        twice = sorted({topic for topic in self.topics if self.topics.count(topic) > 1})
        if twice:
            findings.append(Finding(key=("topics",), what=f"{', '.join(twice)} is listed twice; list each topic once"))
        refuse(findings)
        return self

    def column_findings(self, columns: Mapping[str, str]) -> list[Finding]:
        """Return the problems of a query's columns (name to type) that are filled from a Kafka record's metadata."""
        findings = []
        for name, kinds in _KEPT.items():
            if name in columns and not _plain(columns[name]).startswith(tuple(_plain(kind) for kind in kinds)):
                what = f'column "{name}" is {columns[name]}, but a Kafka source fills it with {" or ".join(kinds)}'
                findings.append(Finding(key=("schema",), what=what))
        values = [name for name in columns if name not in _KEPT]
        if self.format == "raw" and (values != ["_value"] or not columns["_value"].startswith("BINARY")):
            others = f"has {', '.join(values)}" if values else "has no _value"
            what = f"with format raw it has _value BINARY, and beside it only {', '.join(_KEPT)}; it {others}"
            findings.append(Finding(key=("schema",), what=what))
        if self.format != "raw" and not values:
            what = "names no column of the records' values; name one, or choose format raw"
            findings.append(Finding(key=("schema",), what=what))
        return findings


def _plain(kind: str) -> str:
    """Return a type without optional parts; it ends with a space, so that TIMESTAMP is not TIMESTAMP_NTZ."""
    nested = re.sub(r"[\s:`]", "", kind.upper())
    return nested if "<" in nested else kind.upper().split()[0] + " "


class KafkaSinkConfig(Section):
    """Results as records of a topic, in transactions with the progress of the query.

    Attributes:
        brokers: host:port, several parted by commas.
        topic: where results go.
        key: the result column whose text is a record's key; none without it.
        headers: record headers, from header name to result column.
        control_topic: the topic for the progress, one record per transaction. Default: ``<topic>-progress``. Created if
            it is missing.
        tls: how to reach brokers with TLS.
        sasl: how to log in.
    """

    type: Literal["kafka"]
    brokers: str = Field(min_length=1, examples=["broker-1:9092,broker-2:9092"])
    topic: TopicName = Field(examples=["large-orders"])
    key: str | None = Field(default=None, examples=["customer"])
    headers: dict[str, str] = Field(default_factory=dict, examples=[{"country": "country_code"}])
    control_topic: TopicName | None = Field(default=None, examples=["large-orders-progress"])
    tls: TlsConfig | None = None
    sasl: SaslConfig | None = None

    @property
    def progress_topic(self) -> str:
        """Return the control topic's name."""
        return self.control_topic or f"{self.topic}-progress"

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        findings = []
        if self.control_topic == self.topic:
            what = "is the topic of the results; name another one, which nothing else writes"
            findings.append(Finding(key=("control_topic",), what=what))
        if LATE_HEADER in self.headers:
            what = "marks late results; give the column another header"
            findings.append(Finding(key=("headers", LATE_HEADER), what=what))
        refuse(findings)
        return self


def same_brokers(source: KafkaSourceConfig, sink: KafkaSinkConfig) -> bool:
    """Return whether both name the same brokers, in any order."""
    return _addresses(source.brokers) == _addresses(sink.brokers)


def circle_findings(source: object, sink: object) -> list[Finding]:
    """Return the problem if a query would read the topics that it writes."""
    if (
        not isinstance(source, KafkaSourceConfig)
        or not isinstance(sink, KafkaSinkConfig)
        or not same_brokers(source, sink)
    ):
        return []
    return [
        Finding(key=("sink", key), what=f'"{topic}" is a topic that the query reads; write to another one')
        for key, topic in (("topic", sink.topic), ("control_topic", sink.progress_topic))
        if topic in source.topics
    ]


def _addresses(brokers: str) -> set[str]:
    return {address.strip() for address in brokers.split(",")}
