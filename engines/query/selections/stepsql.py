"""The conditions of a pattern's steps: Spark SQL in which each column is one of the step's event."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from engines.query.conditions import kind_of, scala_items
from engines.query.parts.heartbeats import quoted
from engines.query.reasons import why

_COLUMN, _IN_LAMBDA = "UnresolvedAttribute", "UnresolvedNamedLambdaVariable"


class Name(NamedTuple):
    """A name in a condition.

    Attributes:
        begin: where it begins in the text (UTF-16 units).
        end: where it ends (the same, inclusive).
        parts: such as ``("first", "price")``.
        in_lambda: whether it is in a lambda function, where it may be one of its variables.
    """

    begin: int
    end: int
    parts: tuple[str, ...]
    in_lambda: bool


class ConditionError(ValueError):
    """A condition cannot be used; the message says why."""


@dataclass(frozen=True)
class StepCondition:
    """A condition as it was parsed.

    Attributes:
        text: the condition.
        names: the names in it.
    """

    text: str
    names: tuple[Name, ...]

    def others(self, step: str, columns: Collection[str]) -> tuple[str, ...]:
        """Return the first parts of the names that are neither columns nor the step's own event."""
        own = {step.lower(), *(column.lower() for column in columns)}
        found = (name.parts[0] for name in self.names if name.parts[0].lower() not in own and not name.in_lambda)
        return tuple(dict.fromkeys(found))

    def of(self, step: str, columns: Collection[str], event: str = "") -> str:
        """Return the condition with the columns of the step's event as fields of ``event``.

        Args:
            step: its name, by which the condition may call its own event.
            columns: of events.
            event: a column or variable that has the event; empty if the columns are those of the relation.
        """
        known = {column.lower() for column in columns}
        units = self.text.encode("utf-16-le")
        # From the end, so that the places of earlier names stay as they are.
        for begin, end, parts, _ in sorted(self.names, reverse=True):
            own = parts[1:] if len(parts) > 1 and parts[0].lower() == step.lower() else parts
            if own[0].lower() not in known:
                continue
            path = ".".join(quoted(part) for part in ((event, *own) if event else own))
            units = units[: 2 * begin] + path.encode("utf-16-le") + units[2 * end + 2 :]
        return units.decode("utf-16-le")


def parsed(session: SparkSession, text: str) -> StepCondition:
    """Return a condition with the names in it.

    Raises:
        ConditionError: it is no condition, or has a subquery.
    """
    parser = session._jsparkSession.sessionState().sqlParser()  # noqa: SLF001 - the parser is in no public API
    try:
        expression = parser.parseExpression(text)
    except PySparkException as error:
        raise ConditionError(why(error)) from error
    return StepCondition(text, tuple(dict.fromkeys(_names(expression))))


def _names(expression: Any) -> Iterator[Name]:
    kind = kind_of(expression)
    if "Subquery" in kind or kind in ("Exists", "ListQuery"):
        raise ConditionError("it has a subquery, but a condition only reads events: join in sql")
    if kind in (_COLUMN, _IN_LAMBDA):
        origin = expression.origin()
        parts = tuple(str(part) for part in scala_items(expression.nameParts()))
        yield Name(int(origin.startIndex().get()), int(origin.stopIndex().get()), parts, kind == _IN_LAMBDA)
    for child in scala_items(expression.children()):
        yield from _names(child)
