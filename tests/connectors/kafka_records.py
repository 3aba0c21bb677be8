"""Kafka records that are made without a broker."""

from __future__ import annotations

import io
from typing import Any

import fastavro
from aiokafka import ConsumerRecord

AVRO = {
    "type": "record",
    "name": "Reading",
    "fields": [
        {"name": "n", "type": "long"},
        {"name": "text", "type": ["null", "string"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "unused", "type": {"type": "array", "items": "double"}},
    ],
}


def record(value: bytes | None, *, offset: int = 0, **said: Any) -> ConsumerRecord[Any, Any]:
    """A record as the consumer returns it."""
    parts: dict[str, Any] = {"timestamp": 1_700_000_000_123, "key": None, "headers": (), **said}
    return ConsumerRecord(
        topic="t",
        partition=2,
        offset=offset,
        timestamp_type=0,
        value=value,
        checksum=None,
        serialized_key_size=0,
        serialized_value_size=0,
        **parts,
    )


def avro(n: int, text: str | None = None) -> bytes:
    """A record of the schema above."""
    stream = io.BytesIO()
    fastavro.schemaless_writer(
        stream, fastavro.parse_schema(AVRO), {"n": n, "text": text, "at": 1_700_000_000_000_001, "unused": [1.5]}
    )
    return stream.getvalue()
