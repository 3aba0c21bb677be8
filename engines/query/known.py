"""A query as an engine host uses it: its schemas, its plan, and a function that applies it to a frame of events."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace

import msgspec
import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType, TimestampType

from engines.query import code, nodes, plan, schemas
from engines.query.code import query_hash
from engines.query.mistakes import wrong_name
from engines.query.nodes import watermarks
from engines.query.outputs.modes import as_emitted, why_refused
from engines.query.outputs.naming import naming
from engines.query.parts.divisible import why_ill_formed, why_not_by_key, why_own_watermark
from engines.query.parts.heartbeats import Build, with_heartbeat, without_heartbeats
from engines.query.parts.timely import optimised, untimed, why_watermarks_differ
from engines.query.reasons import why
from engines.query.selections.expansion import with_selection
from engines.query.selections.matching import MATCHES, Matcher, StepError
from engines.query.selections.openings import conditions_of
from engines.query.selections.selectionplan import as_stateless, in_order, why_not_apart
from engines.query.selections.stepsql import ConditionError
from engines.query.sqltext import EVENTS, StatementError, Statements, statements
from engines.query.streams.views import event_times, over_streams, with_watermark
from engines.spark.scratch import scratch_folder
from engines.spark.session import sibling
from engines.spark.tablefiles import make_views, why_no_tables_there, why_unusable
from infra.messages import NAMES_DDL, POSITION, SELECTION, EventTime, KeyPart, OpenQuery, QueryPlan, SelectionRule
from infra.payload.body import check_schema
from infra.payload.marks import with_marks

_log = logging.getLogger("spillway.host")


class RefusedError(Exception):
    """A query cannot be opened here; the message says why."""


@dataclass(frozen=True)
class KnownQuery:
    """An analysed query.

    Attributes:
        spec: the gateway's request.
        base: the host's session; each use of the query gets a sibling of it, so that views do not collide.
        columns: the user's columns, for Spark.
        input_schema: the same for Arrow.
        result_schema: its result schema for Arrow.
        plan: the properties of its plan.
        build: applies the query to a frame of ``run_columns``, with the watermark of its event time if it holds state.
        code_hash: of its SQL or function, sources, schema, event time, output and key.
        warm: whether it ran on this host before.
    """

    spec: OpenQuery
    base: SparkSession
    columns: StructType
    input_schema: pa.Schema
    result_schema: pa.Schema
    plan: QueryPlan
    build: Build
    code_hash: str
    warm: bool = False

    @property
    def run_columns(self) -> StructType:
        """Return the columns that Spark gets: of a part also the mark of heartbeats, or the number of the selection."""
        if self.spec.selections is not None:
            return with_selection(self.columns, self.spec.selections)
        return self.columns if self.spec.part is None else with_heartbeat(self.columns)

    @property
    def run_schema(self) -> pa.Schema:
        """Return the columns that Spark gets, for Arrow."""
        plain = self.spec.part is None and self.spec.selections is None
        return self.input_schema if plain else schemas.arrow_of(self.run_columns)

    @property
    def sent_schema(self) -> pa.Schema:
        """Return the columns of its runs as they are sent: selections are only marked there."""
        return self.run_schema if self.spec.selections is None else with_marks(self.input_schema)

    def of_stream(self, events: DataFrame) -> DataFrame:
        """Return what Spark's stream computes: a query with selections is applied to each micro-batch, not to it."""
        return self.build(events) if self.spec.selections is None else events


class KnownQueries:
    """The queries that a host has analysed, so that opening one again needs no second analysis."""

    def __init__(self) -> None:
        self._known: dict[str, KnownQuery] = {}

    def understand(self, base: SparkSession, spec: OpenQuery) -> KnownQuery:
        """See ``understand``; an equal query with equal code is returned at once.

        Raises:
            RefusedError: as ``understand`` does.
        """
        known = self._known.get(spec.query)
        if known is not None and _definition(known.spec) == _definition(spec) and query_hash(spec) == known.code_hash:
            return replace(known, spec=spec)
        query = self._known[spec.query] = understand(base, spec)
        return query

    def ran(self, query: KnownQuery) -> None:
        """Note that a query was warmed up."""
        self._known[query.spec.query] = replace(query, warm=True)


def _definition(spec: OpenQuery) -> OpenQuery:
    started = {"checkpoint_dir": "", "begin_seq": 0, "batch_ends": (), "direct": None}
    return msgspec.structs.replace(spec, epoch=0, analyse_only=False, **started)


def understand(base: SparkSession, spec: OpenQuery) -> KnownQuery:
    """Check, load and analyse a query without starting anything.

    Raises:
        RefusedError: its code differs, its schema or SQL is wrong, its results have a type that Arrow lacks, or it is a
            part of a query that cannot be divided in this way.
    """
    try:
        code_hash = code.check(spec)
        users = _by_function(spec) if spec.function else _by_sql(spec, statements(spec.sql))
        users = naming(users) if spec.names_events else users
        ddl = f"{spec.schema_ddl}, {NAMES_DDL}" if spec.names_events else spec.schema_ddl
        columns = schemas.struct_of(base, ddl)
        input_schema = schemas.arrow_of(columns)
    except code.CodeError as error:
        raise RefusedError(str(error)) from error
    except StatementError as error:
        raise RefusedError(f"query {spec.query}: {error}") from error
    except PySparkException as error:
        raise RefusedError(f"query {spec.query}: schema {spec.schema_ddl!r}: {why(error)}") from error
    if refusal := why_no_tables_there(base.sparkContext.master or "", spec.tables):
        raise RefusedError(f"query {spec.query}: {refusal}")
    _check_carried(spec, "schema", input_schema)
    _check_tables(base, spec)
    if spec.selections is not None:
        return _with_selections(base, spec, spec.selections, columns, users, code_hash)
    build = over_streams(users, spec.streams, timed=False)
    found, result_schema = _analysed(base, spec, columns, build)
    timed = event_times(spec)
    for event_time in timed:
        _check_event_time(spec, event_time, columns)
    if found.stateful:
        for event_time in timed:
            found = plan.with_event_time(found, event_time.column, input_schema)
    # Of several streams, some may have the config's watermark, and others one that the query sets.
    own = spec.event_time is None and bool(found.needed_schema or found.uses is not None)
    if found.stateful and own:
        found = plan.with_watermarks(found, _own_event_times(base, columns, build), input_schema)
    watermark = spec.event_time if found.stateful else None
    undivided = over_streams(_with_watermark(users, watermark), spec.streams, timed=found.stateful)
    build = undivided
    if spec.part is not None:
        _check_part(base, spec, spec.part, columns, found, undivided)
        if spec.streams:
            build = over_streams(users, spec.streams, timed=True, marked=True)
        else:
            build = _with_watermark(without_heartbeats(users, watermark), watermark)
    return KnownQuery(spec, base, columns, input_schema, result_schema, found, build, code_hash)


def _with_selections(
    base: SparkSession, spec: OpenQuery, rule: SelectionRule, columns: StructType, users: Build, code_hash: str
) -> KnownQuery:
    if taken := {SELECTION, POSITION} & {name.lower() for name in columns.names}:
        raise RefusedError(
            f"query {spec.query}: its schema has a column {min(taken)}, which its selections add: rename it"
        )
    try:
        matcher = None if rule.pattern is None else Matcher(base, rule.pattern, rule.column, columns)
        selecting = conditions_of(base, rule, columns, matcher)
    except (StepError, ConditionError) as error:
        raise RefusedError(f"query {spec.query}: {error}") from error
    build = users if matcher is None else matcher.over(users)
    found, result_schema = _analysed(base, spec, with_selection(columns, rule), build)
    if refusal := why_not_apart(found, result_schema.names):
        raise RefusedError(f"query {spec.query}: {refusal}")
    input_schema, plan_apart = schemas.arrow_of(columns), as_stateless(found, selecting)
    return KnownQuery(spec, base, columns, input_schema, result_schema, plan_apart, in_order(build), code_hash)


def _check_tables(base: SparkSession, spec: OpenQuery) -> None:
    session = sibling(base)
    for table in spec.tables:
        try:
            wrong = why_unusable(session, table, spec.tables_path)
        except PySparkException as error:
            wrong = why(error)
        if wrong:
            raise RefusedError(f"query {spec.query}: table {table.name}: {wrong}")


def _check_event_time(spec: OpenQuery, event_time: EventTime, columns: StructType) -> None:
    kind = next((each.dataType for each in columns if each.name == event_time.column), None)
    if not isinstance(kind, TimestampType):
        raise RefusedError(
            f"query {spec.query}: event_time: the schema has no TIMESTAMP column {event_time.column!r}; "
            f"its columns are {', '.join(columns.names)}"
        )


def _check_part(
    base: SparkSession, spec: OpenQuery, part: KeyPart, columns: StructType, found: QueryPlan, undivided: Build
) -> None:
    refusal = why_ill_formed(spec, part, columns.names) or why_not_by_key(part, found)
    refusal = refusal or _why_other_watermarks(base, spec, columns, found, undivided)
    if refusal:
        raise RefusedError(f"query {spec.query}: {refusal}")


def _why_other_watermarks(
    base: SparkSession, spec: OpenQuery, columns: StructType, found: QueryPlan, undivided: Build
) -> str:
    folder = scratch_folder("stream")
    try:
        events = sibling(base).readStream.schema(columns).parquet(folder.as_uri())
        frame = _built(spec, undivided, events, columns.names)
        plan_there, schema = optimised(frame), schemas.arrow_of(columns)
        timed = [stream.name for stream in spec.streams if stream.event_time is not None]
        passed = watermarks(frame._jdf.queryExecution().analyzed())  # noqa: SLF001 - plans are nowhere in the public API
        passed += bool(spec.streams) and untimed(plan_there, timed, schema)
        return why_own_watermark(passed, timed=bool(event_times(spec))) or why_watermarks_differ(
            plan_there, found.predicates, schema
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _with_watermark(build: Build, event_time: EventTime | None) -> Build:
    if event_time is None:
        return build

    def build_over_watermark(events: DataFrame) -> DataFrame:
        return build(with_watermark(events, event_time))

    return build_over_watermark


def _own_event_times(base: SparkSession, columns: StructType, build: Build) -> tuple[str, ...] | None:
    """Return the columns of the watermarks that a query sets itself, which only a plan over a stream shows."""
    session = sibling(base)
    folder = scratch_folder("stream")
    try:
        frame = build(session.readStream.schema(columns).parquet(folder.as_uri()))
        return nodes.event_times(frame._jdf.queryExecution().analyzed())  # noqa: SLF001 - plans are in no public API
    except Exception as error:  # the user's function and Spark may raise anything: then Spark refuses the stream too
        _log.info("the watermarks of a query are not known: %s", why(error))
        return None
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _by_sql(spec: OpenQuery, sql: Statements) -> Build:
    def build(events: DataFrame) -> DataFrame:
        session = events.sparkSession  # of this query alone, and so are the views
        make_views(session, spec.tables, spec.tables_path)
        events.createOrReplaceTempView(MATCHES if spec.selections is not None and spec.selections.pattern else EVENTS)
        for number, (name, view) in enumerate(sql.views, 1):
            with _naming(f"statement {number} (view {name})"):
                session.sql(view)
        with _naming(f"statement {len(sql.views) + 1}") if sql.views else nullcontext():
            return session.sql(sql.query)

    return build


@contextmanager
def _naming(statement: str) -> Iterator[None]:
    """Note in an error in which statement of the query it is."""
    try:
        yield
    except Exception as error:
        error.add_note(statement)
        raise


def _by_function(spec: OpenQuery) -> Build:
    function = code.load(spec)

    def build(events: DataFrame) -> DataFrame:
        make_views(events.sparkSession, spec.tables, spec.tables_path)
        result = function(events)
        if not isinstance(result, DataFrame):
            raise RefusedError(f"query {spec.query}: {spec.function} returned {type(result).__name__}, not a DataFrame")
        return result

    return build


def _analysed(base: SparkSession, spec: OpenQuery, columns: StructType, build: Build) -> tuple[QueryPlan, pa.Schema]:
    session = sibling(base)
    folder = scratch_folder("plan")
    try:
        try:
            events = plan.empty_events(session, columns, folder)
        except pa.ArrowException as error:
            raise RefusedError(f"query {spec.query}: its schema has a type that Parquet lacks: {why(error)}") from error
        frame = _built(spec, build, events, columns.names)
        result_schema = _result_schema(spec, frame)
        try:
            found = plan.analyse(frame, columns)
        except Exception as error:
            found = plan.unreadable(why(error))
        return _with_output(spec, found, frame), result_schema
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _with_output(spec: OpenQuery, found: QueryPlan, frame: DataFrame) -> QueryPlan:
    if spec.output.mode == "append":
        return found
    if refusal := why_refused(spec.output, found, frame.schema, plan.grouping(frame)):
        raise RefusedError(f"query {spec.query}: {refusal}")
    return as_emitted(spec.output, found)


def _built(spec: OpenQuery, build: Build, events: DataFrame, columns: Sequence[str]) -> DataFrame:
    try:
        return build(events)
    except RefusedError:
        raise
    except Exception as error:  # the user's code may raise anything
        created = [name for name, _ in statements(spec.sql).views] if spec.sql else []
        where = "".join(f"{note}: " for note in getattr(error, "__notes__", ()) if created)
        views = [*(table.name for table in spec.tables), *created]
        wrong = wrong_name(error, columns, views, [stream.name for stream in spec.streams])
        raise RefusedError(f"query {spec.query}: {where}{wrong or why(error)}") from error


def _result_schema(spec: OpenQuery, frame: DataFrame) -> pa.Schema:
    try:
        columns = schemas.struct_nullable(frame.schema)
        schema = schemas.arrow_of(columns)
    except PySparkException as error:
        raise RefusedError(f"query {spec.query}: its result has a type that Arrow lacks: {why(error)}") from error
    _check_carried(spec, "result", schema)
    return schema


def _check_carried(spec: OpenQuery, what: str, schema: pa.Schema) -> None:
    try:
        check_schema(schema)
    except ValueError as error:
        raise RefusedError(f"query {spec.query}: its {what}: {error}") from error
