"""How a host reads the events of a query by itself, from Kafka or from files."""

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


class KafkaReading(msgspec.Struct, frozen=True, kw_only=True, tag="kafka"):
    """Where the records of a query's runs are, and what they are.

    Attributes:
        access: to the brokers.
        format: of the records.
    """

    access: BrokerAccess
    format: RecordFormat


class OffsetRange(msgspec.Struct, frozen=True, array_like=True, tag="offsets"):
    """The records of a partition from offset ``begin`` to ``end`` (exclusive)."""

    topic: str
    partition: int
    begin: int
    end: int


class BucketPlace(msgspec.Struct, frozen=True, kw_only=True):
    """Objects below a prefix of a bucket; whoever reads them finds the credentials by itself.

    Attributes:
        bucket: its name.
        prefix: precedes the names of all objects.
        endpoint: URL of a store other than Amazon's.
        region: of the bucket.
    """

    bucket: str
    prefix: str = ""
    endpoint: str | None = None
    region: str | None = None


class FileReading(msgspec.Struct, frozen=True, kw_only=True, tag="files"):
    """Where the files of a query's runs are, and what they are.

    Attributes:
        folder: of the files, if they are no objects.
        bucket: of the objects.
        named: the column ``_file`` of the schema gets the file's name.
        strict: a missing or an unknown field makes a dead record (docs/schema-drift.md).
    """

    folder: str = ""
    bucket: BucketPlace | None = None
    named: bool = False
    strict: bool = False


class FileRange(msgspec.Struct, frozen=True, array_like=True, tag="file"):
    """Consecutive records of a file.

    Attributes:
        name: of the file, in its folder or below its prefix.
        begin: offset of the first record: in bytes, or in rows if the format has these.
        end: offset after the last record; -1 if that is the end of the file.
        records: how many there are.
        size_bytes: of the file when it was listed; -1 if that does not matter.
        changed_ns: when it was changed last, since 1970; 0 if that is unknown.
        digest: the hash of its ends, or an object's ETag; empty if that does not matter.
    """

    name: str
    begin: int
    end: int
    records: int
    size_bytes: int = -1
    changed_ns: int = 0
    digest: str = ""


Reading = KafkaReading | FileReading
Range = OffsetRange | FileRange
