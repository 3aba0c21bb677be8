"""Checks whether the watermark of each part can be that of the undivided query.

Spark moves conditions on other columns than the event time below the watermark: rows that they exclude do not move it.
The gateway sends each part a copy of the newest event that its own conditions, `QueryPlan.predicates`, let through. So
the watermarks are equal if these conditions are the ones that Spark evaluates below each watermark.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from engines.query.conditions import early_form, kind_of, scala_items
from infra.messages import Predicate


def optimised(stream: DataFrame) -> Any:
    """Return the optimised plan of a streaming frame, which Spark's own frame does not show."""
    execution = stream._jdf.queryExecution()  # noqa: SLF001 - plans are nowhere in the public API
    return execution.sparkSession().sessionState().optimizer().execute(execution.analyzed())


def why_watermarks_differ(plan: Any, predicates: Sequence[Predicate], schema: pa.Schema) -> str:
    """Return why the watermarks of parts would not be that of the undivided query; empty if they are.

    Args:
        plan: the optimised plan of the undivided query over a stream.
        predicates: what the gateway evaluates: all must be true for a row to be sent.
        schema: of the events.
    """
    for condition in dict.fromkeys(condition for node in watermarks_of(plan) for condition in conditions_below(node)):
        if early_form(condition, schema) not in predicates:
            return (
                f"Spark evaluates {condition.sql()} before the watermark, and the gateway cannot evaluate it for the "
                "rows that keep the watermarks of all parts equal: compare strings, booleans or whole numbers with "
                "constants there, or leave out mode: keys"
            )
    return ""


def watermarks_of(plan: Any) -> Iterator[Any]:
    """Yield the watermarks of a logical plan."""
    if kind_of(plan) == "EventTimeWatermark":
        yield plan
    for child in scala_items(plan.children()):
        yield from watermarks_of(child)


def conditions_below(plan: Any) -> Iterator[Any]:
    """Yield the conditions of the filters below an operator, each of which must be true."""
    for child in scala_items(plan.children()):
        if kind_of(child) == "Filter":
            yield from _conjuncts(child.condition())
        yield from conditions_below(child)


def _conjuncts(condition: Any) -> Iterator[Any]:
    if kind_of(condition) == "And":
        yield from _conjuncts(condition.left())
        yield from _conjuncts(condition.right())
    else:
        yield condition
