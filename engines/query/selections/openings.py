"""Where selections open and close: the conditions that the gateway can evaluate exactly as Spark does."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import SparkSession
from pyspark.sql.types import StructField, StructType

from engines.query.conditions import early_form
from engines.query.schemas import arrow_of
from engines.query.selections.matching import Matcher
from engines.query.selections.parts import all_of, as_the_first, parts_of
from engines.query.selections.stepsql import ConditionError
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
    steps = _opening_steps(matcher.pattern)
    if any(matcher.reads_others(step) for step in steps):
        opening, unread = None, "; ".join(matcher.conditions[step.name].text for step in steps)
    else:
        opens = " OR ".join(f"({matcher.conditions[step.name].of(step.name, columns.names)})" for step in steps)
        opening, unread = _of_steps(base, steps, opens, columns)
    if rule.disjoint and unread:
        raise ConditionError(f"consumption: restricted needs to know which events open a selection: {_only(unread)}")
    closing, same = _closing(base, matcher, columns, disjoint=rule.disjoint)
    return SelectionConditions(opening=opening, closing=closing, same=same, unread=unread)


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


def _closing(
    base: SparkSession, matcher: Matcher, columns: StructType, *, disjoint: bool
) -> tuple[Predicate | None, str]:
    """Return the condition on an event that ends a match, and the column in which it must be as the opening event.

    None if only Spark can evaluate it, or if no event ends a match.
    """
    pattern, first, last = matcher.pattern, matcher.pattern.steps[0], matcher.pattern.steps[-1]
    if pattern.operator in ("conjunction", "disjunction"):
        return None, ""
    if pattern.operator == "sequence" and (len(pattern.steps) > 2 or last.times != "one"):
        return None, ""
    text = matcher.conditions[last.name].of(last.name, columns.names)
    if not matcher.reads_others(last):
        closing, left = _of_steps(base, (last,), text, columns)
        return None if left else closing, ""
    if disjoint:
        return None, ""
    both = StructType([*columns.fields, StructField(first.name, columns)])
    try:
        parts = parts_of(base, text, both)
    except ConditionError as error:
        raise ConditionError(f"step {last.name}: {error}") from error
    found = None if parts is None else as_the_first(parts, first.name, arrow_of(columns))
    return (None, "") if found is None else found


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
    parts = parts_of(base, text, columns)
    if parts is None:
        return None, text
    schema = arrow_of(columns)
    forms = [(part, early_form(part, schema)) for part in parts]
    taken = [form for _, form in forms if form is not None]
    left = [str(part.sql()) for part, form in forms if form is None]
    return all_of(taken) if taken else None, "; ".join(left)
