"""Finds out what a plan does with each input column: only copy it, compare it, or read its values.

The physical plan is walked from its scans up. A copy of a column keeps Spark's expression id, or gets a new one by a
rename. Whatever is not known to leave values alone counts as reading them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from engines.query.conditions import conjuncts, early_form, kind_of, scala_items
from engines.query.nodes import PlanNode
from infra.messages import ColumnUse, Predicate

# Their output is that of their children, under the same ids, and what their expressions return.
_PASSES_ON = frozenset(
    {
        *("ArrowEvalPythonExec", "BatchEvalPythonExec", "CoalesceExec", "ShuffleExchangeExec"),
        *("BroadcastHashJoinExec", "BroadcastNestedLoopJoinExec", "CartesianProductExec"),
        *("ShuffledHashJoinExec", "SortMergeJoinExec"),
    }
)
# Leaves that certainly do not hold events, as a cached table may.
_STATIC = frozenset({"FileSourceScanExec", "LocalTableScanExec", "OneRowRelationExec", "RangeExec"})
_EQUALITY = frozenset({"EqualTo", "EqualNullSafe"})
_NULL_TESTS = frozenset({"IsNull", "IsNotNull"})
_ID = re.compile(r"#\d+L?")
_TEXT_MAX = 120


@dataclass
class _Use:
    copies: list[str] = field(default_factory=list)
    compared_with: dict[str, None] = field(default_factory=dict)
    tested_for_null: bool = False
    other: str = ""


def uses_of(
    root: PlanNode, results: Sequence[str], schema: pa.Schema, predicates: Iterable[Predicate]
) -> tuple[ColumnUse, ...]:
    """Return what a plan does with each input column that it uses.

    Args:
        root: the physical plan over ``engines.query.plan.empty_events``.
        results: the names of the result columns.
        schema: the query's input.
        predicates: the conditions that every row met before it was sent: the plan's own evaluation of them is no use.
    """
    trace = _Trace(schema, tuple(predicates))
    trace.walk(root)
    trace.end(root, results)
    return tuple(
        ColumnUse(
            column=name,
            copies=tuple(use.copies),
            compared_with=tuple(use.compared_with),
            tested_for_null=use.tested_for_null,
            other=use.other,
        )
        for name, use in trace.uses.items()
    )


class _Trace:
    """The columns of which attributes are copies, by Spark's expression id, and the uses found so far."""

    def __init__(self, schema: pa.Schema, met: tuple[Predicate, ...]) -> None:
        self._schema = schema
        self._met = met
        self._copies: dict[int, str] = {}
        self.uses: dict[str, _Use] = {}

    def walk(self, node: PlanNode) -> None:
        for child in node.children:
            self.walk(child)
        if node.reads_events:
            for attribute in scala_items(node.jvm.output()):
                self._copies[_id(attribute)] = str(attribute.name())
        elif not node.children and node.kind not in _STATIC:
            self._lose(node)
        elif any(each.reads_events for each in node.walk()):
            self._note(node)

    def end(self, root: PlanNode, results: Sequence[str]) -> None:
        for name, attribute in zip(results, scala_items(root.jvm.output()), strict=True):
            if (column := self._copied(attribute)) is not None:
                self._use(column).copies.append(name)

    def _note(self, node: PlanNode) -> None:
        match node.kind:
            case "ProjectExec":
                self._project(scala_items(node.jvm.projectList()))
            case "FilterExec":
                self._filter(node)
            case "GenerateExec":
                self._evaluated(node.jvm.generator(), node.jvm.generator())
            case "UnionExec":
                self._union(node)
            case kind if kind in _PASSES_ON:
                for expression in scala_items(node.jvm.expressions()):
                    self._evaluated(expression, expression)
            case _:
                self._lose(node)

    def _project(self, expressions: Iterable[Any]) -> None:
        for expression in expressions:
            kind = kind_of(expression)
            if kind == "AttributeReference":
                continue
            column = self._copied(expression.child()) if kind == "Alias" else None
            if column is None:
                self._evaluated(expression, expression)
            else:
                self._copies[_id(expression)] = column

    def _filter(self, node: PlanNode) -> None:
        on_events = node.children[0].reads_events
        for condition in conjuncts(node.jvm.condition()):
            if on_events and early_form(condition, self._schema) in self._met:
                continue
            self._evaluated(condition, condition)

    def _union(self, node: PlanNode) -> None:
        children = [[self._copied(each) for each in scala_items(child.jvm.output())] for child in node.children]
        for attribute, *columns in zip(scala_items(node.jvm.output()), *children, strict=True):
            self._copies.pop(_id(attribute), None)
            if columns[0] is not None and len(set(columns)) == 1:
                self._copies[_id(attribute)] = columns[0]
                continue
            for column in filter(None, columns):
                self._read(column, f"a UNION puts it into one column with other values ({attribute.name()})")

    def _evaluated(self, expression: Any, whole: Any) -> None:
        """Note what an expression, part of a ``whole``, does with the columns that it refers to."""
        kind = kind_of(expression)
        if kind == "AttributeReference":
            if (column := self._copied(expression)) is not None:
                self._read(column, _text(whole))
            return
        children = list(scala_items(expression.children()))
        columns = [self._copied(child) for child in children]
        if kind in _NULL_TESTS and columns[0] is not None:
            self._use(columns[0]).tested_for_null = True
        elif kind in _EQUALITY and columns[0] is not None and columns[1] is not None:
            self._use(columns[0]).compared_with[columns[1]] = None
            self._use(columns[1]).compared_with[columns[0]] = None
        else:
            for child in children:
                self._evaluated(child, whole)

    def _lose(self, node: PlanNode) -> None:
        """Note that an operator may do anything with every column."""
        for name in self._schema.names:
            self._read(name, f"{node.kind.removesuffix('Exec')}, whose values cannot be traced")

    def _copied(self, expression: Any) -> str | None:
        is_attribute = kind_of(expression) == "AttributeReference"
        return self._copies.get(_id(expression)) if is_attribute else None

    def _read(self, column: str, what: str) -> None:
        use = self._use(column)
        use.other = use.other or what

    def _use(self, column: str) -> _Use:
        return self.uses.setdefault(column, _Use())


def _id(attribute: Any) -> int:
    return int(attribute.exprId().id())


def _text(expression: Any) -> str:
    text = _ID.sub("", str(expression.toString()))
    return text if len(text) <= _TEXT_MAX else f"{text[: _TEXT_MAX - 1]}…"
