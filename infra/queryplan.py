"""Properties of a query, derived from Spark's plan."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

STREAM: Final = "_stream"
"""The column of the events of several streams that has the name of each event's stream."""

SwitchClass = Literal["stateless", "keyed", "whole"]
PredicateOp = Literal[
    "is_null",
    "not_null",
    "eq",
    "lt",
    "le",
    "gt",
    "ge",
    "in",
    "starts_with",
    "ends_with",
    "contains",
    "and",
    "or",
    "not",
]


class Predicate(msgspec.Struct, frozen=True, kw_only=True):
    """A row condition that may be evaluated before the WAN, with Spark's three-valued logic.

    ``and``, ``or`` and ``not`` use ``children``; all others ``column`` (a path into nested structs) and ``value``
    (a list for ``in``).
    """

    op: PredicateOp
    column: tuple[str, ...] = ()
    value: str | int | bool | float | list[str | int | bool | float] | None = None
    children: tuple[Predicate, ...] = ()

    @property
    def columns(self) -> frozenset[str]:
        """Return the top-level columns that it reads."""
        return frozenset(self.column[:1]).union(*(child.columns for child in self.children))


def is_stream(condition: Predicate) -> bool:
    """Return whether a condition says of which of several streams a row is."""
    return condition.op == "eq" and condition.column == (STREAM,)


def of_stream(conditions: tuple[Predicate, ...], stream: Predicate) -> tuple[Predicate, ...]:
    """Return what rows of one of several streams must meet.

    Args:
        conditions: what a row must meet to be needed by one of several scans, each of one stream.
        stream: the condition that a row is of the stream.
    """
    found: list[Predicate] = []
    for each in conditions:
        branches = [child for child in each.children if stream in child.children] if each.op == "or" else []
        found += branches[0].children if len(branches) == 1 else (each,)
    return tuple(found)


class ColumnUse(msgspec.Struct, frozen=True, kw_only=True):
    """What a query's plan does with an input column, apart from the ``predicates`` of its `QueryPlan`.

    Attributes:
        column: its name.
        copies: the result columns that are unchanged copies of it.
        compared_with: the columns with which copies of it are compared for equality, and for nothing else.
        tested_for_null: whether ``IS NULL`` or ``IS NOT NULL`` is evaluated on a copy of it.
        other: what else reads its values; empty if nothing does.
    """

    column: str
    copies: tuple[str, ...] = ()
    compared_with: tuple[str, ...] = ()
    tested_for_null: bool = False
    other: str = ""


STATE_STAYS = (
    "its state cannot be moved, because its answer depends on more than its events (rand(), the time, timers "
    "of the machine's clock, files, subqueries), or because it has protected fields"
)
"""Why a query is not ``movable``."""


class StaticTable(msgspec.Struct, frozen=True, kw_only=True):
    """A table that a query reads besides its events, as a view.

    Attributes:
        name: of the view.
        format: of its files.
        schema_ddl: its columns as Spark DDL; empty if its files have them.
        header: whether the first line of a CSV file has the names of the columns.
        fingerprint: sha256 of the version of its files that is read; empty while none is chosen.
        path: where the gateway finds its files; hosts are not told.
    """

    name: str
    format: Literal["csv", "parquet", "json"]
    schema_ddl: str = ""
    header: bool = False
    fingerprint: str = ""
    path: str = ""


class SelectionConditions(msgspec.Struct, frozen=True, kw_only=True):
    """The conditions by which the gateway finds where selections open and close.

    Attributes:
        opening: an event that meets it opens a selection; None: each event does.
        closing: an event after the opening one that meets it closes the selection; None: none does.
        same: it does so only if it has the same value in this column as the opening event; empty if any event does.
        unread: the conditions on opening events that only Spark evaluates. Then more selections open than match.
    """

    opening: Predicate | None = None
    closing: Predicate | None = None
    same: str = ""
    unread: str = ""


class QueryPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Properties of a query, derived from Spark's own plan.

    Attributes:
        switch_class: ``stateless`` may be split at any share. The others hold state: events of a ``keyed`` query meet
            only if they agree in its ``keys``; of a ``whole`` one nothing is known, unless it is ``one_by_one``.
        reason: why it is not ``stateless``, or why it may not be switched; empty if there is nothing to report.
        keys: of a ``keyed`` query; columns of its input. Events that differ in any one of them never meet.
        switchable: False when splitting could change an answer (``rand()``, ``current_timestamp()``, state).
        movable: of a query that holds state: whether it may continue with its state on another machine.
        one_by_one: True if no two events meet in a ``whole`` query: it is whole only because of what else it reads.
        narrow: True when several runs may share a micro-batch because each output row still names its partition.
        needed_schema: the Arrow schema (serialised) of the columns, nested fields pruned, that the query reads;
            predicates: conditions, all of which must be true for a row to be needed.
        predicates: conditions, all of which must be true for a row to matter.
        trim_note: why ``needed_schema`` is None, or which predicates could not be taken early.
        uses: what the plan does with each column that it uses; None if that is unknown.
        selecting: where its selections open and close; None if no condition says that.
        names_selections: True when several runs may share a micro-batch because each output row names its selection.
    """

    switch_class: SwitchClass
    switchable: bool
    narrow: bool
    reason: str = ""
    keys: tuple[str, ...] = ()
    one_by_one: bool = False
    needed_schema: bytes | None = None
    predicates: tuple[Predicate, ...] = ()
    trim_note: str = ""
    uses: tuple[ColumnUse, ...] | None = None
    movable: bool = False
    selecting: SelectionConditions | None = None
    names_selections: bool = False

    @property
    def shares_batches(self) -> bool:
        """Whether several runs may share a micro-batch."""
        return self.narrow or self.names_selections

    @property
    def stateful(self) -> bool:
        """Whether events meet in it: all of them are processed in one place at a time."""
        return self.switch_class != "stateless" and not self.one_by_one
