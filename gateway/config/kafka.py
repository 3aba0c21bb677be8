"""The config's sections about Kafka."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from gateway.config.fields import AnyPath, Section
from gateway.config.security import Sasl, Tls


class KafkaSource(Section):
    """Records of topics, read as a member of a consumer group.

    Columns ``_key``, ``_timestamp``, ``_headers``, ``_topic``, ``_partition`` and ``_offset`` of the query's schema
    are filled with what the broker keeps of a record; ``raw`` puts the record itself into ``_value`` (BINARY).

    Attributes:
        brokers: host:port, several parted by commas.
        topics: at least one.
        group: default ``spillway-<query>``.
        format: what a record's value is.
        avro_schema: the writers' schema; needed for ``avro``.
        start: where a group without committed offsets begins.
    """

    type: Literal["kafka"]
    brokers: str = Field(min_length=1)
    topics: Annotated[tuple[str, ...], Field(min_length=1, max_length=100)]
    group: str | None = None
    format: Literal["json", "avro", "raw"] = "json"
    avro_schema: AnyPath | None = None
    start: Literal["earliest", "latest"] = "earliest"
    tls: Tls | None = None
    sasl: Sasl | None = None


class KafkaSink(Section):
    """Results as records of a topic, in transactions with the progress of the query.

    Attributes:
        brokers: host:port, several parted by commas.
        topic: where results go.
        key: the result column whose text is a record's key; none without it.
        headers: header name to result column.
        control_topic: where the progress is kept, one record a transaction; default ``<topic>-progress``.
    """

    type: Literal["kafka"]
    brokers: str = Field(min_length=1)
    topic: str = Field(min_length=1)
    key: str | None = None
    headers: dict[str, str] = Field(default_factory=dict)
    control_topic: str | None = None
    tls: Tls | None = None
    sasl: Sasl | None = None
