"""Mailboxes as tables."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from engines.email.mailbox import Mail, MailReport, read_mail
from infra.rows.base import SourceError

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


def read_mail_table(path: Path) -> pa.Table:
    """Read an mbox or a maildir as a table.

    Raises:
        SourceError: it contains no readable mail.
    """
    report = MailReport()
    mails = list(read_mail(path, report))
    if not mails:
        raise SourceError(f"{path} holds no readable mail ({report.malformed} malformed: {report.reasons[:3]})")
    return mail_table(mails)


def mail_table(mails: Sequence[Mail]) -> pa.Table:
    """Return mails as a table with the columns of ``engines.email.queries.SCHEMA_DDL``."""
    return pa.table({name: [getattr(mail, name) for mail in mails] for name in _MAIL.names}, schema=_MAIL)
