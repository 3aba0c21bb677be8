"""Checks whether the watermark of each part can be that of the undivided query.

Spark moves conditions on other columns than the event time below the watermark: rows that they exclude do not move it.
The gateway sends each part a copy of the newest event that its own conditions, `QueryPlan.predicates`, let through. So
the watermarks are equal if these conditions are the ones that Spark evaluates below each watermark.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from engines.query.conditions import conjuncts, early_form, kind_of, scala_items
from infra.messages import STREAM, Predicate
from infra.queryplan import is_stream, of_stream


def optimised(stream: DataFrame) -> Any:
    """Return the optimised plan of a streaming frame, which Spark's own frame does not show."""
    execution = stream._jdf.queryExecution()  # noqa: SLF001 - plans are nowhere in the public API
    return execution.sparkSession().sessionState().optimizer().execute(execution.analyzed())


def why_watermarks_differ(plan: Any, predicates: Sequence[Predicate], schema: pa.Schema) -> str:
    """Return why the watermarks of parts would not be that of the undivided query; empty if they are.

    Args:
        plan: the optimised plan of the undivided query over a stream.
        predicates: what the gateway evaluates before it chooses the newest event of a run.
        schema: of the events.
    """
    for node in watermarks_of(plan):
        below = [(condition, early_form(condition, schema)) for condition in conditions_below(node)]
        stream = next((early for _, early in below if early is not None and is_stream(early)), None)
        met = tuple(predicates) if stream is None else of_stream(tuple(predicates), stream)
        for condition, early in below:
            if early is None:
                return _refusal(
                    str(condition.sql()), "the gateway can only compare strings, booleans and whole numbers"
                )
            if early not in met:
                return _refusal(str(condition.sql()), "not all events that the query reads must meet it")
        for predicate in met:
            if predicate not in [early for _, early in below]:
                said = f"the one on {', '.join(sorted(predicate.columns))}"
                return _refusal(said, "Spark evaluates it after the watermark, and the gateway before it")
    return ""


def untimed(plan: Any, timed: Collection[str], schema: pa.Schema) -> bool:
    """Return whether a plan over several streams has a watermark of another stream than these."""
    wanted = [Predicate(op="eq", column=(STREAM,), value=name) for name in timed]
    earlies = ([early_form(each, schema) for each in conditions_below(node)] for node in watermarks_of(plan))
    return not all(any(each in wanted for each in early) for early in earlies)


def _refusal(condition: str, why: str) -> str:
    return (
        f"it cannot be divided by key, because of the condition {condition}: {why}, so the parts would not have the "
        "watermark of the undivided query; change the condition, or leave out mode: keys"
    )


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
            yield from conjuncts(child.condition())
        yield from conditions_below(child)
