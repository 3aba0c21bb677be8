"""The parts of a condition, all of which must be true, as Spark's optimizer leaves them."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from engines.query.conditions import column_not_null, compared_columns, conjuncts, early_form, kind_of
from engines.query.mistakes import wrong_name
from engines.query.plan import empty_events
from engines.query.reasons import why
from engines.query.selections.stepsql import ConditionError
from engines.spark.scratch import scratch_folder
from engines.spark.session import sibling
from infra.messages import Predicate


class Closing(NamedTuple):
    """What closes a selection.

    Attributes:
        condition: on the event.
        same: the column in which the event is as the opening one.
    """

    condition: Predicate
    same: str


def parts_of(base: SparkSession, text: str, columns: StructType) -> list[Any] | None:
    """Return the parts as JVM expressions; None if the plan is no plain filter.

    Args:
        base: the host's session.
        text: the condition in Spark SQL.
        columns: that it may read.

    Raises:
        ConditionError: it cannot be analysed, or is never true.
    """
    session, folder = sibling(base), scratch_folder("condition")
    try:
        frame = empty_events(session, columns, folder).where(text)
        plan = frame._jdf.queryExecution().optimizedPlan()  # noqa: SLF001 - plans are nowhere in the public API
    except PySparkException as error:
        raise ConditionError(wrong_name(error, columns.names) or why(error)) from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if kind_of(plan) == "LogicalRelation":
        return []
    if kind_of(plan) in ("LocalRelation", "EmptyRelation"):
        raise ConditionError(f"{text} is never true")
    if kind_of(plan) != "Filter" or kind_of(plan.child()) != "LogicalRelation":
        return None
    return list(conjuncts(plan.condition()))


def all_of(parts: Sequence[Predicate]) -> Predicate:
    """Return one condition for several, all of which must be true."""
    return parts[0] if len(parts) == 1 else Predicate(op="and", children=tuple(parts))


def as_the_first(parts: Sequence[Any], first: str, schema: pa.Schema) -> Closing | None:
    """Return what a condition says if the gateway can evaluate all of it, knowing one column of the first event.

    Args:
        parts: of the condition on an event that ends a match.
        first: the name of the first step; the parts read its event by it.
        schema: of events.
    """
    taken, same, not_null = list[Predicate](), set[str](), set[tuple[str, ...]]()
    for part in parts:
        paths = compared_columns(part)
        if paths is not None and (column := _same_column(paths, first)) is not None:
            same.add(column)
        elif (predicate := early_form(part, schema)) is not None:
            taken.append(predicate)
        elif (path := column_not_null(part)) is not None and path[0] == first:
            not_null.add(path)
        else:
            return None
    if len(same) != 1 or not not_null <= {(first,), (first, *same)}:
        return None
    # Its own column is not null if it is as that of the first event; Spark says so, too.
    return Closing(all_of(taken), same.pop()) if taken else None


def _same_column(paths: tuple[tuple[str, ...], tuple[str, ...]], first: str) -> str | None:
    """Return the column of events that is compared with that of the first event."""
    short, long = sorted(paths, key=len)
    return short[0] if len(short) == 1 and long == (first, *short) else None
