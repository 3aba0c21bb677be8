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


class BrokerAccess(msgspec.Struct, frozen=True, kw_only=True):
    """How Kafka's brokers are reached. Its text does not show the password.

    Attributes:
        brokers: host:port, several parted by commas.
        tls: whether they speak TLS.
        ca: the PEM file of the trusted authorities; empty: the system's.
        certificate: the PEM file of the client's certificate; empty: there is none.
        key: the PEM file of its key.
        mechanism: of the login (SASL); empty: there is none.
        user: of the login.
        password: of the login.
    """

    brokers: str
    tls: bool = False
    ca: str = ""
    certificate: str = ""
    key: str = ""
    mechanism: str = ""
    user: str = ""
    password: str = ""

    def __repr__(self) -> str:
        """Return a text for logs."""
        return f"BrokerAccess({self.brokers}, tls={self.tls}, user={self.user!r})"


class KafkaReading(msgspec.Struct, frozen=True, kw_only=True):
    """Where the records of a query's runs are, and what they are.

    Attributes:
        access: to the brokers.
        format: of the records.
    """

    access: BrokerAccess
    format: RecordFormat


class OffsetRange(msgspec.Struct, frozen=True, array_like=True):
    """The records of a partition from offset ``begin`` to ``end`` (exclusive)."""

    topic: str
    partition: int
    begin: int
    end: int
