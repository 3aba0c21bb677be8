"""The config's sections about a query with several sources: each is a stream with columns and a view of its own.

The events of all streams are rows of one table, so that everything behind the sources handles them as one source's. A
row has the name of its stream, and nulls in the columns of the others (docs/several-sources.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from gateway.config.connectors.kafka import KafkaSourceConfig
from gateway.config.connectors.sources import FileSourceConfig, SourceConfig
from gateway.config.connectors.tables import TableName
from gateway.config.words.ddl import top_level_columns, types_as_written
from gateway.config.words.fields import Duration, Finding, Section, refuse
from infra.messages import STREAM, EventStream, EventTime

_MOST: Final = 16


class EventTimeConfig(Section):
    """The watermark of the view ``events``, or of a stream's view (see docs/event-time.md).

    Attributes:
        column: the TIMESTAMP column of ``schema`` that says when an event happened.
        lateness_s: how much later than newer events an event may come and still count.
        late: whether an event that comes too late is only counted, or also becomes a dead letter.
    """

    column: str = Field(min_length=1, examples=["at"])
    lateness_s: Duration = Field(alias="lateness")
    late: Literal["drop", "dead-letters"] = "drop"

    @property
    def watermark(self) -> EventTime:
        """Return it as engine hosts get it."""
        return EventTime(column=self.column, lateness_ms=round(self.lateness_s * 1000))

    def findings(self, columns: Mapping[str, str]) -> list[Finding]:
        """Return what is wrong with the column; ``columns`` are those of the schema, with their types."""
        what = column_problem(columns, self.column, "TIMESTAMP")
        if what is None and columns[self.column].startswith("TIMESTAMP_NTZ"):
            why = "a watermark needs a time with a zone"
            what = f'column "{self.column}" is TIMESTAMP_NTZ, but must be TIMESTAMP: {why}'
        return [Finding(key=("event_time", "column"), what=what)] if what else []


def column_problem(columns: Mapping[str, str], name: str, kind: str) -> str | None:
    """Return why there is no such column of this type; None if there is."""
    if name not in columns:
        return f'"{name}" is not a column of schema; its columns are {", ".join(columns)}'
    if not columns[name].startswith(kind):
        return f'column "{name}" is {columns[name]}, but must be {kind}'
    return None


def has_columns(ddl: str) -> str:
    """Return a DDL that can be split into columns.

    Raises:
        ValueError: it cannot.
    """
    top_level_columns(ddl)
    return ddl


class StreamConfig(Section):
    """One of several sources of a query: where its events come from, their columns, and its watermark.

    Attributes:
        source: where its events come from.
        schema_ddl: the columns of its events with their types, as Spark DDL.
        event_time: the watermark of its view.
    """

    source: SourceConfig
    schema_ddl: Annotated[str, AfterValidator(has_columns)] = Field(
        alias="schema", min_length=1, examples=["id BIGINT, customer STRING, at TIMESTAMP"]
    )
    event_time: EventTimeConfig | None = None

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        refuse(list(self._findings()))
        return self

    def _findings(self) -> Iterator[Finding]:
        columns = top_level_columns(self.schema_ddl)
        if isinstance(self.source, KafkaSourceConfig):
            yield from self.source.column_findings(columns)
        if isinstance(self.source, FileSourceConfig) and self.source.replay is not None:
            what = "is not possible for one of several sources, which are read as fast as they come: remove it"
            yield Finding(key=("source", "replay"), what=what)
        if STREAM in {name.lower() for name in columns}:
            yield Finding(key=("schema",), what=f"column {STREAM} says which source an event is from: rename yours")
        if self.event_time is not None:
            yield from self.event_time.findings(columns)


def _distinct(streams: dict[str, StreamConfig]) -> dict[str, StreamConfig]:
    if len({name.lower() for name in streams}) < len(streams):
        raise ValueError("two sources have the same name but for letter case, which does not count in SQL; rename one")
    if len(streams) == 1:
        raise ValueError("one source alone is given as source and schema, and its view is events")
    for name, stream in streams.items():
        if taken := [own for own in top_level_columns(stream.schema_ddl) if own.partition(".")[0] in streams]:
            raise ValueError(f'column "{taken[0]}" of {name} begins with the name of a source and a dot; rename it')
    return streams


Streams = Annotated[dict[TableName, StreamConfig], AfterValidator(_distinct), Field(max_length=_MOST)]


@dataclass(frozen=True, slots=True)
class SeveralSources:
    """The sources of a query by the names of their streams; it stands where a query with one has that one's config."""

    of: Mapping[str, SourceConfig]
    type: Literal["several"] = "several"


def key_of(stream: str) -> tuple[str, ...]:
    """Return the key of a stream's source in its query; the only source of a query has an empty name."""
    return ("sources", stream, "source") if stream else ("source",)


def streams_of(streams: Mapping[str, StreamConfig]) -> tuple[EventStream, ...]:
    """Return the streams as engine hosts get them: where the columns of each are in the common table."""
    columns = {name: types_as_written(stream.schema_ddl) for name, stream in streams.items()}
    return tuple(
        EventStream(
            name=name,
            columns=tuple((own, _common_name(name, own, columns)) for own in columns[name]),
            event_time=None if stream.event_time is None else stream.event_time.watermark,
        )
        for name, stream in streams.items()
    )


def common_ddl(streams: Mapping[str, StreamConfig]) -> str:
    """Return the columns of the common table: the name of the stream, then those of all streams, each once."""
    columns = {name: types_as_written(stream.schema_ddl) for name, stream in streams.items()}
    common = {STREAM: "STRING"}
    for name, kinds in columns.items():
        common |= {_common_name(name, own, columns): kind for own, kind in kinds.items()}
    return ", ".join(f"`{name.replace('`', '``')}` {kind}" for name, kind in common.items())


def _common_name(stream: str, own: str, columns: Mapping[str, Mapping[str, str]]) -> str:
    """Return a column's name in the common table: its own if no other stream has it with another type."""
    same = [(name, kind) for kinds in columns.values() for name, kind in kinds.items() if name.lower() == own.lower()]
    return own if len(set(same)) == 1 else f"{stream}.{own}"
