"""Finds the keys of a stateful query: source columns such that events with different values in them never meet.

See docs/decisions/0103-keys-are-columns-that-all-operators-group-by.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

from engines.query.planjson import (
    Expression,
    LogicalOperator,
    Output,
    class_name,
    computed,
    equal_columns,
    kind_of,
    operators,
    origins,
    projected,
    renamed,
    without_origin,
)
from infra.messages import POSITION

_TYPES = frozenset(
    {"string", "boolean", "byte", "short", "integer", "long", "date", "timestamp", "timestamp_ntz", "binary"}
)
"""Types of which equal values have equal bytes; decimals of one type have, too."""

_ROW_BY_ROW = frozenset(
    {
        *("SubqueryAlias", "View", "Filter", "CTERelationDef", "ResolvedHint"),
        *("Repartition", "RepartitionByExpression", "RebalancePartitions"),
    }
)
_GENERATORS = frozenset({"Explode", "PosExplode", "Inline", "Stack", "JsonTuple"})
_GROUPS_IN_PYTHON = frozenset({"FlatMapGroupsInPandas", "FlatMapGroupsInArrow", "FlatMapGroupsInPandasWithState"})
# Whether the attributes of the left and of the right side keep their values; None: they are no output.
_JOINS: Mapping[str, tuple[bool, bool | None]] = {
    "Inner": (True, True),
    "Cross": (True, True),
    "LeftOuter": (True, False),
    "RightOuter": (False, True),
    "FullOuter": (False, False),
    "LeftSemi": (True, None),
    "LeftAnti": (True, None),
}
_BY_ORDER = {
    "First": "first",
    "Last": "last",
    "AnyValue": "any_value",
    "CollectList": "collect_list",
    "ListAgg": "listagg",
    "Mode": "mode",
}
_REFUSED = {
    "Sort": "it sorts",
    "GlobalLimit": "it has a LIMIT",
    "Offset": "it has an OFFSET",
    "Sample": "it samples",
    "Union": "it has a UNION",
    "Intersect": "it has an INTERSECT",
    "Except": "it has an EXCEPT",
}


class _NoKeyError(Exception):
    """The query cannot be proved to have a key; the message says why."""


def grouping_keys(plan: str, leaves_are_events: Iterable[bool]) -> tuple[tuple[str, ...], str]:
    """Return the source columns that every operator groups by in which events meet, or why there is none.

    Events with different values in any one of these columns never meet.

    Args:
        plan: Spark's analysed plan as JSON, of a query without subqueries in which all expressions are deterministic.
        leaves_are_events: for each leaf of the plan, from left to right, whether it is the view of events.

    Returns:
        The columns, in the order of the source, and "", or () and the reason.
    """
    walk = _Walk()
    try:
        walk.output(operators(plan, leaves_are_events))
    except _NoKeyError as error:
        return (), str(error)
    except (KeyError, IndexError, TypeError, ValueError) as error:
        return (), f"its plan has an unknown form ({error!r})"
    if not walk.meetings:
        return (), "its plan shows no operator in which events meet"
    common = reduce(frozenset.intersection, (columns for _, columns in walk.meetings))
    if not common:
        said = dict.fromkeys(what for what, _ in walk.meetings)
        return (), f"no column is a key of every operator: {'; '.join(said)}"
    kinds = {name: kind for name, kind in walk.types.items() if name in common}
    keys = tuple(name for name, kind in kinds.items() if _is_exact(kind))
    unfit = ", ".join(f"{name} has the type {_type_name(kind)}" for name, kind in kinds.items())
    return keys, "" if keys else f"{unfit}, which no key may have"


@dataclass
class _Walk:
    """What is known while a plan is read.

    Attributes:
        meetings: the operators in which events meet: each in words, with the source columns that it groups by.
        types: of the source columns, in their order.
        ctes: what each common table expression returns.
    """

    meetings: list[tuple[str, frozenset[str]]] = field(default_factory=list)
    types: dict[str, Any] = field(default_factory=dict)
    ctes: dict[int, Output] = field(default_factory=dict)

    def output(self, node: LogicalOperator) -> Output:
        match node.kind:
            case "CTERelationRef":
                return self._cte(node)
            case "WithCTE":
                return self._with_ctes(node)
            case "Join":
                return self._join(node)
            case "TransformWithStateInPySpark":
                return self._transform_with_state(node)
        if not node.children:
            return self._source(node)
        if len(node.children) > 1:
            raise _NoKeyError(_refused(node))
        return self._unary(node, self.output(node.children[0]))

    def _unary(self, node: LogicalOperator, below: Output) -> Output:
        fields = node.fields
        match node.kind:
            case "Project":
                return projected(fields["projectList"], below)
            case "Aggregate":
                _refuse_order(fields["aggregateExpressions"])
                self._meet("an aggregation", fields["groupingExpressions"], below)
                return projected(fields["aggregateExpressions"], below)
            case "Distinct":
                self.meetings.append(_meeting("a DISTINCT", (column for _, column in below)))
                return below
            case "Deduplicate" | "DeduplicateWithinWatermark":
                self._meet("a removal of duplicates", fields["keys"], below)
                return below
            case "Window":
                self._meet("a window function", fields["partitionSpec"], below)
                return below + computed(fields["windowExpressions"])
            case "Generate" if kind_of(fields["generator"]) in _GENERATORS and not fields["unrequiredChildIndex"]:
                return below + computed(fields["generatorOutput"])
            case "Expand":
                return _expanded(fields, below)
            case kind if kind in _GROUPS_IN_PYTHON:
                _refuse_clock(fields.get("timeout"))
                self._meet("a function of groups", fields["groupingAttributes"], below)
                return computed(fields.get("output") or fields["outputAttrs"])
            case kind if kind in _ROW_BY_ROW:
                return below
        raise _NoKeyError(_refused(node))

    def _meet(self, what: str, grouping: Sequence[Expression], below: Output) -> None:
        self.meetings.append(_meeting(what, origins(grouping, below)))

    def _source(self, node: LogicalOperator) -> Output:
        if not node.is_events:
            raise _NoKeyError("it reads more than the view events")
        columns = node.fields["output"]
        self.types |= {column[0]["name"]: column[0]["dataType"] for column in columns}
        return renamed(columns, (column[0]["name"] for column in columns))

    def _with_ctes(self, node: LogicalOperator) -> Output:
        *definitions, plan = node.children  # one that reads another one comes after it
        for each in definitions:
            self.ctes[each.fields["id"]] = self.output(each)
        return self.output(plan)

    def _cte(self, node: LogicalOperator) -> Output:
        found = self.ctes.get(node.fields["cteId"])
        if found is None:
            raise _NoKeyError("it is recursive")
        return renamed(node.fields["output"], (column for _, column in found))

    def _transform_with_state(self, node: LogicalOperator) -> Output:
        fields, events = node.fields, node.children[0]
        if fields["hasInitialState"] or events.kind != "Project":
            raise _NoKeyError("its transformWithState has an initial state")
        _refuse_clock(fields["timeMode"])
        # Spark puts the grouping expressions before the columns that the function gets.
        grouping = events.fields["projectList"][: fields["groupingAttributesLen"]]
        self._meet("transformWithState", grouping, self.output(events.children[0]))
        return computed(fields["outputAttrs"])

    def _join(self, node: LogicalOperator) -> Output:
        left, right = (self.output(child) for child in node.children)
        kind = class_name(node.fields["joinType"].get("object", ""))
        if kind not in _JOINS:
            raise _NoKeyError(_refused(node))
        self.meetings.append(_meeting("a join", equal_columns(node.fields.get("condition") or (), left, right)))
        keeps_left, keeps_right = _JOINS[kind]
        kept = left if keeps_left else without_origin(left)
        if keeps_right is None:
            return kept
        return kept + (right if keeps_right else without_origin(right))


def _expanded(fields: Mapping[str, Any], below: Output) -> Output:
    """Return the output of an operator that makes several rows of one: the columns that are the same in all of them."""
    positions = zip(*(origins(row, below) for row in fields["projections"]), strict=True)
    return renamed(fields["output"], (each[0] if len(set(each)) == 1 else None for each in positions))


def _meeting(what: str, columns: Iterable[str | None]) -> tuple[str, frozenset[str]]:
    plain = dict.fromkeys(each for each in columns if each is not None)
    return f"{what} by {', '.join(plain) or 'no plain column'}", frozenset(plain)


def _refuse_clock(mode: Mapping[str, Any] | None) -> None:
    if mode is not None and "ProcessingTime" in mode["object"]:
        raise _NoKeyError("its timers follow the clock of the place where it runs")


def _refuse_order(expressions: Sequence[Expression]) -> None:
    for expression in expressions:
        names = [class_name(part["class"]) for part in expression]
        for index, name in enumerate(names):
            if name in _BY_ORDER and not _is_in_position(expression, names, index):
                raise _NoKeyError(f"{_BY_ORDER[name]} depends on the order in which events meet")


def _is_in_position(expression: Expression, names: Sequence[str], index: int) -> bool:
    """Return whether a list is sorted by the positions of events: a pattern's list, whatever order they meet in."""
    around = [*names[max(0, index - 2) : index], *names[index : index + 3]]
    is_sorted = around == ["SortArray", "AggregateExpression", "CollectList", "CreateNamedStruct", "Literal"]
    return is_sorted and expression[index + 2].get("value") == POSITION


def _refused(node: LogicalOperator) -> str:
    return _REFUSED.get(node.kind) or f"its plan has {node.kind}, in which events may meet"


def _is_exact(kind: Any) -> bool:
    return isinstance(kind, str) and (kind in _TYPES or kind.startswith("decimal("))


def _type_name(kind: Any) -> str:
    return kind if isinstance(kind, str) else str(kind["type"])
