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
    for condition in (condition for node in watermarks_of(plan) for condition in conditions_below(node)):
        early = early_form(condition, schema)
        if early in predicates:
            continue
        only = (
            "the gateway cannot evaluate it (it can compare strings, booleans and whole numbers with constants)"
            if early is None
            else "not all rows that the query reads must meet it"
        )
        return (
            f"it cannot be divided by key: Spark leaves out the rows for which {condition.sql()} is not true before it "
            f"computes the watermark, and {only}, so the parts would have other watermarks: change the condition, or "
            "leave out mode: keys"
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
