"""From a source in the config to the source that reads it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from engines.email.mailbox import Mail, MailReport, read_mail
from gateway.config.models import FileSource, HttpSource, KafkaSource, MqttSource, QuerySource
from gateway.config.models import Source as SourceConfig
from gateway.journal.journal import Journal
from gateway.replay import Schedule
from gateway.sources.base import BlockingSource, Source, SourceError
from gateway.sources.http import HttpReceiver
from gateway.sources.journaled import JournaledSource
from gateway.sources.lines import LinesSource
from gateway.sources.results import ResultsSource
from gateway.sources.table import TableSource
from gateway.sources.threaded import ThreadedSource
from infra.clock import Clock

_MAIL = pa.schema(
    [
        ("message_id", pa.string()),
        ("sent", pa.timestamp("us", tz="UTC")),
        ("sender", pa.string()),
        ("to", pa.list_(pa.string())),
        ("cc", pa.list_(pa.string())),
        ("bcc", pa.list_(pa.string())),
        ("subject", pa.string()),
        ("body", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True)
class SourceContext:
    """What a source may need to know of its query.

    Attributes:
        query: its name.
        owner: identity of the state that numbers the seqs; the same after a restart.
        folder: the query's part of the state_dir, for a journal or the like.
        clock: time.
        upstream: gives a query's sink folder, and a function that says whether it will get no more results.
        strict: whether an event must have exactly the fields of the schema (see docs/schema-drift.md).
    """

    query: str
    owner: str
    folder: Path
    clock: Clock
    upstream: Callable[[str], tuple[Path, Callable[[], bool]]]
    strict: bool = False


def make_source(config: SourceConfig, context: SourceContext) -> Source:
    """Return the source of ``config``, not opened yet."""
    match config:
        case QuerySource():
            return ThreadedSource(ResultsSource(*context.upstream(config.name)))
        case FileSource():
            return ThreadedSource(_file_source(config))
        case KafkaSource():
            from gateway.sources.kafka import KafkaSource as KafkaReader

            return KafkaReader(config, query=context.query, owner=context.owner, strict=context.strict)
        case MqttSource():
            from gateway.sources.mqtt import make_mqtt_source

            return make_mqtt_source(
                config,
                context.folder,
                query=context.query,
                owner=context.owner,
                clock=context.clock,
                strict=context.strict,
            )
        case HttpSource():
            return _http_source(config, context)


def _http_source(config: HttpSource, context: SourceContext) -> Source:
    journal = Journal(
        context.folder / "journal",
        limit_bytes=config.journal.limit_bytes,
        segment_bytes=config.journal.segment_bytes,
        clock=context.clock,
        remember_keys_s=config.remember_keys_s,
    )
    return JournaledSource(journal, HttpReceiver(config, journal), strict=context.strict)


def _file_source(config: FileSource) -> BlockingSource:
    path = config.path
    loops = config.replay.loops if config.replay else 1
    id_field = config.replay.id_field if config.replay else None
    if path.name.endswith((".jsonl", ".jsonl.gz", ".jsonl.zst")):
        return LinesSource(path, loops=loops, id_field=id_field)
    load = read_arrow if path.suffix == ".arrow" else read_mail_table
    return TableSource(lambda: load(path), loops=loops, id_field=id_field)


def make_schedule(config: SourceConfig) -> Schedule | None:
    """Return when the records of a replayed file are due; None for a source without a replay rate."""
    if not isinstance(config, FileSource) or config.replay is None:
        return None
    if config.replay.profile is not None:
        return Schedule([(step.for_s, step.rate_per_s) for step in config.replay.profile])
    return None if config.replay.rate_per_s is None else Schedule([(1.0, config.replay.rate_per_s)])


def read_arrow(path: Path) -> pa.Table:
    """Read an Arrow IPC file."""
    with pa.memory_map(str(path)) as source:
        return pa.ipc.open_file(source).read_all()


def read_mail_table(path: Path) -> pa.Table:
    """Read an mbox or a maildir as a table.

    Raises:
        SourceError: there is no readable mail in it.
    """
    report = MailReport()
    mails = list(read_mail(path, report))
    if not mails:
        raise SourceError(f"{path} holds no readable mail ({report.malformed} malformed: {report.reasons[:3]})")
    return mail_table(mails)


def mail_table(mails: Sequence[Mail]) -> pa.Table:
    """Return mails as a table with the columns of ``engines.email.queries.SCHEMA_DDL``."""
    return pa.table({name: [getattr(mail, name) for mail in mails] for name in _MAIL.names}, schema=_MAIL)
