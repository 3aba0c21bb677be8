"""Early row conditions with Spark's three-valued logic, evaluated on Arrow columns.

A row is kept when every predicate is TRUE; NULL is not TRUE. Strings compare as unsigned bytes, as Spark's UTF8String
does; booleans order false before true; of doubles, NaN is above all others, and 0.0 equals -0.0.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from infra.messages import Predicate

_COMPARE = {"eq": pc.equal, "lt": pc.less, "le": pc.less_equal, "gt": pc.greater, "ge": pc.greater_equal}
_TEXT = {"starts_with": pc.starts_with, "ends_with": pc.ends_with, "contains": pc.match_substring}
_INT64 = range(-(2**63), 2**63)


def keep_mask(batch: pa.RecordBatch, predicates: Iterable[Predicate]) -> pa.BooleanArray:
    """Return, without nulls, True for each row for which every predicate is TRUE.

    Raises:
        ValueError: a predicate does not fit the batch's schema (see ``why_not_early``).
    """
    mask = _constant(True, batch.num_rows)
    for predicate in predicates:
        reason = why_not_early(batch.schema, predicate)
        if reason:
            raise ValueError(reason)
        mask = pc.and_(mask, pc.fill_null(_evaluate(batch, predicate), False))
    return mask


def kept_rows(batch: pa.RecordBatch, predicates: Iterable[Predicate]) -> npt.NDArray[np.int64]:
    """Return the index in ``batch`` of each row of its payload: ``kept_rows(...)[row of payload]``."""
    return np.flatnonzero(keep_mask(batch, predicates).to_numpy(zero_copy_only=False)).astype(np.int64)


def why_not_early(schema: pa.Schema, predicate: Predicate) -> str:
    """Return why a predicate cannot be evaluated before the WAN, or an empty string if it can."""
    if predicate.op in ("and", "or", "not"):
        if not predicate.children or (predicate.op == "not" and len(predicate.children) != 1):
            return f"predicate {predicate.op!r} has {len(predicate.children)} children"
        reasons = (why_not_early(schema, child) for child in predicate.children)
        return next((reason for reason in reasons if reason), "")
    column_type = _type_at(schema, predicate.column)
    path = ".".join(predicate.column)
    if column_type is None:
        return f"predicate {predicate.op!r} reads {path!r}, which the schema does not have"
    if predicate.op in ("is_null", "not_null"):
        return ""
    if predicate.op in _TEXT and not pa.types.is_string(column_type):
        return f"predicate {predicate.op!r} on {path!r} needs a string, not {column_type}"
    if predicate.op == "in":
        if not isinstance(predicate.value, list) or not predicate.value:
            return f"predicate 'in' on {path!r} needs a list that is not empty"
        values: list[str | int | bool | float] = predicate.value
        if any(isinstance(value, float) for value in values):
            return f"predicate 'in' on {path!r} needs no doubles: 0.0 and -0.0 would differ"
    elif predicate.value is None or isinstance(predicate.value, list):
        return f"predicate {predicate.op!r} on {path!r} needs a single value"
    else:
        values = [predicate.value]
    return next((f"{path!r} is {column_type}, {v!r} is not" for v in values if not _fits(column_type, v)), "")


def _fits(column_type: pa.DataType, value: str | int | bool | float) -> bool:
    if isinstance(value, str):
        return bool(pa.types.is_string(column_type))
    if isinstance(value, bool):
        return bool(pa.types.is_boolean(column_type))
    if isinstance(value, float):
        return bool(pa.types.is_float64(column_type)) and not math.isnan(value)
    return bool(pa.types.is_signed_integer(column_type))


def _type_at(schema: pa.Schema, path: tuple[str, ...]) -> pa.DataType | None:
    if not path or schema.get_field_index(path[0]) < 0:
        return None
    found = schema.field(path[0]).type
    for name in path[1:]:
        if not pa.types.is_struct(found) or found.get_field_index(name) < 0:
            return None
        found = found.field(name).type
    return found


def _evaluate(batch: pa.RecordBatch, predicate: Predicate) -> pa.BooleanArray:
    op = predicate.op
    if op in ("and", "or"):
        combine = pc.and_kleene if op == "and" else pc.or_kleene
        return functools.reduce(combine, (_evaluate(batch, child) for child in predicate.children))
    if op == "not":
        return pc.invert(_evaluate(batch, predicate.children[0]))
    values = _column(batch, predicate.column)
    if op == "is_null":
        return pc.is_null(values)
    if op == "not_null":
        return pc.is_valid(values)
    if op == "in":
        assert isinstance(predicate.value, list)
        return _is_in(values, predicate.value)
    if op in _TEXT:
        return _TEXT[op](values, pattern=predicate.value)
    assert not isinstance(predicate.value, list | None)
    return _compare(op, values, predicate.value)


def _column(batch: pa.RecordBatch, path: tuple[str, ...]) -> pa.Array:
    """Return the column at a path; a field of a null struct is null. Integers and booleans come as int64."""
    values = batch.column(path[0])
    for name in path[1:]:
        values = pc.struct_field(values, [values.type.get_field_index(name)])
    is_number = pa.types.is_signed_integer(values.type) or pa.types.is_boolean(values.type)
    return values.cast(pa.int64()) if is_number else values


def _compare(op: str, values: pa.Array, literal: str | int | bool | float) -> pa.BooleanArray:
    if isinstance(literal, str):
        return _COMPARE[op](values, pa.scalar(literal, pa.string()))
    if isinstance(literal, float):
        found = _COMPARE[op](values, pa.scalar(literal, pa.float64()))
        return pc.or_kleene(found, pc.is_nan(values)) if op in ("gt", "ge") else found
    if literal in _INT64:
        return _COMPARE[op](values, pa.scalar(int(literal), pa.int64()))
    # Beyond int64 the answer is the same for all values; only NULL stays NULL.
    always = op in (("lt", "le") if literal > 0 else ("gt", "ge"))
    return pc.if_else(pc.is_null(values), pa.scalar(None, pa.bool_()), always)


def _is_in(values: pa.Array, literals: list[str | int | bool | float]) -> pa.BooleanArray:
    known = [v if isinstance(v, str) else int(v) for v in literals if isinstance(v, str) or v in _INT64]
    found = pc.is_in(values, value_set=pa.array(known, values.type))
    return pc.if_else(pc.is_null(values), pa.scalar(None, pa.bool_()), found)


def _constant(value: bool, rows: int) -> pa.BooleanArray:
    return pa.array(np.full(rows, value))
