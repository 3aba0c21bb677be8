"""An expression that finds the events of one step after another, each of which is computed once.

Columns that are computed step by step would be put into one another by Spark's optimizer, which moves filters below
them: the work would double with each step. A variable of a lambda function is never replaced by what it stands for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from engines.query.parts.heartbeats import quoted
from engines.query.reasons import why
from infra.messages import PatternStep


@dataclass(frozen=True)
class Binding:
    """One thing that is found.

    Attributes:
        step: whose condition it has.
        value: the events or the event (SQL), by the name of the step from here on; empty if nothing is named.
        where: the condition (SQL) without which there is no match; empty if there is none.
    """

    step: PatternStep
    value: str = ""
    where: str = ""


class BindingError(ValueError):
    """A binding cannot be evaluated; the message names its step."""


def nested(bindings: Sequence[Binding], result: str) -> str:
    """Return the SQL of a result that is computed from bindings, and is null if a condition does not hold."""
    text = result
    for binding in reversed(bindings):
        if binding.where:
            text = f"CASE WHEN {binding.where} THEN {text} END"
        if binding.value:
            text = f"get(transform(array({binding.value}), {quoted(binding.step.name)} -> {text}), 0)"
    return text


def with_each(frame: DataFrame, kept: str, bindings: Sequence[Binding], results: str, name: str) -> DataFrame:
    """Return a row for each of the results of each row.

    Args:
        frame: the rows.
        kept: the column that is kept.
        bindings: what the results are computed from.
        results: the SQL of an array; no rows if it is null.
        name: the column with a result.

    Raises:
        BindingError: Spark cannot evaluate a binding.
    """
    try:
        return frame.select(kept, sf.explode(sf.expr(nested(bindings, results))).alias(name))
    except PySparkException as error:
        raise BindingError(_first_wrong(frame, bindings) or why(error)) from error


def _first_wrong(frame: DataFrame, bindings: Sequence[Binding]) -> str:
    for count, binding in enumerate(bindings, 1):
        try:
            frame.select(sf.expr(nested(bindings[:count], "TRUE")))
        except PySparkException as error:
            return f"step {binding.step.name}: {why(error)}"
    return ""
