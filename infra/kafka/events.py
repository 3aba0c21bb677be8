"""Converts Kafka records to events: their values by format, and the metadata that the broker stores.

The columns ``_key``, ``_timestamp``, ``_headers``, ``_topic``, ``_partition`` and ``_offset``, and those by which
results name their events (``infra.messages.NAMES``), come from the record's metadata; all others from its value. A
record without a value (a tombstone) is an event with null value columns if the schema has ``_key``, which shows what
was deleted; with ``raw`` it is always an event. Otherwise it is a dead record, like a value that cannot be decoded.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import fastavro
import pyarrow as pa
from aiokafka import ConsumerRecord

from infra.messages import NAME_OFFSET, NAME_PARTITION, NAME_TOPIC, RecordFormat
from infra.rows.base import DeadRecord, SourceError
from infra.rows.jsonlines import LineDecoder

_HEADERS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_TYPES: Final[dict[str, tuple[pa.DataType, ...]]] = {
    "_key": (pa.binary(), pa.string()),
    "_timestamp": (pa.timestamp("us", tz="UTC"),),
    "_headers": (_HEADERS,),
    "_topic": (pa.string(),),
    "_partition": (pa.int32(), pa.int64()),
    "_offset": (pa.int64(),),
    NAME_TOPIC: (pa.string(),),
    NAME_PARTITION: (pa.int32(),),
    NAME_OFFSET: (pa.int64(),),
}
_FILL: Final[dict[str, Callable[[Any], Any]]] = {
    "_key": lambda record: record.key,
    "_timestamp": lambda record: record.timestamp * 1000 if record.timestamp >= 0 else None,
    "_headers": lambda record: [{"key": key, "value": value} for key, value in record.headers],
    "_topic": lambda record: record.topic,
    "_partition": lambda record: record.partition,
    "_offset": lambda record: record.offset,
    NAME_TOPIC: lambda record: record.topic,
    NAME_PARTITION: lambda record: record.partition,
    NAME_OFFSET: lambda record: record.offset,
}
# The byte 0 and the 4 bytes of a schema's id in the registry.
_CONFLUENT_PREFIX_BYTES: Final = 5


class _Values(Protocol):
    """Decodes values: the events in order, and (index, reason) of each value that is not one."""

    def decode(self, lines: list[bytes]) -> tuple[pa.RecordBatch, list[tuple[int, str]]]: ...


class RecordDecoder:
    """Decodes the records of one query.

    Args:
        kind: what the values are.
        schema: of the events.

    Raises:
        SourceError: the schema has a column that cannot be filled, or the Avro schema cannot be read.
    """

    def __init__(self, kind: RecordFormat, schema: pa.Schema) -> None:
        self._schema = schema
        self._kept = [field for field in schema if field.name in _TYPES]
        for field in self._kept:
            if not any(_same_type(field.type, each) for each in _TYPES[field.name]):
                wanted = " or ".join(str(each) for each in _TYPES[field.name])
                raise SourceError(f"column {field.name} of a Kafka source is {wanted}, not {field.type}")
        values = pa.schema([field for field in schema if field.name not in _TYPES])
        self._values = _values(kind, values)
        self._raw = kind.kind == "raw"
        self._keeps_tombstones = "_key" in schema.names
        self._key_is_text = self._keeps_tombstones and pa.types.is_string(schema.field("_key").type)
        self._null_refused = [field.name for field in values if not field.nullable]

    def decode(self, records: Sequence[ConsumerRecord], first: int) -> tuple[pa.RecordBatch, tuple[DeadRecord, ...]]:
        """Return the events among ``records``, and those that are not; ``first`` is the number of the first one."""
        values = [record.value for record in records]
        if None not in values and not self._key_is_text:
            batch, undecodable = self._values.decode(values)
            if not undecodable and batch.num_rows == len(values):
                return self._with_metadata(batch, records), ()
        return self._decode_each(records, first)

    def _with_metadata(self, batch: pa.RecordBatch, records: Sequence[ConsumerRecord]) -> pa.RecordBatch:
        """Return the events of records with the columns that are of these records' metadata."""
        if not self._kept:
            return batch
        columns = {field.name: self._column(field, records) for field in self._kept}
        columns |= dict(zip(batch.schema.names, batch.columns, strict=True))
        return pa.RecordBatch.from_arrays([columns[field.name] for field in self._schema], schema=self._schema)

    def _decode_each(
        self, records: Sequence[ConsumerRecord], first: int
    ) -> tuple[pa.RecordBatch, tuple[DeadRecord, ...]]:
        """Decode records of which some are dead, or have no value, or whose metadata are columns."""
        dead: dict[int, str] = {}
        tombstones: list[int] = []
        whole: list[int] = []
        for i, record in enumerate(records):
            reason = self._refusal(record)
            if reason is not None:
                dead[i] = reason
            elif record.value is None and not self._raw:
                tombstones.append(i)
            else:
                whole.append(i)
        batch, undecodable = self._values.decode([records[i].value for i in whole])
        dead.update({whole[i]: reason for i, reason in undecodable})
        decoded = [i for i in whole if i not in dead]
        assert batch.num_rows == len(decoded), "each value is one event or a dead record"
        order = sorted([*decoded, *tombstones])
        values = self._with_tombstones(batch, decoded, tombstones)
        event_batch = self._with_metadata(values, [records[i] for i in order])
        return event_batch, tuple(_dead(records[i], first + i, dead[i]) for i in sorted(dead))

    def _refusal(self, record: ConsumerRecord) -> str | None:
        if self._key_is_text and record.key is not None:
            try:
                record.key.decode()
            except UnicodeDecodeError:
                return "the key is not UTF-8; declare _key as BINARY"
        if self._raw:
            return None
        if record.value is None:
            if not self._keeps_tombstones:
                return "the record has no value (a tombstone); with _key in the schema it is an event"
            if self._null_refused:
                return f"the record has no value (a tombstone), and column {self._null_refused[0]} is NOT NULL"
            return None
        return None if record.value.strip() else "the value is empty"

    def _column(self, field: pa.Field, records: Sequence[ConsumerRecord]) -> pa.Array:
        fill = _FILL[field.name]
        values = [fill(record) for record in records]
        if field.name == "_key" and self._key_is_text:
            return pa.array(values, pa.binary()).cast(pa.string())
        if field.name == "_timestamp":
            return pa.array(values, pa.int64()).cast(field.type)
        return pa.array(values, field.type)

    def _with_tombstones(self, batch: pa.RecordBatch, decoded: list[int], tombstones: list[int]) -> pa.RecordBatch:
        """Return the events of values with a row of nulls for each tombstone, in the order of the records."""
        if not tombstones:
            return batch
        rows = {at: row for row, at in enumerate(decoded)}
        places = [rows.get(at) for at in sorted([*decoded, *tombstones])]
        taken: pa.RecordBatch = batch.take(pa.array(places, pa.int64()))
        return taken


def _dead(record: ConsumerRecord, number: int, reason: str) -> DeadRecord:
    raw = record.value if record.value is not None else b""
    place = f"{record.topic}/{record.partition}@{record.offset}"
    return DeadRecord(number, record.offset, reason, raw, place)


def _values(kind: RecordFormat, schema: pa.Schema) -> _Values:
    if kind.kind == "raw":
        if schema.names != ["_value"] or schema.field("_value").type != pa.binary():
            raise SourceError(
                "with format raw the schema has _value BINARY, and beside it only _key, _timestamp, _headers, _topic, "
                f"_partition and _offset; it has {', '.join(schema.names) or 'no _value'}"
            )
        return _RawValues(schema)
    if not schema.names:
        raise SourceError("the schema names no column of the records' values: name one, or choose format raw")
    if kind.kind == "json":
        return _JsonValues(schema, strict=kind.strict)
    return _AvroValues(kind, schema)


class _RawValues:
    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema

    def decode(self, lines: list[bytes]) -> tuple[pa.RecordBatch, list[tuple[int, str]]]:
        """Use each value unchanged."""
        return pa.RecordBatch.from_arrays([pa.array(lines, pa.binary())], schema=self._schema), []


class _JsonValues:
    def __init__(self, schema: pa.Schema, *, strict: bool) -> None:
        self._lines = LineDecoder(schema, strict=strict)

    def decode(self, lines: list[bytes]) -> tuple[pa.RecordBatch, list[tuple[int, str]]]:
        """Decode each value as one JSON object, which may span several lines."""
        # Between JSON tokens a line end is a blank; inside of text it is not allowed.
        joined = b"".join(lines)
        if b"\n" in joined or b"\r" in joined:
            lines = [line.replace(b"\n", b" ").replace(b"\r", b" ") for line in lines]
        return self._lines.decode(lines)


class _AvroValues:
    """Values written with one known Avro schema.

    A schema's id in a registry, which Confluent's clients write before each value, is skipped, not looked up. A value
    that does not use exactly its bytes was written with another schema and is a dead record.
    """

    def __init__(self, kind: RecordFormat, schema: pa.Schema) -> None:
        path = kind.avro_name
        try:
            self._writers = fastavro.parse_schema(json.loads(kind.avro_schema))
        except (ValueError, fastavro.schema.SchemaParseException, fastavro.schema.UnknownType) as error:
            raise SourceError(f"{path} is not a readable Avro schema: {error!r}") from error
        if not isinstance(self._writers, dict) or self._writers.get("type") != "record":
            raise SourceError(f"{path} is not the schema of an Avro record: give the schema of the values")
        fields = {field["name"] for field in self._writers["fields"]}
        missing = [name for name in schema.names if name not in fields]
        if missing:
            raise SourceError(f"{path} has no field {', '.join(missing)}; its fields are {', '.join(sorted(fields))}")
        self._schema = schema
        self._skip = _CONFLUENT_PREFIX_BYTES if kind.kind == "confluent-avro" else 0

    def decode(self, lines: list[bytes]) -> tuple[pa.RecordBatch, list[tuple[int, str]]]:
        """Decode each value with the writers' schema."""
        dead: list[tuple[int, str]] = []
        rows: list[tuple[int, dict[str, Any]]] = []
        for i, line in enumerate(lines):
            try:
                rows.append((i, self._row(line)))
            # fastavro's documentation does not limit the errors that it raises on bytes of another schema.
            except Exception as error:
                dead.append((i, f"the value is not of the Avro schema: {error!r}"[:500]))
        batches: list[pa.RecordBatch] = []
        self._convert(rows, batches, dead)
        table = pa.Table.from_batches(batches, self._schema).combine_chunks()
        empty = pa.RecordBatch.from_pylist([], schema=self._schema)
        return (table.to_batches() or [empty])[0], sorted(dead)

    def _row(self, line: bytes) -> dict[str, Any]:
        if self._skip and line[:1] != b"\0":
            raise ValueError("it does not begin with the byte 0 and a schema id; use format avro")
        stream = io.BytesIO(line)
        stream.seek(self._skip)
        row = fastavro.schemaless_reader(stream, self._writers, None)
        left_bytes = len(line) - stream.tell()
        if left_bytes:
            raise ValueError(f"{left_bytes} bytes are left over")
        return {name: row[name] for name in self._schema.names}  # type: ignore[index]

    def _convert(
        self, rows: list[tuple[int, dict[str, Any]]], batches: list[pa.RecordBatch], dead: list[tuple[int, str]]
    ) -> None:
        """Halve the rows that cannot be converted until the bad rows are isolated."""
        if not rows:
            return
        try:
            batch = pa.RecordBatch.from_pylist([row for _, row in rows], schema=self._schema)
            batches.append(_without_wrong_nulls(batch))
        except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
            if len(rows) == 1:
                dead.append((rows[0][0], " ".join(str(error).split())))
                return
            middle = len(rows) // 2
            self._convert(rows[:middle], batches, dead)
            self._convert(rows[middle:], batches, dead)


def _without_wrong_nulls(batch: pa.RecordBatch) -> pa.RecordBatch:
    nulls = [f.name for f in batch.schema if not f.nullable and batch.column(f.name).null_count]
    if nulls:
        raise ValueError(f"column {nulls[0]} is NOT NULL, but the value has null")
    return batch


def _same_type(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Compare types, ignoring nullability inside of lists and the names of their elements."""
    if pa.types.is_list(found) and pa.types.is_list(wanted):
        return _same_type(found.value_type, wanted.value_type)
    if pa.types.is_struct(found) and pa.types.is_struct(wanted):
        return [(f.name, f.type) for f in found] == [(f.name, f.type) for f in wanted]
    return bool(found == wanted)
