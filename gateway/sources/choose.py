"""From a source in the config to the source that reads it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa

from engines.email.mailbox import Mail, MailReport, read_mail
from gateway.config.models import FileSource, QuerySource
from gateway.replay import Schedule
from gateway.sources.base import Source, SourceError
from gateway.sources.lines import LinesSource
from gateway.sources.results import ResultsSource
from gateway.sources.table import TableSource

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


def make_source(config: FileSource | QuerySource, upstream: Callable[[str], tuple[Path, Callable[[], bool]]]) -> Source:
    """Return the source of ``config``, not opened yet.

    Args:
        config: the query's ``source``.
        upstream: gives a query's sink folder, and a function that says whether it will get no more results.
    """
    if isinstance(config, QuerySource):
        return ResultsSource(*upstream(config.name))
    path = config.path
    loops = config.replay.loops if config.replay else 1
    id_field = config.replay.id_field if config.replay else None
    if path.name.endswith((".jsonl", ".jsonl.gz", ".jsonl.zst")):
        return LinesSource(path, loops=loops, id_field=id_field)
    load = read_arrow if path.suffix == ".arrow" else read_mail_table
    return TableSource(lambda: load(path), loops=loops, id_field=id_field)


def make_schedule(config: FileSource | QuerySource) -> Schedule | None:
    """Return when the records of a replayed file are due; None for a source without a replay rate."""
    if isinstance(config, QuerySource) or config.replay is None:
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
