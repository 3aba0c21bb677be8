"""Messages that open and close queries."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from infra.messages.base import Message
from infra.messages.direct import DirectFlow
from infra.messages.reading import Reading
from infra.messages.selecting import SelectionRule
from infra.queryplan import QueryPlan, StaticTable


class EventTime(msgspec.Struct, frozen=True, kw_only=True):
    """The column that holds the event time, and how many ms later than newer events an event may come."""

    column: str
    lateness_ms: int


class EventStream(msgspec.Struct, frozen=True, kw_only=True):
    """One of several streams whose events are rows of one table; a query sees it as a view with its own columns.

    Attributes:
        name: of the view, and of its rows in the column ``STREAM``.
        columns: each own column, and the column of the table that holds it.
        event_time: the watermark of the view; None: the query sets its own, or needs none.
    """

    name: str
    columns: tuple[tuple[str, str], ...]
    event_time: EventTime | None = None


HEARTBEAT: Final = "_heartbeat"
"""The last column of the runs of a part: true for a row of another part, which only moves the watermark."""


class KeyPart(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a keyed query: it gets the events of some of its keys, and has a name and a state of its own.

    Every run reaches every part, as a micro-batch of its own. A part without the newest event that meets the query's
    conditions gets a copy of it, marked in the column `HEARTBEAT`: so the watermarks of all parts are those of the
    undivided query.

    Attributes:
        key: the column by whose values the events are divided.
        index: the part, from 0.
        parts: how many there are.
    """

    key: str
    index: int
    parts: int


class OutputMode(msgspec.Struct, frozen=True, kw_only=True):
    """Which results a micro-batch emits, and the result columns that name a row.

    Attributes:
        mode: ``append``: those that never change again; ``update``: those that it changed; ``complete``: all of them.
        key: of mode ``update``: a row replaces the earlier one with the same values in these columns.
    """

    mode: Literal["append", "update", "complete"] = "append"
    key: tuple[str, ...] = ()


APPEND: Final = OutputMode()


class OpenQuery(Message, frozen=True, kw_only=True):
    """Open a query on a host.

    Attributes:
        query: name from the config.
        epoch: counts how often gateways opened this query; answers of other epochs are ignored.
        schema_ddl: the input's schema as Spark DDL.
        sql: SQL over the view ``events``; or
        function: ``package.module:name``, DataFrame -> DataFrame.
        event_time: the watermark of the view ``events``; None: the query sets its own, or needs none.
        streams: several streams that the events belong to, each a view; none if they are from one source.
        output: which results a micro-batch emits.
        code_path: the user's folder, put on the module path for ``function``; or empty.
        code_hash: sha256 of the query as the gateway knows it (see ``engines.query.code``); a host that computes
            another hash refuses.
        checkpoint_dir: where a stateful query keeps its state on this host; relative to the host's working folder, if
            its state was copied there; empty for a temporary folder.
        begin_seq: the seq at which a stateful query without a checkpoint begins.
        max_batch_runs: at most this many runs in one micro-batch.
        batch_ends: where the first micro-batches after the checkpoint of a stateful query have to end (seq, exclusive),
            because the sink has results of micro-batches with these limits already.
        result_codec: how results are packed: ``none`` or ``zstd``.
        bad_rows_most: the query is broken as soon as more of 1,000 consecutive rows fail; 0: never.
        keep_late: answers name the rows of these streams that came too late; the only stream of a query has an empty
            name.
        shares_host: other queries run on the host: this one ends there as soon as it exhausts the host's memory.
        analyse_only: only plan and schemas are wanted; no query is started. With ``direct``, its stream is planned.
        tables: what it reads besides the events; their versions arrive as ``TablePart`` before or after this message.
        tables_path: the folder of the versions; the host fills it in.
        part: the part of the query that this is; None: it is not divided.
        selections: how its events become selections; None: each is processed by itself, or the query keeps state.
        reads: where the host reads the events of its runs, which come by reference; None: runs have their rows.
        names_events: events have the columns ``NAMES``, too, which the query does not see; its results end with those
            of their events, if its plan allows it.
        direct: the host carries these partitions from Kafka to Kafka by itself; no run is sent. The query of the same
            name, without the end that ``direct_name`` adds, ends it when it is opened.
    """

    query: str
    epoch: int
    schema_ddl: str
    sql: str = ""
    function: str = ""
    event_time: EventTime | None = None
    streams: tuple[EventStream, ...] = ()
    output: OutputMode = APPEND
    code_path: str = ""
    code_hash: str = ""
    checkpoint_dir: str = ""
    begin_seq: int = 0
    max_batch_runs: int = 16
    batch_ends: tuple[int, ...] = ()
    result_codec: Literal["none", "zstd"] = "none"
    bad_rows_most: int = 0
    keep_late: tuple[str, ...] = ()
    shares_host: bool = False
    analyse_only: bool = False
    tables: tuple[StaticTable, ...] = ()
    tables_path: str = ""
    part: KeyPart | None = None
    selections: SelectionRule | None = None
    reads: Reading | None = None
    names_events: bool = False
    direct: DirectFlow | None = None


class TablePart(Message, frozen=True, kw_only=True):
    """A part of a version of a static table (the payload); the parts follow each other on the data channel.

    Attributes:
        fingerprint: of the version.
        offset: where the part begins.
        packed_bytes: the length of all parts together.
        raw_bytes: the length when it is unpacked.
    """

    fingerprint: str
    offset: int
    packed_bytes: int
    raw_bytes: int


class QueryReady(Message, frozen=True, kw_only=True):
    """The query is open and warm.

    Attributes:
        input_schema: Arrow schema (serialised) that Spark derives from the DDL; frames use exactly this schema.
        result_schema: Arrow schema (serialised) of the results.
        plan: properties of Spark's plan.
        credit_bytes: how many payload bytes may be sent to this host before it has consumed them.
        resume_seq: for a stateful query, the next seq after its checkpoint; else 0.
        resume_end_seq: for a stateful query, the end (exclusive) of the last micro-batch that will run again with
            exactly the limits it had: it was planned but not committed, or is in ``OpenQuery.batch_ends``; else at most
            ``resume_seq``.
        removed_tables: the versions of static tables that the host has removed, since no query reads them any more.
        by_reference: whether runs may come by reference, as ``OpenQuery.reads`` wants it.
    """

    query: str
    epoch: int
    input_schema: bytes
    result_schema: bytes
    plan: QueryPlan
    credit_bytes: int
    resume_seq: int = 0
    resume_end_seq: int = 0
    removed_tables: tuple[str, ...] = ()
    by_reference: bool = False


class QueryRefused(Message, frozen=True, kw_only=True):
    """The query cannot be opened here, and why."""

    query: str
    epoch: int
    reason: str


class QueryFailed(Message, frozen=True, kw_only=True):
    """An open query failed for good; its open runs must be dispatched elsewhere.

    ``broken`` says that the query itself is at fault, not this host: it would fail on every other host, too.
    ``exhausted`` says that it exhausted the memory of a host that it shares: it must run on a host of its own.
    """

    query: str
    epoch: int
    reason: str
    broken: bool = False
    exhausted: bool = False


class CloseQuery(Message, frozen=True, kw_only=True):
    """Stop a query; runs that are not completed will not be.

    ``after_batch``: what a host carries by itself may end its present micro-batch first.
    """

    query: str
    epoch: int
    after_batch: bool = False
