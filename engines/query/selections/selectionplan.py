"""The plan of a query with selections: whether each can be processed by itself, and the order of the results."""

from __future__ import annotations

from collections.abc import Collection

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import DataType, MapType, StructType, VariantType

from engines.query import schemas
from engines.query.parts.heartbeats import Build
from infra.messages import POSITION, SELECTION, ColumnUse, QueryPlan
from infra.queryplan import SelectionConditions


def why_not_apart(found: QueryPlan, results: Collection[str]) -> str:
    """Return why a query cannot process each selection by itself; empty if it can.

    Args:
        found: its plan over events with the column ``selection``.
        results: its result columns.
    """
    if found.stateful and SELECTION not in found.keys:
        return (
            f"its result for one selection depends on the others ({found.reason}): add {SELECTION} to each GROUP BY, "
            "PARTITION BY and DISTINCT"
        )
    if SELECTION not in results:
        return f"its results must have the column {SELECTION}, by which they are put in order: add it to the SELECT"
    return ""


def as_stateless(found: QueryPlan, selecting: SelectionConditions | None) -> QueryPlan:
    """Return the plan of a query whose runs have whole selections: each run can be processed anywhere, by itself.

    All events of a selection are sent, since an early condition would change which events it has.

    Args:
        found: the plan over rows with the column ``selection``.
        selecting: where selections open and close.
    """
    apart = found.movable if found.stateful else found.switchable
    return msgspec.structs.replace(
        found,
        switch_class="stateless",
        switchable=apart,
        one_by_one=False,
        narrow=False,
        movable=False,
        keys=(),
        reason="" if apart else found.reason,
        needed_schema=_without_selection(found.needed_schema),
        predicates=(),
        uses=_all_uses(found),
        selecting=selecting,
        names_selections=any(use.column == SELECTION and SELECTION in use.copies for use in found.uses or ()),
    )


def _all_uses(found: QueryPlan) -> tuple[ColumnUse, ...] | None:
    """Return the uses of a plan whose conditions only Spark evaluates."""
    if found.uses is None:
        return None
    uses = {use.column: use for use in found.uses}
    for name in sorted({name for condition in found.predicates for name in condition.columns}):
        use = uses.get(name, ColumnUse(column=name))
        uses[name] = msgspec.structs.replace(use, other=use.other or "a condition reads it, which only Spark evaluates")
    return tuple(uses.values())


def _without_selection(needed: bytes | None) -> bytes | None:
    if needed is None:
        return None
    schema = pa.ipc.read_schema(pa.py_buffer(needed))
    return schemas.serialised(pa.schema([field for field in schema if field.name not in (SELECTION, POSITION)]))


def in_order(build: Build) -> Build:
    """Return a function whose results are in order of the selections, then of the values in the other columns."""

    def build_in_order(events: DataFrame) -> DataFrame:
        results = build(events)
        names = [SELECTION, *(name for name in _sortable(results.schema) if name != SELECTION)]
        # The results of a run are few. In one partition, no second exchange puts them in order.
        return results.coalesce(1).sortWithinPartitions(*(f"`{name.replace('`', '``')}`" for name in names))

    return build_in_order


def _sortable(columns: StructType) -> list[str]:
    return [column.name for column in columns.fields if not _has_map(column.dataType)]


def _has_map(kind: DataType) -> bool:
    if isinstance(kind, MapType | VariantType):
        return True
    if isinstance(kind, StructType):
        return any(_has_map(column.dataType) for column in kind.fields)
    element = getattr(kind, "elementType", None)
    return element is not None and _has_map(element)
