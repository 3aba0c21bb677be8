"""Finds what the results of a query are grouped by, so that a wrong key of its rows is refused. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from engines.query.planjson import Expression, LogicalOperator, kind_of, operators

_SAME_ROWS: Final = frozenset(
    {"SubqueryAlias", "View", "Sort", "ResolvedHint", "Repartition", "RepartitionByExpression", "RebalancePartitions"}
)
_OF_WINDOWS: Final = "PreciseTimestampConversion"
"""The expression with which Spark computes time windows, and which no query can write."""


@dataclass(frozen=True)
class GroupedColumn:
    """A column of the results.

    Attributes:
        name: its name.
        part: which of the grouping expressions it tells, counted from 0; None if it tells none.
    """

    name: str
    part: int | None


@dataclass(frozen=True)
class Grouping:
    """How the aggregation groups that the results come from.

    Attributes:
        parts: how many grouping expressions it has; a row is named by all of them.
        columns: of the results.
        filtered: whether rows are left out by a condition on more than the grouping expressions (HAVING).
    """

    parts: int
    columns: tuple[GroupedColumn, ...]
    filtered: bool = False


@dataclass(frozen=True)
class _Level:
    """The grouping as the output of an operator; ``columns`` are known by their ids."""

    ids: tuple[int, ...]
    grouping: Grouping
    windows: frozenset[int]

    @property
    def known(self) -> dict[int, int | None]:
        return {each: column.part for each, column in zip(self.ids, self.grouping.columns, strict=True)}


def grouping_of(plan: str, leaves_are_events: Iterable[bool]) -> Grouping | None:
    """Return what the results are grouped by; None if the last operator that changes rows is no aggregation.

    Args:
        plan: Spark's analysed plan as JSON.
        leaves_are_events: for each leaf of the plan, from left to right, whether it is the view of events.
    """
    try:
        level = _level(operators(plan, leaves_are_events), {})
    except (KeyError, IndexError, TypeError, ValueError):
        return None  # a form that is not known: nothing is claimed
    return None if level is None else level.grouping


def _level(node: LogicalOperator, ctes: dict[int, _Level | None]) -> _Level | None:
    match node.kind:
        case "Aggregate":
            return _aggregated(node)
        case "WithCTE":
            *definitions, plan = node.children  # one that reads another one comes after it
            for each in definitions:
                ctes[each.fields["id"]] = _level(each.children[0], ctes)
            return _level(plan, ctes)
        case "CTERelationRef":
            found = ctes[node.fields["cteId"]]
            return None if found is None else replace(found, ids=tuple(map(_id, node.fields["output"])))
    if len(node.children) != 1 or (node.kind not in _SAME_ROWS and node.kind not in ("Project", "Filter")):
        return None
    below = _level(node.children[0], ctes)
    if below is None or node.kind in _SAME_ROWS:
        return below
    return _projected(node.fields, below) if node.kind == "Project" else _filtered(node.fields, below)


def _aggregated(node: LogicalOperator) -> _Level:
    grouping = [_plain(each) for each in node.fields["groupingExpressions"]]
    known = {_id(each): part for part, each in enumerate(grouping) if kind_of(each) == "AttributeReference"}
    windows = frozenset(known[each] for each in _windows(node.children[0]) if each in known)
    results = node.fields["aggregateExpressions"]
    columns = tuple(
        GroupedColumn(
            str(each[0]["name"]),
            grouping.index(_plain(each)) if _plain(each) in grouping else _part_of(each, known, windows),
        )
        for each in results
    )
    return _Level(tuple(map(_id, results)), Grouping(len(grouping), columns), windows)


def _windows(node: LogicalOperator) -> Iterator[int]:
    """Yield the ids of the columns of time windows that an aggregation groups by: Spark computes them right below."""
    while node.kind == "Filter":
        node = node.children[0]
    fields, computed = node.fields, []
    if node.kind == "Project":
        computed = fields["projectList"]
    elif node.kind == "Expand":
        computed = [[*name, *made] for name, made in zip(fields["output"], fields["projections"][0], strict=True)]
    for each in computed:
        if any(kind_of([part]) == _OF_WINDOWS for part in each):
            yield _id(each)


def _projected(fields: Mapping[str, Any], below: _Level) -> _Level:
    results, known = fields["projectList"], below.known
    columns = tuple(GroupedColumn(str(each[0]["name"]), _part_of(each, known, below.windows)) for each in results)
    return replace(below, ids=tuple(map(_id, results)), grouping=replace(below.grouping, columns=columns))


def _filtered(fields: Mapping[str, Any], below: _Level) -> _Level:
    known = below.known
    read = _attributes(fields["condition"])
    filtered = below.grouping.filtered or any(known.get(each) is None for each in read)
    return replace(below, grouping=replace(below.grouping, filtered=filtered))


def _part_of(expression: Expression, known: Mapping[int, int | None], windows: frozenset[int]) -> int | None:
    """Return which grouping expression a result tells: it is that expression, or one end of its time window."""
    plain = _plain(expression)
    if kind_of(plain) == "AttributeReference":
        return known.get(_id(plain))
    if kind_of(plain) == "GetStructField" and kind_of(plain[1:]) == "AttributeReference":
        part = known.get(_id(plain[1:]))
        return part if part in windows else None
    return None


def _attributes(condition: Sequence[Mapping[str, Any]]) -> Iterator[int]:
    return (_id([part]) for part in condition if kind_of([part]) == "AttributeReference")


def _plain(expression: Expression) -> Expression:
    """Return an expression without its name, and without the casts of columns of views to their own type."""
    plain = expression[1:] if kind_of(expression) == "Alias" else expression
    while kind_of(plain) == "Cast" and plain[0]["dataType"] == plain[1].get("dataType"):
        plain = plain[1:]
    return plain


def _id(named: Expression) -> int:
    return int(named[0]["exprId"]["id"])
