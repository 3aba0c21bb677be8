"""Bytes that cross the WAN: mails."""

from __future__ import annotations

from itertools import islice

import msgspec
import pyarrow as pa

from engines.email.generator import generate_mail
from engines.email.mailbox import read_mail
from suite.wan.payloads import Load, origin, real, row

MAILS, SEED = 2_000, 3
_TEXT = pa.string()
NEEDED = pa.schema({"message_id": _TEXT, "sender": _TEXT, "to": pa.list_(_TEXT), "subject": _TEXT, "body": _TEXT})


def _load() -> Load:
    mails = read_mail(there) if (there := real("enron/2000-09.mbox.gz")) else generate_mail(MAILS, SEED)
    return Load([msgspec.json.encode(mail) for mail in islice(mails, MAILS)], NEEDED)


ROW = row(
    "mail",
    "mails",
    f"2,000 {origin()} mails, of which the query needs 5 of 8 fields.",
    _load,
)
