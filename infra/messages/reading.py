"""How a host reads the events of a query by itself, from Kafka."""

from __future__ import annotations

from typing import Literal

import msgspec


class RecordFormat(msgspec.Struct, frozen=True, kw_only=True):
    """What the values of records are.

    Attributes:
        kind: as the config's ``format`` says.
        avro_schema: the text of the writers' schema, for both kinds of Avro.
        avro_name: the file that it is from, for messages.
        strict: a missing or an unknown field makes a dead record (docs/schema-drift.md).
    """

    kind: Literal["json", "avro", "confluent-avro", "raw"] = "json"
    avro_schema: str = ""
    avro_name: str = ""
    strict: bool = False


class KafkaReading(msgspec.Struct, frozen=True, kw_only=True):
    """Where the records of a query's runs are, and what they are. The brokers ask for no login and no TLS.

    Attributes:
        brokers: host:port, several parted by commas.
        format: of the records.
    """

    brokers: str
    format: RecordFormat


class OffsetRange(msgspec.Struct, frozen=True, array_like=True):
    """The records of a partition from offset ``begin`` to ``end`` (exclusive)."""

    topic: str
    partition: int
    begin: int
    end: int
