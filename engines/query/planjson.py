"""Reads Spark's analysed plan from its JSON: a list of operators, each before its children.

An operator's expressions are lists of the same form: each expression before its operands.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

Expression: TypeAlias = Sequence[Mapping[str, Any]]
Output: TypeAlias = list[tuple[int, str | None]]
"""The attributes of an operator in order: the id of each, and the source column whose value it has, if it is one."""

_TWO_ATTRIBUTES = ["AttributeReference", "AttributeReference"]


@dataclass(frozen=True)
class LogicalOperator:
    """A logical operator.

    Attributes:
        kind: the name of its class, as in ``Aggregate``.
        fields: its arguments by their names in Spark.
        children: the operators whose rows it reads.
        is_events: whether it is the view of events.
    """

    kind: str
    fields: Mapping[str, Any]
    children: tuple[LogicalOperator, ...]
    is_events: bool


def operators(plan: str, leaves_are_events: Iterable[bool]) -> LogicalOperator:
    """Return the top of a plan.

    Args:
        plan: its JSON.
        leaves_are_events: for each leaf, from left to right, whether it is the view of events.
    """
    return _tree(iter(json.loads(plan)), iter(leaves_are_events))


def _tree(items: Iterator[Mapping[str, Any]], leaves_are_events: Iterator[bool]) -> LogicalOperator:
    fields = next(items)
    children = tuple(_tree(items, leaves_are_events) for _ in range(fields["num-children"]))
    return LogicalOperator(class_name(fields["class"]), fields, children, not children and next(leaves_are_events))


def class_name(java_class: str) -> str:
    """Return the name of a Java class without its package."""
    return java_class.rpartition(".")[2].removesuffix("$")


def kind_of(expression: Expression) -> str:
    """Return the name of an expression's class."""
    return class_name(expression[0]["class"])


def origins(expressions: Iterable[Expression], below: Output) -> list[str | None]:
    """Return the source column whose value each expression has; None for one that is not a plain column.

    Args:
        expressions: over the attributes of ``below``.
        below: the output of the operator that they read.
    """
    known = dict(below)
    plain = (each[1:] if kind_of(each) == "Alias" else each for each in expressions)
    return [known.get(_id(each)) if kind_of(each) == "AttributeReference" else None for each in plain]


def renamed(attributes: Iterable[Expression], columns: Iterable[str | None]) -> Output:
    """Return an output with the ids of ``attributes`` and the values of ``columns``."""
    return list(zip(map(_id, attributes), columns, strict=True))


def computed(attributes: Iterable[Expression]) -> Output:
    """Return an output that has the value of no source column."""
    return [(_id(each), None) for each in attributes]


def projected(expressions: Sequence[Expression], below: Output) -> Output:
    """Return the output of a list of attributes and aliases."""
    return renamed(expressions, origins(expressions, below))


def without_origin(output: Output) -> Output:
    """Return the same attributes, as having the value of no source column."""
    return [(attribute, None) for attribute, _ in output]


def equal_columns(condition: Expression, left: Output, right: Output) -> Iterator[str | None]:
    """Yield the source columns that a join's condition requires to be equal on both sides."""
    of_left, of_right = dict(left), dict(right)
    for one, other in _equal_pairs(condition):
        for a, b in ((one, other), (other, one)):
            if a in of_left and b in of_right and of_left[a] == of_right[b]:
                yield of_left[a]


def _equal_pairs(condition: Expression) -> Iterator[tuple[int, int]]:
    required = [condition] if condition else []
    while required:
        expression = required.pop()
        kind, operands = kind_of(expression), expression[1:]
        if kind == "And":
            end = _end_of_first(operands)
            required += [operands[:end], operands[end:]]
        elif (
            kind in ("EqualTo", "EqualNullSafe") and [class_name(each["class"]) for each in operands] == _TWO_ATTRIBUTES
        ):
            yield _id(operands), _id(operands[1:])


def _end_of_first(operands: Expression) -> int:
    at, missing = 0, 1
    while missing:
        missing += operands[at]["num-children"] - 1
        at += 1
    return at


def _id(named: Expression) -> int:
    return int(named[0]["exprId"]["id"])
