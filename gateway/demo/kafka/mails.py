"""Mails as records of a topic, and the answers among the records of the results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from engines.email.mailbox import Mail
from engines.email.oracle import MailAnswer
from gateway.demo.load import looped_id
from gateway.demo.verify import NO_EVENT, ExpectedResults
from infra.messages import NAME_HEADERS

PARTITIONS: Final = 4
"""Of the topic of mails: event n is record n // 4 of partition n % 4."""


class FlatMail(msgspec.Struct, frozen=True, kw_only=True):
    """A mail in the columns of ``engines.email.queries.FLAT_SCHEMA_DDL``, but for its id."""

    sent: str
    sender: str
    to: str
    cc: str
    bcc: str
    subject: str
    body: str


class FlatAnswer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The columns of ``engines.email.queries.FLAT_SQL``'s result."""

    message_id: str
    sender: str
    recipients: str
    subject: str
    characters: int
    words: int
    paragraphs: int
    body_md5: str


class MailRecords:
    """The values of the records of a replay.

    Args:
        base: the mails that are repeated.
    """

    def __init__(self, base: Sequence[Mail]) -> None:
        self._ids = [mail.message_id for mail in base]
        # All but the id is the same in each pass.
        self._rests = [b"," + msgspec.json.encode(flat(mail))[1:] for mail in base]

    def value(self, number: int) -> bytes:
        """Return the JSON of an event, counted from 0."""
        loop, place = divmod(number, len(self._ids))
        return b'{"message_id":' + msgspec.json.encode(looped_id(self._ids[place], loop)) + self._rests[place]


def flat(mail: Mail) -> FlatMail:
    """Return a mail in columns of text."""
    return FlatMail(
        sent=mail.sent.isoformat(),
        sender=mail.sender,
        to=" ".join(mail.to),
        cc=" ".join(mail.cc),
        bcc=" ".join(mail.bcc),
        subject=mail.subject,
        body=mail.body,
    )


_DECODER: Final = msgspec.json.Decoder(FlatAnswer)


def event_of(value: bytes, headers: Sequence[tuple[str, bytes]], expected: ExpectedResults, events: int) -> int:
    """Return the event to which a result is the right answer, and which its headers name; else -1.

    Args:
        value: of the result's record.
        headers: of it.
        expected: the right answers.
        events: how many were played.
    """
    told = dict(headers)
    _, partition, offset = NAME_HEADERS
    try:
        named = int(told[offset]) * PARTITIONS + int(told[partition])
        row = _DECODER.decode(value)
    except (KeyError, ValueError):  # among them msgspec's
        return NO_EVENT
    answer = MailAnswer(**{**msgspec.structs.asdict(row), "recipients": tuple(row.recipients.split())})
    return named if expected.event(answer, events) == named else NO_EVENT
