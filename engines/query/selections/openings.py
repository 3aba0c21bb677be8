"""Where selections open and close: the conditions that the gateway can evaluate exactly as Spark does."""

from __future__ import annotations

import shutil
from collections.abc import Sequence

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from engines.query.conditions import conjuncts, early_form, kind_of
from engines.query.mistakes import wrong_name
from engines.query.plan import empty_events
from engines.query.reasons import why
from engines.query.schemas import arrow_of
from engines.query.selections.matching import Matcher
from engines.query.selections.stepsql import ConditionError
from engines.spark.scratch import scratch_folder
from engines.spark.session import sibling
from infra.messages import Pattern, PatternStep, Predicate, SelectionRule
from infra.queryplan import SelectionConditions

_EARLY = "columns of type STRING, BOOLEAN, DOUBLE and whole numbers, compared with constants"


def conditions_of(
    base: SparkSession, rule: SelectionRule, columns: StructType, matcher: Matcher | None
) -> SelectionConditions | None:
    """Return where selections open and close; None if no condition says that.

    A selection that opens needlessly costs time, and Spark finds no match in it. One that closes early would lose
    events. So of opening conditions a part is enough, and of a closing one it is not.

    Args:
        base: the host's session.
        rule: how events become selections.
        columns: of events.
        matcher: of a pattern; None: the rule itself has the conditions.

    Raises:
        ConditionError: a condition cannot be used; the message says why.
    """
    if matcher is None:
        return _of_rule(base, rule, columns)
    steps, closes = _opening_steps(matcher.pattern), _closes(matcher, columns)
    if any(matcher.reads_others(step) for step in steps):
        opening, unread = None, "; ".join(matcher.conditions[step.name].text for step in steps)
    else:
        opens = " OR ".join(f"({matcher.conditions[step.name].of(step.name, columns.names)})" for step in steps)
        opening, unread = _of_steps(base, steps, opens, columns)
    closing, left = _of_steps(base, matcher.pattern.steps[-1:], closes, columns) if closes else (None, "")
    if rule.disjoint and unread:
        raise ConditionError(f"consumption: restricted needs to know which events open a selection: {_only(unread)}")
    return SelectionConditions(opening=opening, closing=None if left else closing, unread=unread)


def _of_rule(base: SparkSession, rule: SelectionRule, columns: StructType) -> SelectionConditions | None:
    if not rule.opens_when and not rule.closes_when:
        return None
    found: dict[str, Predicate | None] = {}
    for what, text in (("opens", rule.opens_when), ("closes", rule.closes_when)):
        found[what], left = early_condition(base, text, columns) if text else (None, "")
        if left:
            raise ConditionError(f"selections.{what}.when: {_only(left)}")
    return SelectionConditions(opening=found["opens"], closing=found["closes"])


def _only(left: str) -> str:
    return f"the gateway evaluates conditions on {_EARLY}, and only Spark evaluates {left}"


def _opening_steps(pattern: Pattern) -> Sequence[PatternStep]:
    """Return the steps of which any may be the first of a match."""
    return pattern.steps if pattern.operator in ("conjunction", "disjunction") else pattern.steps[:1]


def _of_steps(
    base: SparkSession, steps: Sequence[PatternStep], text: str, columns: StructType
) -> tuple[Predicate | None, str]:
    try:
        return early_condition(base, text, columns)
    except ConditionError as error:
        raise ConditionError(f"step {' or '.join(step.name for step in steps)}: {error}") from error


def _closes(matcher: Matcher, columns: StructType) -> str:
    """Return the condition on an event that ends a match, whatever came before; empty if there is none."""
    pattern, last = matcher.pattern, matcher.pattern.steps[-1]
    if pattern.operator in ("conjunction", "disjunction") or matcher.reads_others(last):
        return ""
    if pattern.operator == "sequence" and (len(pattern.steps) > 2 or last.times != "one"):
        return ""
    return matcher.conditions[last.name].of(last.name, columns.names)


def early_condition(base: SparkSession, text: str, columns: StructType) -> tuple[Predicate | None, str]:
    """Return the part of a condition that the gateway can evaluate, and what is left of it.

    Args:
        base: the host's session.
        text: the condition in Spark SQL over the columns of events.
        columns: of events.

    Returns:
        The part, None if it holds for each event; and the other parts as text, empty if there are none.

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
        return None, ""
    if kind_of(plan) in ("LocalRelation", "EmptyRelation"):
        raise ConditionError(f"{text} is never true")
    if kind_of(plan) != "Filter" or kind_of(plan.child()) != "LogicalRelation":
        return None, text
    return _parts(plan.condition(), arrow_of(columns))


def _parts(condition: object, schema: pa.Schema) -> tuple[Predicate | None, str]:
    taken, left = list[Predicate](), list[str]()
    for expression in conjuncts(condition):
        predicate = early_form(expression, schema)
        if predicate is None:
            left.append(str(expression.sql()))
        else:
            taken.append(predicate)
    if not taken:
        return None, "; ".join(left)
    return taken[0] if len(taken) == 1 else Predicate(op="and", children=tuple(taken)), "; ".join(left)
