"""Reads a sample of a query's events: its first ones. It leaves no trace in state_dir, journals, groups and brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import pyarrow as pa
from pydantic import ValidationError

from gateway.config import Config
from gateway.config.connectors.streams import key_of
from gateway.config.models import (
    FileSinkConfig,
    FileSourceConfig,
    HttpSourceConfig,
    KafkaSourceConfig,
    MqttSourceConfig,
    QueryConfig,
    QuerySourceConfig,
    SourceConfig,
)
from gateway.sources.base import Source
from gateway.sources.choose import SourceContext, make_source
from gateway.sources.several.table import in_table, own_schema
from gateway.views.check.checksource import source_text
from infra.clock import SystemClock
from infra.rows.base import DeadRecord, SourceError, SourceUnavailableError

SAMPLE_BYTES: Final = 16_000_000
_GIVE: Final = "give a file with some events (JSON lines, CSV or Parquet)"


class SampleError(Exception):
    """There is no sample; the message says why, and what to do."""


@dataclass(frozen=True)
class Sample:
    """Some events of a query.

    Attributes:
        events: rows of the query's schema.
        dead: records that could not be decoded.
        whence: says where they are from.
        more: whether the sources have more than these.
    """

    events: pa.RecordBatch
    dead: tuple[DeadRecord, ...]
    whence: str
    more: bool


def given_files(query: QueryConfig, said: list[str]) -> dict[str, Path]:
    """Return the sample files that a user named, by the stream for which each stands.

    Args:
        query: the query's config.
        said: a file, or for a query with several sources ``STREAM=FILE``.

    Raises:
        SampleError: a stream is not one of the query, or has two files.
    """
    found: dict[str, Path] = {}
    for text in said:
        stream, _, file = text.partition("=") if query.sources else ("", "", text)
        if stream not in query.inputs or not file:
            raise SampleError(f"--sample {text}: write STREAM=FILE; the streams are {', '.join(query.inputs)}")
        if stream in found:
            raise SampleError(f"--sample {text}: there is already a file, {found[stream]}: give one")
        found[stream] = Path(file)
    return found


def why_no_sample(config: Config, name: str, given: Mapping[str, Path]) -> str:
    """Return why a source of a query has nothing to read in advance, and what to do; empty if all have something.

    Args:
        config: the whole config.
        name: the query's.
        given: sample files by stream.
    """
    for stream, source in config.queries[name].inputs.items():
        if stream in given:
            continue
        option = f"--sample {stream}=FILE" if stream else "--sample FILE"
        where = ".".join(key_of(stream))
        match source:
            case HttpSourceConfig() | MqttSourceConfig():
                return (
                    f"{where}: {source_text(source)}: nothing can be read there in advance, since events only come "
                    f"while a gateway runs; {_GIVE}: {option}"
                )
            case QuerySourceConfig(name=upstream) if not _has_results(config, upstream):
                return (
                    f"{where}: query {upstream} has written no results yet; run it first, or {_GIVE}, as query "
                    f"{upstream} would write them: {option}"
                )
    return ""


def _has_results(config: Config, upstream: str) -> bool:
    folder = _results_of(config, upstream)
    return folder.is_dir() and any(folder.iterdir())


def _results_of(config: Config, upstream: str) -> Path:
    sink = config.queries[upstream].sink
    if not isinstance(sink, FileSinkConfig):  # the config has been checked
        raise SampleError(f"query {upstream} has no file sink whose results could be read")
    return sink.path


def read_sample(
    config: Config, name: str, schema: pa.Schema, given: Mapping[str, Path], folder: Path, most: int
) -> Sample:
    """Read the first events of each source of a query.

    Args:
        config: the whole config.
        name: the query's.
        schema: of its events; of several sources, that of their common table.
        given: files to read in place of sources, by stream.
        folder: of nobody else; for what a source keeps while it is read.
        most: so many records of each source at most.

    Raises:
        SampleError: a source cannot be read.
    """
    query = config.queries[name]
    streams = {stream.name: stream for stream in query.streams}
    context = SourceContext(
        name,
        "try",
        folder,
        SystemClock(),
        lambda each: (_results_of(config, each), _ended),
        strict=query.drift == "strict",
    )
    parts: list[Sample] = []
    for stream, source in query.inputs.items():
        instead = given.get(stream)
        said = source if instead is None else _file_source(instead)
        own = own_schema(streams[stream], schema) if stream else schema
        part = _read(said, own, context.of(stream) if stream else context, most)
        if stream:
            events = in_table(part.events, streams[stream], schema)
            dead = tuple(replace(each, stream=stream) for each in part.dead)
            part = Sample(events, dead, f"{stream}: {part.whence}", part.more)
        parts.append(part)
    table = pa.Table.from_batches([part.events for part in parts], schema=schema).combine_chunks()
    return Sample(
        events=one_batch(table),
        dead=tuple(each for part in parts for each in part.dead),
        whence="; ".join(part.whence for part in parts),
        more=any(part.more for part in parts),
    )


def one_batch(table: pa.Table) -> pa.RecordBatch:
    """Return a table of some megabytes as one batch."""
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)


def _ended() -> bool:
    return True


def _file_source(path: Path) -> FileSourceConfig:
    try:
        return FileSourceConfig.model_validate({"type": "file", "path": str(path)}, context={"folder": Path.cwd()})
    except ValidationError as error:
        raise SampleError(f"--sample {path}: {error.errors()[0]['msg'].removeprefix('Value error, ')}") from error


def _read(source: SourceConfig, schema: pa.Schema, context: SourceContext, most: int) -> Sample:
    whence = source_text(source).removesuffix(", as fast as possible")
    try:
        if isinstance(source, KafkaSourceConfig):
            from gateway.sources.kafka.sampled import sample_topics

            chunk = asyncio.run(sample_topics(source, schema, most, SAMPLE_BYTES, strict=context.strict))
            return Sample(chunk.batch, chunk.dead, whence, chunk.more)
        return asyncio.run(_first(make_source(source, context), schema, most, whence))
    except (SourceError, SourceUnavailableError, OSError) as error:
        raise SampleError(f"{error}; or {_GIVE}: --sample FILE") from error


async def _first(source: Source, schema: pa.Schema, most: int, whence: str) -> Sample:
    batches: list[pa.RecordBatch] = []
    dead: list[DeadRecord] = []
    more = True
    await source.open(schema)
    try:
        while (left := most - sum(batch.num_rows for batch in batches) - len(dead)) > 0:
            chunk = await source.read(left, SAMPLE_BYTES)
            if chunk is None:
                more = False
                break
            batches.append(chunk.batch)
            dead += chunk.dead
            if sum(batch.nbytes for batch in batches) >= SAMPLE_BYTES:
                break
        more = more and not await source.finished()
    finally:
        await source.close()
    table = pa.Table.from_batches(batches, schema=schema)
    return Sample(one_batch(table), tuple(dead), whence, more)
