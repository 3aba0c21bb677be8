"""One column as an Arrow IPC message, and back from untrusted bytes."""

from __future__ import annotations

import hashlib
import struct

import pyarrow as pa

from infra.payload.errors import PayloadError

_PREFIX = struct.Struct("<II")
_CONTINUATION = 0xFFFFFFFF
_RECORD_BATCH = 3
# Positions of fields in the flatbuffer tables Message and RecordBatch of Arrow's format (Message.fbs).
_MESSAGE_TYPE, _MESSAGE_HEADER, _MESSAGE_BODY_LENGTH = 1, 2, 3
_BATCH_LENGTH, _BATCH_COMPRESSION = 0, 3
_REFUSED = (pa.types.is_dictionary, pa.types.is_string_view, pa.types.is_binary_view)


def check_schema(schema: pa.Schema) -> None:
    """Raise ValueError if a schema has no columns, two with the same name, or types that frames do not support."""
    if not len(schema):
        raise ValueError("the schema has no columns")
    if len(set(schema.names)) != len(schema.names):
        raise ValueError(f"the schema has two columns with the same name: {schema.names}")
    for field in schema:
        _check_type(field.type, field.name)


def _check_type(kind: pa.DataType, path: str) -> None:
    if pa.types.is_struct(kind) or pa.types.is_list(kind) or pa.types.is_map(kind):
        for index in range(kind.num_fields):
            _check_type(kind.field(index).type, f"{path}.{kind.field(index).name}")
    elif pa.types.is_nested(kind) or isinstance(kind, pa.BaseExtensionType) or any(test(kind) for test in _REFUSED):
        raise ValueError(f"column {path} is {kind}, which frames do not support")


def fingerprint(schema: pa.Schema) -> bytes:
    """Return 8 bytes that are equal for schemas with the same names and types; nullability does not count."""
    text = ",".join(f"{field.name!r}:{_spell(field.type)}" for field in schema)
    return hashlib.sha256(text.encode()).digest()[:8]


def _spell(kind: pa.DataType) -> str:
    if pa.types.is_struct(kind):
        return "{" + ",".join(f"{member.name!r}:{_spell(member.type)}" for member in kind) + "}"
    if pa.types.is_list(kind):
        return f"[{_spell(kind.value_type)}]"
    if pa.types.is_map(kind):
        return f"<{_spell(kind.key_type)},{_spell(kind.item_type)}>"
    return str(kind)


def write_body(column: pa.Array) -> memoryview:
    """Return a column's values as one Arrow IPC message; for a slice only the bytes of the slice."""
    return memoryview(pa.RecordBatch.from_arrays([column], names=[""]).serialize())


def read_body(body: bytes | memoryview, kind: pa.DataType, rows: int) -> pa.Array:
    """Return the column of ``rows`` values that a message holds, validated in full.

    The array keeps ``body`` alive instead of copying it. Raises PayloadError.
    """
    try:
        _check_message(memoryview(body), rows)
    except struct.error as error:
        raise PayloadError(f"the body is not an Arrow message: {error}") from error
    try:
        batch = pa.ipc.read_record_batch(pa.py_buffer(body), pa.schema([pa.field("", kind)]))
        batch.validate(full=True)
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        raise PayloadError(f"the body does not hold {rows} x {kind}: {error}") from error
    if batch.num_rows != rows:
        raise PayloadError(f"the body holds {batch.num_rows} rows instead of {rows}")
    return batch.column(0)


def _check_message(body: memoryview, rows: int) -> None:
    """Check what Arrow's reader would trust: compressed buffers (it allocates the size they declare) and row counts."""
    continuation, metadata_bytes = _PREFIX.unpack_from(body, 0)
    if continuation != _CONTINUATION or metadata_bytes > len(body) - _PREFIX.size:
        raise PayloadError("the body is not an Arrow message: bad prefix")
    table = body[_PREFIX.size : _PREFIX.size + metadata_bytes]
    message = _u32(table, 0)
    kind, header = _slot(table, message, _MESSAGE_TYPE), _slot(table, message, _MESSAGE_HEADER)
    if not kind or not header or table[kind : kind + 1] != bytes([_RECORD_BATCH]):
        raise PayloadError("the body's Arrow message is not a record batch")
    if _i64(table, _slot(table, message, _MESSAGE_BODY_LENGTH)) != len(body) - _PREFIX.size - metadata_bytes:
        raise PayloadError("the body's Arrow message declares a wrong length")
    batch = header + _u32(table, header)
    if _slot(table, batch, _BATCH_COMPRESSION):
        raise PayloadError("the body's Arrow message has compressed buffers")
    if _i64(table, _slot(table, batch, _BATCH_LENGTH)) != rows:
        raise PayloadError(f"the body's Arrow message does not declare {rows} rows")


def _slot(table: memoryview, at: int, field: int) -> int:
    """Return where a flatbuffer table stores a field, 0 if the field is absent."""
    vtable = at - int(struct.unpack_from("<i", table, at)[0])
    entry = 4 + 2 * field
    if entry + 2 > struct.unpack_from("<H", table, vtable)[0]:
        return 0
    offset = int(struct.unpack_from("<H", table, vtable + entry)[0])
    return at + offset if offset else 0


def _u32(table: memoryview, at: int) -> int:
    return int(struct.unpack_from("<I", table, at)[0])


def _i64(table: memoryview, at: int) -> int:
    """Return the value of a long field; 0 if it is absent."""
    return int(struct.unpack_from("<q", table, at)[0]) if at else 0
