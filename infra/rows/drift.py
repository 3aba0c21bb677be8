"""Where an event or a file differs from the schema that a query declares; see docs/schema-drift.md for the rules."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from infra.rows.base import SourceError

_JSON_NAMES = {str: "a string", bool: "a boolean", int: "an integer", float: "a number", list: "an array"}


def line_drift(line: bytes, schema: pa.Schema) -> str | None:
    """Return how the JSON object in ``line`` differs from ``schema``; None if it does not.

    Raises:
        ValueError: it is not JSON, or too deeply nested.
    """
    try:
        value = msgspec.json.decode(line)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    return _struct_drift(value, list(schema), "") if isinstance(value, dict) else "the line is not one JSON object"


def _struct_drift(value: dict[str, object], fields: list[pa.Field], path: str) -> str | None:
    names = {field.name for field in fields}
    extra = next((name for name in value if name not in names), None)
    if extra is not None:
        return f'field "{path}{extra[:200]}" is not in the schema'
    for field in fields:
        if field.name not in value:
            return f'field "{path}{field.name}" is missing'
        found = _value_drift(value[field.name], field.type, path + field.name)
        if found is not None:
            return found
    return None


def _value_drift(value: object, kind: pa.DataType, path: str) -> str | None:
    if value is None:
        return None
    if type(value) not in _json_types(kind):
        return f'field "{path}" is {_JSON_NAMES.get(type(value), "an object")}, but the schema says {kind}'
    if isinstance(value, dict):
        return _struct_drift(value, list(kind), f"{path}.")
    if isinstance(value, list):
        drifts = (_value_drift(item, kind.value_type, f"{path}[{i}]") for i, item in enumerate(value))
        return next((drift for drift in drifts if drift is not None), None)
    return None


def _json_types(kind: pa.DataType) -> tuple[type, ...]:
    """Return the JSON types of a value of ``kind``; types without a JSON form are text."""
    if pa.types.is_struct(kind):
        return (dict,)
    if pa.types.is_list(kind):
        return (list,)
    if pa.types.is_boolean(kind):
        return (bool,)
    if pa.types.is_integer(kind):
        return (int,)
    if pa.types.is_floating(kind):
        return (int, float)
    return (int, float, str) if pa.types.is_decimal(kind) else (str,)


def rows_with_null(table: pa.Table) -> list[int]:
    """Return the rows with a null; all rows if a nested value is null, since its row is not searched for.

    A missing field is read as null, so no other row can miss one.
    """
    if any(_inner_null(chunk) for column in table.columns for chunk in column.chunks):
        return list(range(table.num_rows))
    mask = None
    for column in table.columns:
        if column.null_count:
            nulls = pc.is_null(column)
            mask = nulls if mask is None else pc.or_(mask, nulls)
    return [] if mask is None else pc.indices_nonzero(mask).to_pylist()


def _inner_null(array: pa.Array) -> bool:
    if pa.types.is_struct(array.type):
        return any(child.null_count > 0 or _inner_null(child) for child in array.flatten())
    if pa.types.is_list(array.type):
        inner = array.flatten()
        return inner.null_count > 0 or _inner_null(inner)
    return False


def check_columns(path: object, names: Sequence[str], schema: pa.Schema, *, strict: bool) -> None:
    """Check the columns of a file that lists them; ``path`` names it.

    Raises:
        SourceError: they do not fit; the message says what to do.
    """
    missing = [field.name for field in schema if field.name not in names]
    extra = [name for name in names if name not in schema.names]
    has = f"it has {', '.join(names)}"
    needed = [name for name in missing if not schema.field(name).nullable]
    if len(missing) == len(schema):
        raise SourceError(f"{path} has none of the query's columns; {has}: give the right file, or correct the schema")
    if needed:
        raise SourceError(f"{path} has no column {', '.join(needed)}, which is NOT NULL; {has}")
    if strict and missing:
        raise SourceError(f"{path} has no column {', '.join(missing)}; {has}. Give the file, or set drift: lenient")
    if strict and extra:
        raise SourceError(
            f"{path} has column {', '.join(extra)}, which the schema lacks: add it there, or set drift: lenient"
        )
