"""Converts a query's DDL to the Arrow schema of its frames."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType


def struct_of(session: SparkSession, ddl: str) -> StructType:
    """Return the columns that a DDL declares, all nullable, because a column that a query does not need is not sent.

    Raises:
        pyspark.errors.ParseException: the DDL cannot be read.
    """
    parsed = session.createDataFrame([], ddl).schema
    return struct_nullable(parsed)


def struct_nullable(struct: StructType) -> StructType:
    """Return the same columns without any NOT NULL, at any depth."""
    return StructType([StructField(each.name, _nullable(each.dataType), True) for each in struct.fields])


def arrow_of(struct: StructType) -> pa.Schema:
    """Return the Arrow schema that Spark derives from columns.

    Raises:
        pyspark.errors.UnsupportedOperationException: Arrow lacks a type.
    """
    return to_arrow_schema(struct, timezone="UTC", prefers_large_types=False)


def serialised(schema: pa.Schema) -> bytes:
    """Return a schema as an Arrow IPC message, without metadata."""
    return bytes(schema.remove_metadata().serialize())


def merged(full: pa.Schema, parts: list[dict[str, Any]]) -> pa.Schema:
    """Return the part of ``full`` that is in any of ``parts`` (Spark schemas as JSON), in the order of ``full``.

    Nested structs keep only the fields that a part has.
    """
    fields = []
    for field in full:
        kinds = [each["type"] for part in parts for each in part["fields"] if _same(each["name"], field.name)]
        if kinds:
            fields.append(field.with_type(_pruned(field.type, kinds)))
    return pa.schema(fields)


def _pruned(kind: pa.DataType, kinds: list[Any]) -> pa.DataType:
    if pa.types.is_struct(kind):
        kept = []
        for index in range(kind.num_fields):
            field = kind.field(index)
            inner = [each["type"] for part in kinds for each in part["fields"] if _same(each["name"], field.name)]
            if inner:
                kept.append(field.with_type(_pruned(field.type, inner)))
        return pa.struct(kept)
    if pa.types.is_list(kind):
        item = kind.value_field
        return pa.list_(item.with_type(_pruned(item.type, [part["elementType"] for part in kinds])))
    # Spark prunes inside map values too. A map would have to be rebuilt for that, so it is sent whole.
    return kind


def _same(one: str, other: str) -> bool:
    return one.lower() == other.lower()


def _nullable(kind: DataType) -> DataType:
    if isinstance(kind, StructType):
        return struct_nullable(kind)
    if isinstance(kind, ArrayType):
        return ArrayType(_nullable(kind.elementType), True)
    if isinstance(kind, MapType):
        return MapType(_nullable(kind.keyType), _nullable(kind.valueType), True)
    return kind
