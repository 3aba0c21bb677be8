"""A query as an engine host uses it: its schemas, its plan, and a function that applies it to a frame of events."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace

import msgspec
import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType, TimestampType

from engines.query import code, plan, schemas
from engines.query.code import query_hash
from engines.query.mistakes import wrong_name
from engines.query.outputs.modes import as_emitted, why_refused
from engines.query.reasons import why
from engines.query.sqltext import EVENTS, StatementError, Statements, statements
from engines.spark.scratch import scratch_folder
from engines.spark.session import sibling
from engines.spark.tablefiles import make_views, why_no_tables_there, why_unusable
from infra.messages import EventTime, OpenQuery, QueryPlan
from infra.payload.body import check_schema


class RefusedError(Exception):
    """A query cannot be opened here; the message says why."""


@dataclass(frozen=True)
class KnownQuery:
    """An analysed query.

    Attributes:
        spec: the gateway's request.
        base: the host's session; each use of the query gets a sibling of it, so that views do not collide.
        columns: its input schema for Spark.
        input_schema: its input schema for Arrow.
        result_schema: its result schema for Arrow.
        plan: the properties of its plan.
        build: applies the query to a frame of events, with the watermark of its event time if it holds state.
        code_hash: of its SQL or function, sources, schema, event time and output.
        warm: whether it ran on this host before.
    """

    spec: OpenQuery
    base: SparkSession
    columns: StructType
    input_schema: pa.Schema
    result_schema: pa.Schema
    plan: QueryPlan
    build: Callable[[DataFrame], DataFrame]
    code_hash: str
    warm: bool = False


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
    return msgspec.structs.replace(spec, epoch=0, checkpoint_dir="", begin_seq=0, analyse_only=False)


def understand(base: SparkSession, spec: OpenQuery) -> KnownQuery:
    """Check, load and analyse a query without starting anything.

    Raises:
        RefusedError: its code differs, its schema or SQL is wrong, or its results have a type that Arrow lacks.
    """
    try:
        code_hash = code.check(spec)
        build = _by_function(spec) if spec.function else _by_sql(spec, statements(spec.sql))
        columns = schemas.struct_of(base, spec.schema_ddl)
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
    found, result_schema = _analysed(base, spec, columns, build)
    if spec.event_time is not None:
        _check_event_time(spec, spec.event_time, columns)
        if found.stateful:
            found = plan.with_event_time(found, spec.event_time.column, input_schema)
            build = _with_watermark(build, spec.event_time)
    return KnownQuery(spec, base, columns, input_schema, result_schema, found, build, code_hash)


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


def _with_watermark(build: Callable[[DataFrame], DataFrame], event_time: EventTime) -> Callable[[DataFrame], DataFrame]:
    column = event_time.column.replace("`", "``")

    def build_over_watermark(events: DataFrame) -> DataFrame:
        return build(events.withWatermark(f"`{column}`", f"{event_time.lateness_ms} milliseconds"))

    return build_over_watermark


def _by_sql(spec: OpenQuery, sql: Statements) -> Callable[[DataFrame], DataFrame]:
    def build(events: DataFrame) -> DataFrame:
        session = events.sparkSession  # of this query alone, and so are the views
        make_views(session, spec.tables, spec.tables_path)
        events.createOrReplaceTempView(EVENTS)
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


def _by_function(spec: OpenQuery) -> Callable[[DataFrame], DataFrame]:
    function = code.load(spec)

    def build(events: DataFrame) -> DataFrame:
        make_views(events.sparkSession, spec.tables, spec.tables_path)
        result = function(events)
        if not isinstance(result, DataFrame):
            raise RefusedError(f"query {spec.query}: {spec.function} returned {type(result).__name__}, not a DataFrame")
        return result

    return build


def _analysed(
    base: SparkSession, spec: OpenQuery, columns: StructType, build: Callable[[DataFrame], DataFrame]
) -> tuple[QueryPlan, pa.Schema]:
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


def _built(
    spec: OpenQuery, build: Callable[[DataFrame], DataFrame], events: DataFrame, columns: Sequence[str]
) -> DataFrame:
    try:
        return build(events)
    except RefusedError:
        raise
    except Exception as error:  # the user's code may raise anything
        created = [name for name, _ in statements(spec.sql).views] if spec.sql else []
        where = "".join(f"{note}: " for note in getattr(error, "__notes__", ()) if created)
        views = [*(table.name for table in spec.tables), *created]
        raise RefusedError(f"query {spec.query}: {where}{wrong_name(error, columns, views) or why(error)}") from error


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
