"""The operators of a plan: which of them read the query's events, and which of them measure time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from engines.query.conditions import kind_of, scala_items
from engines.spark.tablefiles import TABLES

EMPTY = "events-empty"
"""The folder of the empty relation that stands for the events."""
_PART_OF_THE_QUERY = frozenset({"LocalRelation", "OneRowRelation", "Range", "CTERelationRef"})
"""Leaves that are the same at each place, because the query itself has their rows."""


@dataclass(frozen=True)
class PlanNode:
    """A physical operator: its class name, its children, and the JVM's object."""

    kind: str
    children: tuple[PlanNode, ...]
    jvm: Any

    def walk(self) -> Iterator[PlanNode]:
        """Yield this operator and all below it."""
        yield self
        for child in self.children:
            yield from child.walk()

    @property
    def reads_events(self) -> bool:
        """Whether it is the scan of the events."""
        return self.kind == "FileSourceScanExec" and _lies_in_events(self.jvm.relation())


def node_of(jvm: Any) -> PlanNode:
    """Return the tree of operators of a physical plan."""
    children = tuple(node_of(child) for child in scala_items(jvm.children()))
    return PlanNode(kind=kind_of(jvm), children=children, jvm=jvm)


def is_events(leaf: Any) -> bool:
    """Return whether a leaf of an analysed plan is the relation of the events."""
    return kind_of(leaf) == "LogicalRelation" and _lies_in_events(leaf.relation())


def event_times(analysed: Any) -> tuple[str, ...] | None:
    """Return the columns from which a plan over a stream computes its watermarks; None if one is no column of it."""
    leaves = [leaf for leaf in scala_items(analysed.collectLeaves()) if leaf.isStreaming()]
    columns = {_id_of(column): str(column.name()) for leaf in leaves for column in scala_items(leaf.output())}
    timed = [_id_of(node.eventTime()) for node in _nodes(analysed) if kind_of(node) == "EventTimeWatermark"]
    if not all(each in columns for each in timed):
        return None
    return tuple(dict.fromkeys(columns[each] for each in timed))


def clocks_of(analysed: Any) -> Iterator[str]:
    """Yield by which timers of the machine's clock a plan keeps state; nothing if it has none."""
    for node in _nodes(analysed):
        kind = kind_of(node)
        if "WithState" in kind:
            mode = kind_of(node.timeMode() if kind.startswith("Transform") else node.timeout()).rstrip("$")
            if mode.startswith("ProcessingTime"):
                yield f"timers of the machine's clock ({mode})"


def _nodes(plan: Any) -> Iterator[Any]:
    yield plan
    for child in scala_items(plan.children()):
        yield from _nodes(child)


def _id_of(attribute: Any) -> str:
    return str(attribute.exprId().toString())


def others_read(analysed: Any) -> tuple[str, ...]:
    """Return what an analysed plan and its subqueries read besides the events, their query's rows and its tables."""
    plans = [analysed, *scala_items(analysed.subqueriesAll())]
    leaves = [leaf for plan in plans for leaf in scala_items(plan.collectLeaves())]
    others = [leaf for leaf in leaves if kind_of(leaf) not in _PART_OF_THE_QUERY and not _is_known(leaf)]
    return tuple(dict.fromkeys(_name_of(leaf) for leaf in others))


def watermarks(analysed: Any) -> int:
    """Return how many watermarks events pass at most in an analysed plan over a stream."""
    below = max((watermarks(child) for child in scala_items(analysed.children())), default=0)
    return below + (kind_of(analysed) == "EventTimeWatermark")


def _is_known(leaf: Any) -> bool:
    if kind_of(leaf) != "LogicalRelation":
        return False
    paths = _root_paths(leaf.relation())
    return is_events(leaf) or (bool(paths) and all(f"/{TABLES}/" in path for path in paths))


def _name_of(leaf: Any) -> str:
    kind = kind_of(leaf)
    if kind != "LogicalRelation":
        return "an RDD" if kind == "LogicalRDD" else f"a {kind}"
    if leaf.catalogTable().isDefined():
        return f"the table {leaf.catalogTable().get().qualifiedName()}"
    return ", ".join(_root_paths(leaf.relation())) or f"a {kind_of(leaf.relation())}"


def _lies_in_events(relation: Any) -> bool:
    return any(path.endswith(f"/{EMPTY}") for path in _root_paths(relation))


def _root_paths(relation: Any) -> list[str]:
    """Return the files and folders that a relation reads; none if it does not read files."""
    if kind_of(relation) != "HadoopFsRelation":
        return []
    return [str(path.toString()) for path in scala_items(relation.location().rootPaths())]
