"""Lets a sealed field pass the conditions that were evaluated on its clear values before the WAN.

The plan evaluates them on the VM once more. What is sent meets them because of the query's own text: it contains the
text that a condition looks for, or is a constant that was found by trying. It tells nothing about the value beyond
what the presence of the row tells.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from infra.messages import Predicate
from infra.payload.predicates import keep_mask, why_not_early

_NULL_TESTS = ("is_null", "not_null")
# One of them is a value of any type that is neither a string nor a number.
_PLAIN: tuple[Any, ...] = ("", 0, False, b"", [], {})


class Affixes(NamedTuple):
    """Text around each sealed value."""

    prefix: str = ""
    suffix: str = ""


def affixes_for(predicates: Iterable[Predicate]) -> Affixes | None:
    """Return text around any string that makes these conditions on it true; None if there is none.

    NULL stays NULL, so tests for NULL need no text.
    """
    starts, ends = [""], [""]
    inside: list[str] = []
    for predicate in _conjuncts(predicates):
        if predicate.op in _NULL_TESTS:
            continue
        if len(predicate.column) != 1 or predicate.op not in ("starts_with", "ends_with", "contains"):
            return None
        {"starts_with": starts, "ends_with": ends, "contains": inside}[predicate.op].append(str(predicate.value))
    prefix, suffix = max(starts, key=len), max(ends, key=len)
    if not all(map(prefix.startswith, starts)) or not all(map(suffix.endswith, ends)):
        return None
    return Affixes(prefix + "".join(inside), suffix)


def constant_for(column: str, kind: pa.DataType, predicates: Sequence[Predicate]) -> tuple[object] | None:
    """Return a value of type ``kind`` for which all these conditions on ``column`` are true; None if none is found."""
    schema = pa.schema([(column, kind)])
    if any(why_not_early(schema, predicate) for predicate in predicates):
        return None  # they read other columns as well
    for value in _candidates(predicates):
        try:
            batch = pa.record_batch([pa.array([value], kind)], schema=schema)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            continue  # it is no value of this type
        if keep_mask(batch, predicates)[0].as_py():
            return (value,)
    return None


def _conjuncts(predicates: Iterable[Predicate]) -> Iterator[Predicate]:
    for predicate in predicates:
        if predicate.op == "and":
            yield from _conjuncts(predicate.children)
        else:
            yield predicate


def _candidates(predicates: Sequence[Predicate]) -> Iterator[object]:
    yield None
    if (affixes := affixes_for(predicates)) is not None:
        yield "".join(affixes)
    for value in _literals(predicates):
        yield value
        if isinstance(value, str):
            yield value + "0"
            yield value[:-1]
        else:
            yield from (not value, value - 1, value + 1)
    yield from _PLAIN


def _literals(predicates: Iterable[Predicate]) -> Iterator[str | int | bool | float]:
    for predicate in predicates:
        yield from _literals(predicate.children)
        if predicate.value is not None:
            yield from predicate.value if isinstance(predicate.value, list) else [predicate.value]
