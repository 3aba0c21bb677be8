"""Translates Spark's filter expressions to predicates that have exactly the same meaning before the WAN."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from infra.messages import Predicate, PredicateOp
from infra.payload.predicates import why_not_early

_COMPARE: dict[str, PredicateOp] = {
    "EqualTo": "eq",
    "LessThan": "lt",
    "LessThanOrEqual": "le",
    "GreaterThan": "gt",
    "GreaterThanOrEqual": "ge",
}
_FLIPPED: dict[PredicateOp, PredicateOp] = {"eq": "eq", "lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}
_TEXT: dict[str, PredicateOp] = {"StartsWith": "starts_with", "EndsWith": "ends_with", "Contains": "contains"}
_BOTH: dict[str, PredicateOp] = {"And": "and", "Or": "or"}
_EXACT_TYPES = frozenset({"string", "boolean", "tinyint", "smallint", "int", "bigint"})
_COMPARED_TYPES = _EXACT_TYPES | {"double"}
_MAX_IN = 1_000


class _NotEarlyError(Exception):
    """An expression has no predicate with exactly the same meaning."""


def scala_items(sequence: Any) -> Iterator[Any]:
    """Yield the elements of a Scala collection."""
    iterator = sequence.iterator()
    while iterator.hasNext():
        yield iterator.next()


def early(filters: Any, schema: pa.Schema) -> tuple[tuple[Predicate, ...], list[str]]:
    """Return the conditions that can be evaluated early, and the text of the others.

    Args:
        filters: a file scan's filters (a Scala sequence of expressions, all of which must hold).
        schema: the input's Arrow schema.
    """
    taken: list[Predicate] = []
    skipped: list[str] = []
    for expression in scala_items(filters):
        predicate = early_form(expression, schema)
        if predicate is None:
            skipped.append(str(expression.sql()))
        else:
            taken.append(predicate)
    return tuple(taken), skipped


def early_form(expression: Any, schema: pa.Schema) -> Predicate | None:
    """Return the predicate that means the same as one condition; None if it cannot be evaluated early."""
    try:
        predicate = _predicate(expression)
    except _NotEarlyError:
        return None
    return None if why_not_early(schema, predicate) else predicate


def compared_columns(expression: Any) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """Return the paths of two columns that a condition compares for equality; None if it does anything else."""
    if kind_of(expression) != "EqualTo":
        return None
    try:
        return _exact_path(expression.left()), _exact_path(expression.right())
    except _NotEarlyError:
        return None


def column_not_null(expression: Any) -> tuple[str, ...] | None:
    """Return the path of a column that a condition says is not null; None if it says anything else."""
    if kind_of(expression) != "IsNotNull":
        return None
    try:
        return _path(expression.child())
    except _NotEarlyError:
        return None


def _predicate(expression: Any) -> Predicate:
    kind = kind_of(expression)
    if kind in _BOTH or kind == "Not":
        children = tuple(_predicate(child) for child in scala_items(expression.children()))
        return Predicate(op=_BOTH.get(kind, "not"), children=children)
    if kind in ("IsNull", "IsNotNull"):
        return Predicate(op="is_null" if kind == "IsNull" else "not_null", column=_path(expression.child()))
    if kind in ("In", "InSet"):
        return _membership(expression, kind)
    if kind in ("AttributeReference", "GetStructField"):
        return Predicate(op="eq", column=_exact_path(expression), value=True)
    return _comparison(expression, kind)


def _comparison(expression: Any, kind: str) -> Predicate:
    op = _COMPARE.get(kind) or _TEXT.get(kind) or ("eq" if kind == "EqualNullSafe" else None)
    if op is None:
        raise _NotEarlyError
    left, right = expression.left(), expression.right()
    if kind_of(left) == "Literal" and op in _FLIPPED:
        left, right, op = right, left, _FLIPPED[op]
    path = _exact_path(left, _COMPARED_TYPES)
    found = Predicate(op=op, column=path, value=_literal(right))
    if kind == "EqualNullSafe":
        return Predicate(op="and", children=(Predicate(op="not_null", column=path), found))
    return found


def _membership(expression: Any, kind: str) -> Predicate:
    if kind == "In":
        path = _exact_path(expression.value())
        values = [_literal(each) for each in scala_items(expression.list())]
    else:
        path = _exact_path(expression.child())
        values = [_value(each) for each in scala_items(expression.hset())]
    if len(values) > _MAX_IN or any(isinstance(value, float) for value in values):
        raise _NotEarlyError
    # A set has no order, but two analyses of one query must give the same plan.
    return Predicate(op="in", column=path, value=sorted(values, key=lambda value: (str(type(value)), value)))


def _exact_path(expression: Any, types: frozenset[str] = _EXACT_TYPES) -> tuple[str, ...]:
    """Return the path of a column whose values are compared before the WAN exactly as in Spark."""
    if str(expression.dataType().sql()).lower() not in types:
        raise _NotEarlyError
    return _path(expression)


def _path(expression: Any) -> tuple[str, ...]:
    kind = kind_of(expression)
    if kind == "AttributeReference":
        return (str(expression.name()),)
    if kind == "GetStructField":
        return (*_path(expression.child()), str(expression.extractFieldName()))
    raise _NotEarlyError


def _literal(expression: Any) -> str | int | bool | float:
    if kind_of(expression) != "Literal" or str(expression.dataType().sql()).lower() not in _COMPARED_TYPES:
        raise _NotEarlyError
    return _value(expression.value())


def _value(value: Any) -> str | int | bool | float:
    if isinstance(value, str | int | bool | float):
        return value
    if value is not None and kind_of(value) == "UTF8String":
        return str(value.toString())
    raise _NotEarlyError


def kind_of(value: Any) -> str:
    """Return the name of a JVM object's class, without its package."""
    return str(value.getClass().getSimpleName())


def conjuncts(condition: Any) -> Iterator[Any]:
    """Yield the conditions of which a condition is made, all of which must be true."""
    if kind_of(condition) == "And":
        yield from conjuncts(condition.left())
        yield from conjuncts(condition.right())
    else:
        yield condition
