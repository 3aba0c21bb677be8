"""Analyses Spark's own plan of a query: the columns and rows it reads, and its class.

Spark cannot optimise a streaming frame's plan by itself, and does not prune columns of a Python source. So the query is
planned once over an empty Parquet relation of the same schema: its file scan names the needed columns and the early
filters.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from engines.query import schemas
from engines.query.conditions import early, scala_items
from engines.query.keys import grouping_keys
from engines.query.nodes import EMPTY, PlanNode, clocks_of, is_events, node_of, others_read
from engines.query.outputs.grouping import Grouping, grouping_of
from engines.query.reasons import why
from engines.query.uses import uses_of
from infra.messages import ColumnUse, Predicate, QueryPlan
from infra.queryplan import is_stream

# Makes the empty relation as large as a stream in the planner's eyes, so that a join broadcasts its static side.
_AS_LARGE_AS_A_STREAM = 1e12

_UNARY = frozenset({"ProjectExec", "FilterExec", "GenerateExec", "ArrowEvalPythonExec", "BatchEvalPythonExec"})
_BROADCAST = frozenset({"BroadcastHashJoinExec", "BroadcastNestedLoopJoinExec"})
_JOINS = _BROADCAST | {"SortMergeJoinExec", "ShuffledHashJoinExec", "CartesianProductExec"}
_MOVES = frozenset({"CoalesceExec", "ShuffleExchangeExec", "UnionExec"})
_STATIC_JOIN_LEFT = frozenset({"Inner", "Cross", "LeftOuter", "LeftSemi", "LeftAnti"})
_STATIC_JOIN_RIGHT = frozenset({"Inner", "Cross", "RightOuter"})
_PLAIN_WORDS = {
    "Aggregate": "it aggregates over many events",
    "Window": "it uses a window function over many events",
    "Sort": "it sorts",
    "TakeOrdered": "it sorts and limits",
    "Limit": "it has a LIMIT",
    "Sample": "it samples",
    "Deduplicate": "it removes duplicates",
    "TransformWithState": "it keeps state by key",
    "FlatMapGroups": "it works on groups",
    "MapGroups": "it works on groups",
    "CoGroup": "it works on groups",
    "MapIn": "mapInPandas and mapInArrow see many events at a time",
}


class NotStreamingError(Exception):
    """The query does not read the view ``events``."""


def empty_events(session: SparkSession, schema: StructType, workdir: Path) -> DataFrame:
    """Return an empty relation that plans like a stream of events; for `analyse` only.

    Args:
        session: a session of its own, since its settings are changed.
        schema: the query's input.
        workdir: a folder for the empty file, one for each schema.
    """
    session.conf.set("spark.sql.sources.fileCompressionFactor", str(_AS_LARGE_AS_A_STREAM))
    session.conf.set("spark.sql.parquet.inferTimestampNTZ.enabled", "false")
    folder = workdir / EMPTY
    folder.mkdir(parents=True, exist_ok=True)
    # Python writes the file, not Spark: a Spark job would cost more than the whole analysis. Nobody reads the file.
    pq.write_table(schemas.arrow_of(schema).empty_table(), folder / "part-0.parquet")
    return session.read.schema(schema).parquet(folder.as_uri())


def analyse(result: DataFrame, schema: StructType) -> QueryPlan:
    """Return the properties of a query's plan over `empty_events`.

    Args:
        result: the query's frame.
        schema: the query's input.
    """
    execution = result._jdf.queryExecution()  # noqa: SLF001 - plans are nowhere in the public API
    analysed = execution.analyzed()
    varying = _varying(result.sparkSession, analysed)
    try:
        root = node_of(execution.sparkPlan())
    except (PySparkException, Py4JJavaError) as error:
        # Some streaming operators cannot be planned over a relation, but all hold state.
        return _with_keys(unreadable(why(error)), result.sparkSession, analysed, varying)
    scans = [node for node in root.walk() if node.reads_events]
    subquery = execution.optimizedPlan().containsPattern(_pattern(result.sparkSession, "PLAN_EXPRESSION"))
    reason = _why_whole(root) or ("it has a subquery that is not a join" if subquery else "")
    full = schemas.arrow_of(schema)
    note, needed, predicates = _reads(scans, full)
    others = () if reason else others_read(analysed)
    apart = reason or _why_apart(others, varying)
    found = QueryPlan(
        switch_class="whole" if reason or others else "stateless",
        switchable=not apart,
        one_by_one=bool(others),
        narrow=not reason and _is_narrow(root, scans),
        reason=apart,
        needed_schema=None if needed is None else schemas.serialised(needed),
        predicates=predicates,
        trim_note=note,
        uses=uses_of(root, result.columns, full, predicates),
    )
    return _with_keys(found, result.sparkSession, analysed, varying) if reason else found


def with_event_time(found: QueryPlan, column: str, schema: pa.Schema) -> QueryPlan:
    """Return a stateful query's plan with what its watermark needs: the event time of every row.

    The plan itself does not show it, since Spark removes the watermark of a relation. Of the conditions, Spark moves
    those on other columns below the watermark. A row that a condition on the event time excludes counts for the
    watermark, so it must not be left out early.

    Args:
        found: the plan.
        column: of the event time.
        schema: the query's input.
    """
    kept = tuple(less for each in found.predicates if (less := _without(column, each)) is not None)
    read = {column: "the watermark is computed from it"}
    for left in found.predicates:
        if left not in kept:
            read |= dict.fromkeys(left.columns - {column}, f"a condition reads it together with {column}")
    needed, uses = found.needed_schema, found.uses
    if needed is not None:
        there = pa.ipc.read_schema(pa.py_buffer(needed))
        names = {*there.names, column}
        fields = [there.field(each.name) if each.name in there.names else each for each in schema if each.name in names]
        needed = schemas.serialised(pa.schema(fields))
    if uses is not None:
        used = {use.column: use for use in uses}
        for name, other in read.items():
            used[name] = msgspec.structs.replace(used.get(name, ColumnUse(column=name)), other=other)
        uses = tuple(used.values())
    return msgspec.structs.replace(found, needed_schema=needed, predicates=kept, uses=uses)


def _without(column: str, condition: Predicate) -> Predicate | None:
    """Return what a condition demands of other columns than an event time; None if Spark evaluates it above.

    Of a condition that says what the scan of each stream wants, Spark evaluates the rest of each part below.
    """
    if column not in condition.columns:
        return condition
    if condition.op != "or" or not all(any(is_stream(each) for each in part.children) for part in condition.children):
        return None
    parts = [tuple(each for each in part.children if column not in each.columns) for part in condition.children]
    branches = (
        msgspec.structs.replace(part, children=left) for part, left in zip(condition.children, parts, strict=True)
    )
    return msgspec.structs.replace(condition, children=tuple(branches))


def with_watermarks(found: QueryPlan, columns: Sequence[str] | None, schema: pa.Schema) -> QueryPlan:
    """Return a stateful query's plan with what the watermarks need that it sets itself; see ``with_event_time``.

    Args:
        found: the plan.
        columns: of the event times; None if they are not known.
        schema: the query's input.
    """
    if columns is None:
        note = "everything is sent, because it is not known from which columns its watermark is computed"
        return msgspec.structs.replace(found, needed_schema=None, predicates=(), trim_note=note, uses=None)
    for column in columns:
        found = with_event_time(found, column, schema)
    return found


def grouping(result: DataFrame) -> Grouping | None:
    """Return what a query's results are grouped by; None if that is not known."""
    analysed = result._jdf.queryExecution().analyzed()  # noqa: SLF001 - plans are nowhere in the public API
    return grouping_of(str(analysed.toJSON()), _leaves_are_events(analysed))


def _leaves_are_events(analysed: Any) -> list[bool]:
    return [is_events(leaf) for leaf in scala_items(analysed.collectLeaves())]


def unreadable(why: str) -> QueryPlan:
    """Return the defaults for a query whose plan cannot be read: send everything, split nothing."""
    return QueryPlan(
        switch_class="whole",
        switchable=False,
        narrow=False,
        reason=f"its plan cannot be read: {why}",
        trim_note=f"everything is sent, because the plan cannot be read: {why}",
    )


def _why_apart(others: Sequence[str], varying: Sequence[str]) -> str:
    """Return why two places could give different answers to one event; empty if they could not."""
    if others:
        return f"it reads {', '.join(others)}, not declared in tables: another place may have another version, or none"
    return f"its answer depends on where and when it runs: {', '.join(varying)}" if varying else ""


def _with_keys(found: QueryPlan, session: SparkSession, analysed: Any, varying: list[str]) -> QueryPlan:
    """Return a stateful query's plan as ``keyed`` if it has keys, else with the reason why it has none."""
    keys: tuple[str, ...] = ()
    has_subquery = analysed.containsPattern(_pattern(session, "PLAN_EXPRESSION"))
    # Another machine may not have a file that the query reads.
    found = msgspec.structs.replace(found, movable=not varying and not has_subquery and not others_read(analysed))
    if varying:
        why_not = _why_apart((), varying)
    elif has_subquery:
        why_not = "it has a subquery"
    else:
        keys, why_not = grouping_keys(str(analysed.toJSON()), _leaves_are_events(analysed))
    if keys:
        return msgspec.structs.replace(found, switch_class="keyed", keys=keys)
    more = "" if why_not in found.reason else f"; it is not keyed, because {why_not}"
    return msgspec.structs.replace(found, reason=found.reason + more)


def _reads(scans: list[PlanNode], full: pa.Schema) -> tuple[str, pa.Schema | None, tuple[Predicate, ...]]:
    if not scans:
        return "everything is sent, because the optimised plan reads no events at all", None, ()
    parts = [json.loads(scan.jvm.requiredSchema().json()) for scan in scans]
    needed = schemas.merged(full, parts)
    left: list[str] = []
    branches: list[tuple[Predicate, ...]] = []
    for scan in scans:
        taken, skipped = early(scan.jvm.dataFilters(), full)
        branches.append(taken)
        left += skipped
    note = f"only Spark evaluates {'; '.join(dict.fromkeys(left))}" if left else ""
    return note, needed, _any_branch(branches)


def _any_branch(branches: list[tuple[Predicate, ...]]) -> tuple[Predicate, ...]:
    """Return the conditions that a row must meet to be needed by at least one of several scans."""
    common = tuple(each for each in branches[0] if all(each in branch for branch in branches))
    others = [tuple(each for each in branch if each not in common) for branch in branches]
    if not all(others):
        return common
    return (*common, Predicate(op="or", children=tuple(Predicate(op="and", children=other) for other in others)))


def _why_whole(root: PlanNode) -> str:
    return next((why for node in root.walk() if (why := _why_node_is_whole(node))), "")


def _why_node_is_whole(node: PlanNode) -> str:
    if not any(each.reads_events for each in node.walk()):
        return ""
    if node.kind in _UNARY or node.kind in _MOVES or node.reads_events:
        return ""
    if node.kind in _JOINS:
        return _why_join_is_whole(node)
    plain = next((words for part, words in _PLAIN_WORDS.items() if part in node.kind), None)
    return plain or f"its plan has {node.kind.removesuffix('Exec')}, which may look at more than one event"


def _why_join_is_whole(join: PlanNode) -> str:
    left, right = (any(each.reads_events for each in child.walk()) for child in join.children)
    kind = str(join.jvm.joinType().toString())
    if left and right:
        return "it joins events with events"
    if kind not in (_STATIC_JOIN_LEFT if left else _STATIC_JOIN_RIGHT):
        return f"its {kind} join needs all events before it can answer"
    return ""


def _is_narrow(root: PlanNode, scans: list[PlanNode]) -> bool:
    """Return whether each result row is made in the partition that holds its event."""
    if len(scans) != 1:
        return False
    node = root
    while node is not scans[0]:
        if node.kind in _BROADCAST:
            side = next(index for index, child in enumerate(node.children) if scans[0] in child.walk())
            if str(node.jvm.buildSide().toString()) == ("BuildLeft" if side == 0 else "BuildRight"):
                return False
            node = node.children[side]
        elif node.kind in _UNARY:
            node = node.children[0]
        else:
            return False
    return True


def _varying(session: SparkSession, analysed: Any) -> list[str]:
    """Return the expressions whose value may differ from place to place; read before optimisation, which folds some."""
    current = _pattern(session, "CURRENT_LIKE")
    clocks = list(dict.fromkeys(clocks_of(analysed)))
    if analysed.deterministic() and not analysed.containsPattern(current):
        return clocks
    names: dict[str, None] = {}
    _collect_varying(analysed, current, names)
    return [*(names or ["an expression of its plan"]), *clocks]


def _collect_varying(plan: Any, current: Any, names: dict[str, None]) -> None:
    for expression in scala_items(plan.expressions()):
        _name_varying(expression, current, names)
    for child in scala_items(plan.children()):
        _collect_varying(child, current, names)


def _name_varying(expression: Any, current: Any, names: dict[str, None]) -> None:
    if expression.deterministic() and not expression.containsPattern(current):
        return
    below = [
        child
        for child in scala_items(expression.children())
        if not child.deterministic() or child.containsPattern(current)
    ]
    for child in below:
        _name_varying(child, current, names)
    if not below:
        name = str(expression.prettyName()).lower()
        names["a Python UDF declared nondeterministic" if "pythonudf" in name else name] = None


def _pattern(session: SparkSession, name: str) -> Any:
    jvm: Any = session.sparkContext._jvm  # noqa: SLF001
    return getattr(jvm.org.apache.spark.sql.catalyst.trees.TreePattern, name)()
