"""Types of columns: of what Arrow infers, those that Spark reads, and how its DDL writes them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import pyarrow as pa

_BARE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_INSTANT: Final = pa.timestamp("us", tz="UTC")
_NAMES: Final[tuple[tuple[Callable[[pa.DataType], bool], str], ...]] = (
    (pa.types.is_boolean, "BOOLEAN"),
    (pa.types.is_int8, "TINYINT"),
    (pa.types.is_int16, "SMALLINT"),
    (pa.types.is_int32, "INT"),
    (pa.types.is_int64, "BIGINT"),
    (pa.types.is_float32, "FLOAT"),
    (pa.types.is_float64, "DOUBLE"),
    (pa.types.is_string, "STRING"),
    (pa.types.is_binary, "BINARY"),
    (pa.types.is_date32, "DATE"),
    (pa.types.is_timestamp, "TIMESTAMP"),
)


def written_as(kind: pa.DataType) -> pa.DataType:
    """Return the type of a query's schema for values of an inferred one; what Spark has no type for is text."""
    types = pa.types
    if types.is_dictionary(kind):
        return written_as(kind.value_type)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return pa.list_(written_as(kind.value_type))
    if types.is_struct(kind) and kind.num_fields:
        return pa.struct([pa.field(each.name, written_as(each.type)) for each in kind])
    if types.is_map(kind):
        return pa.map_(written_as(kind.key_type), written_as(kind.item_type))
    if types.is_uint64(kind):
        return pa.decimal128(20, 0)
    if types.is_unsigned_integer(kind):
        return {8: pa.int16(), 16: pa.int32(), 32: pa.int64()}[kind.bit_width]
    if types.is_float16(kind):
        return pa.float32()
    if types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        return pa.binary()
    if types.is_timestamp(kind):
        return _INSTANT
    return kind if types.is_decimal(kind) or any(is_kind(kind) for is_kind, _ in _NAMES) else pa.string()


def with_times_as_text(kind: pa.DataType) -> pa.DataType:
    """Return a type that Arrow inferred from text, with texts for times, for which it has a taste of its own."""
    if pa.types.is_list(kind):
        return pa.list_(with_times_as_text(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(each.name, with_times_as_text(each.type)) for each in kind])
    return pa.string() if pa.types.is_temporal(kind) else kind


def ddl_of(schema: pa.Schema) -> str:
    """Return columns whose types are from ``written_as`` as Spark's DDL."""
    return ", ".join(f"{_quoted(field.name)} {_name(field.type)}" for field in schema)


def _name(kind: pa.DataType) -> str:
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision},{kind.scale})"
    if pa.types.is_list(kind):
        return f"ARRAY<{_name(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"MAP<{_name(kind.key_type)}, {_name(kind.item_type)}>"
    if pa.types.is_struct(kind):
        return f"STRUCT<{', '.join(f'{_quoted(each.name)}: {_name(each.type)}' for each in kind)}>"
    return next(name for is_kind, name in _NAMES if is_kind(kind))


def _quoted(name: str) -> str:
    return name if _BARE.fullmatch(name) else f"`{name.replace('`', '``')}`"
