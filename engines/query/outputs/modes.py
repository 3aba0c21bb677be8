"""Checks a query's output mode and key against its plan and its results, and adjusts its class. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from engines.query.outputs.grouping import Grouping
from infra.messages import OutputMode, QueryPlan

ADDED: Final = ("_op", "_seq")
"""The columns that sinks add to rows that replace others."""
_EXACT: Final = (
    *(BinaryType, BooleanType, DateType, DecimalType, TimestampNTZType, TimestampType),
    *(ByteType, IntegerType, LongType, ShortType),
)


def why_refused(output: OutputMode, plan: QueryPlan, results: StructType, grouping: Grouping | None) -> str:
    """Return why a query cannot have its output mode, and what to do; empty if it can.

    Args:
        output: what the config says.
        plan: the query's.
        results: the columns of its results.
        grouping: what its results are grouped by; None if that is not known.
    """
    if output.mode == "append":
        return ""
    if not plan.stateful:
        return "output.mode: each event is processed alone, so no result ever changes: remove output"
    taken = [name for name in ADDED if name in results.names]
    if taken:
        return f"output.mode: {output.mode} adds a column {taken[0]} to the results, which they have: rename theirs"
    return _why_no_key(output.key, results, grouping) if output.mode == "update" else ""


def as_emitted(output: OutputMode, plan: QueryPlan) -> QueryPlan:
    """Return the plan with the class that it has in this output mode: a complete result is not made key by key."""
    if output.mode != "complete" or plan.switch_class != "keyed":
        return plan
    reason = f"{plan.reason}; it is not keyed, because each of its complete results holds the rows of all keys"
    return msgspec.structs.replace(plan, switch_class="whole", keys=(), reason=reason)


def _why_no_key(key: Sequence[str], results: StructType, grouping: Grouping | None) -> str:
    for name in key:
        if name not in results.names:
            return f'output.key: "{name}" is not a column of the results; they have {", ".join(results.names)}'
        if kind := _inexact(results[name].dataType):
            return f"output.key: {name} is {kind}, whose equal values may be written differently: choose other columns"
    if grouping is None:
        return "" if key else "output.key: is empty, and it is not known that there is only one row: name its columns"
    return _why_not_the_grouping(key, grouping)


def _why_not_the_grouping(key: Sequence[str], grouping: Grouping) -> str:
    parts = {each.name: each.part for each in reversed(grouping.columns) if each.part is not None}
    if set(parts.values()) != set(range(grouping.parts)):
        return (
            "output.key: it groups by an expression that its results do not contain, so nothing in them names a row: "
            "select each expression of GROUP BY, and list them in output.key"
        )
    wanted = ", ".join(
        next(column.name for column in grouping.columns if column.part == part) for part in range(grouping.parts)
    )
    others = [name for name in key if name not in parts]
    if others:
        why = f"{others[0]} is not what it groups by: a row with another value in it would not replace the earlier one"
        return f"output.key: {why}; write key: [{wanted}]"
    if {parts[name] for name in key} != set(parts.values()):
        return f"output.key: [{', '.join(key)}] does not name a row, since it groups by more: write key: [{wanted}]"
    if grouping.filtered:
        return (
            "output.mode: update and a condition on aggregates (HAVING) do not go together: the sink would keep the "
            "last row of a group that does not meet it any more. Select the condition as a column instead, or write "
            "mode: complete"
        )
    return ""


def _inexact(kind: DataType) -> str:
    """Return the type, or the part of it, that a key may not have; empty if there is none."""
    if isinstance(kind, StructType):
        return next(filter(None, (_inexact(each.dataType) for each in kind)), "")
    if isinstance(kind, StringType):
        return "" if kind.simpleString() == "string" else kind.simpleString().upper()
    return "" if isinstance(kind, _EXACT) else kind.simpleString().upper()
