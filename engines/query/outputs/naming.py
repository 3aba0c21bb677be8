"""Results that name their events: a plan passes hidden columns of each event on to the rows that are made of it.

A query does not see these columns, so that ``SELECT *`` means what it did. Spark has no public way for this: the
analysed plan is rewritten, from the events up to its root.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from pyspark.sql import DataFrame

from engines.query.conditions import scala_items
from infra.messages import NAMES

Build = Callable[[DataFrame], DataFrame]

_PASS: Final = frozenset({"Filter", "Generate", "Join", "ResolvedHint", "SubqueryAlias", "View"})
"""Nodes whose output has all columns of the child that has the events, but for a semi or an anti join's other side."""


def naming(build: Build) -> Build:
    """Return a query whose results end with ``NAMES`` of their events, if its plan allows it; otherwise without.

    Args:
        build: the query over its own columns.
    """

    def build_named(events: DataFrame) -> DataFrame:
        results = build(events.drop(*NAMES))
        named = _named(results)
        return results if named is None else named

    return build_named


def _named(results: DataFrame) -> DataFrame | None:
    session = results.sparkSession
    jvm: Any = session._jvm  # noqa: SLF001 - plans are nowhere in the public API
    analysed = results._jdf.queryExecution().analyzed()  # noqa: SLF001
    # A common table expression is beside the plan until it is put where it is used.
    plan = jvm.org.apache.spark.sql.catalyst.optimizer.InlineCTE(True, False, False).apply(analysed)
    found = _carrying(jvm, plan)
    if found is None:
        return None
    columns = jvm.PythonUtils.toSeq([*scala_items(plan.output()), *found.names])
    root = jvm.org.apache.spark.sql.catalyst.plans.logical.Project(columns, found.node)
    return DataFrame(jvm.org.apache.spark.sql.classic.Dataset.ofRows(session._jsparkSession, root), session)  # noqa: SLF001


class _Carrying(NamedTuple):
    """A node of a plan whose output has the names, and these attributes."""

    node: Any
    names: Sequence[Any]


def _carrying(jvm: Any, node: Any) -> _Carrying | None:
    """Return a node whose output has the names, too; None if none of its children can have them, or it drops them."""
    output = {each.name(): each for each in scala_items(node.output())}
    if output.keys() >= set(NAMES):
        return _Carrying(node, [output[name] for name in NAMES])
    children = list(scala_items(node.children()))
    found = [_carrying(jvm, child) for child in children]
    carrying = [each for each in found if each is not None]
    if len(carrying) != 1:
        return None
    names = carrying[0].names
    inner = [child if each is None else each.node for child, each in zip(children, found, strict=True)]
    kind = node.getClass().getSimpleName()
    if kind == "Project":
        columns = node.projectList().appendedAll(jvm.PythonUtils.toSeq(list(names)))
        return _Carrying(jvm.org.apache.spark.sql.catalyst.plans.logical.Project(columns, inner[0]), names)
    return _Carrying(node.withNewChildren(jvm.PythonUtils.toSeq(inner)), names) if kind in _PASS else None
