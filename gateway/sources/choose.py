"""Creates the source of a query from the config."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from gateway.config.connectors.journal import JournalConfig
from gateway.config.models import (
    FileSourceConfig,
    HttpSourceConfig,
    KafkaSourceConfig,
    MqttSourceConfig,
    QuerySourceConfig,
    S3SourceConfig,
    SeveralSources,
    SourceConfig,
)
from gateway.journal.copyobjects import ReplicaPlace
from gateway.journal.deadletters import DEAD_LETTERS
from gateway.journal.journal import Journal
from gateway.journal.replica import Replica
from gateway.sources.base import Source
from gateway.sources.files import filesource
from gateway.sources.files.notes import NOTES_NAME, NotesFile, NotesStore
from gateway.sources.http.httpsource import HttpReceiver
from gateway.sources.http.judging import Judge
from gateway.sources.journaled import JournaledSource
from gateway.sources.results import ResultsSource
from gateway.sources.schedule import DueTimes
from gateway.sources.several.source import SeveralStreams
from gateway.sources.threaded import ThreadedSource
from infra.clock import Clock
from infra.messages import EventStream


@dataclass(frozen=True, slots=True)
class SourceContext:
    """What a source may need to know about its query.

    Attributes:
        query: its name.
        owner: identity of the state that numbers the seqs; the same after a restart.
        folder: the query's part of the state_dir, for example for a journal; of one of several sources its own.
        clock: time.
        upstream: returns a query's sink folder, and a function that says whether it will get no more results.
        strict: whether an event must have exactly the fields of the schema (see docs/schema-drift.md).
        sink_commits: whether the sink's transactions commit the offsets of a Kafka source to its group.
        replica: where the copy of a journal belongs; None without a fleet.
        kept_files: returns where the list of the objects of an ``s3`` source is kept, by the name of its stream (empty
            for the only source of a query); None: in ``folder``.
        stream: the name of the source's stream.
    """

    query: str
    owner: str
    folder: Path
    clock: Clock
    upstream: Callable[[str], tuple[Path, Callable[[], bool]]]
    strict: bool = False
    sink_commits: bool = False
    replica: ReplicaPlace | None = None
    kept_files: Callable[[str], NotesStore] | None = None
    stream: str = ""

    def replica_of(self, config: JournalConfig) -> Replica | None:
        """Return the copy of a journal, if the config asks for one."""
        return Replica(self.replica) if config.replicate and self.replica is not None else None

    def of(self, name: str) -> SourceContext:
        """Return the context of one of several sources."""
        replica = self.replica
        return replace(
            self,
            query=f"{self.query}.{name}",
            folder=stream_folder(self.folder, name),
            sink_commits=False,
            replica=None if replica is None else replace(replica, folder=f"{replica.folder}/{name}"),
            stream=name,
        )

    @property
    def dead_letters(self) -> Path:
        """The file for the query's dead letters."""
        return (self.folder.parents[1] if self.stream else self.folder) / DEAD_LETTERS


def stream_folder(folder: Path, name: str) -> Path:
    """Return where one of several sources keeps its files, in its query's part of the state_dir."""
    return folder / "sources" / name


def make_source(
    config: SourceConfig | SeveralSources, context: SourceContext, streams: tuple[EventStream, ...] = ()
) -> Source:
    """Return the source of ``config``, not opened yet; ``streams`` are those of several sources."""
    match config:
        case SeveralSources():
            return SeveralStreams(
                {name: make_source(each, context.of(name)) for name, each in config.of.items()}, streams
            )
        case QuerySourceConfig():
            return ThreadedSource(ResultsSource(*context.upstream(config.name)))
        case FileSourceConfig():
            return filesource.make_file_source(config, context.folder, context.clock, strict=context.strict)
        case S3SourceConfig():
            kept = _kept_files(context)
            return filesource.make_s3_source(config, context.folder, kept, context.clock, strict=context.strict)
        case KafkaSourceConfig():
            from gateway.sources.kafka.kafkasource import KafkaSource

            return KafkaSource(
                config,
                query=context.query,
                owner=context.owner,
                clock=context.clock,
                strict=context.strict,
                sink_commits=context.sink_commits,
            )
        case MqttSourceConfig():
            from gateway.sources.mqtt.mqttsource import make_mqtt_source

            return make_mqtt_source(
                config,
                context.folder,
                query=context.query,
                owner=context.owner,
                clock=context.clock,
                strict=context.strict,
                replica=context.replica_of(config.journal),
            )
        case HttpSourceConfig():
            return _http_source(config, context)


def _kept_files(context: SourceContext) -> NotesStore:
    if context.kept_files is None:
        return NotesFile(context.folder / NOTES_NAME)
    return context.kept_files(context.stream)


def _http_source(config: HttpSourceConfig, context: SourceContext) -> Source:
    journal = Journal(
        context.folder / "journal",
        limit_bytes=config.journal.limit_bytes,
        segment_bytes=config.journal.segment_bytes,
        clock=context.clock,
        remember_keys_s=config.remember_keys_s,
        replica=context.replica_of(config.journal),
    )
    judge = Judge(lambda lines: source.dead_among(lines), context.clock)
    receiver = HttpReceiver(config, journal, judge, context.dead_letters)
    source = JournaledSource(journal, receiver, strict=context.strict)
    return source


def make_schedule(config: SourceConfig | SeveralSources, schema: pa.Schema, context: SourceContext) -> DueTimes | None:
    """Return when the records of a replayed file are due; None for a source without a replay. See ``files``.

    Blocks; called when the source is open.
    """
    if not isinstance(config, FileSourceConfig):
        return None
    return filesource.make_schedule(config, schema, context.folder, context.clock)
