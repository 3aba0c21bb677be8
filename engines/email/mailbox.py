"""Mail as rows: readers for mbox files (plain or gzip) and for folder trees with one raw message a file.

A mail that cannot be read never ends the reading: a ``MailReport`` counts it and keeps the reason.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from email import message_from_bytes
from email.errors import HeaderParseError, MessageError
from email.header import decode_header, make_header
from email.message import Message
from email.utils import getaddresses, parsedate_to_datetime
from pathlib import Path
from typing import BinaryIO, Final, cast

import msgspec

MAX_REASONS = 100
GZIP_MAGIC = b"\x1f\x8b"

# Some writers leave "From " unquoted in bodies; a real separator follows a blank line and carries a time of day.
_SEPARATOR = re.compile(rb"From \S.*\d\d:\d\d")
_QUOTED_FROM = re.compile(rb"^>(>*From )", re.MULTILINE)
_ADDRESS = re.compile(r"[^\s<>,;:\"()']+@[^\s<>,;:\"()']+")


@dataclass(frozen=True, slots=True)
class MailLimits:
    """How much of a mailbox is held at a time.

    Attributes:
        mail_bytes: a larger mail is refused; the largest of the Enron corpus has 1.92 MB.
        line_bytes: a longer line of an mbox file is read in pieces.
    """

    mail_bytes: int = 64 * 1024 * 1024
    line_bytes: int = 1024 * 1024


MAIL_LIMITS: Final = MailLimits()


class Mail(msgspec.Struct, frozen=True, kw_only=True):
    """One mail, in the columns of ``engines.email.queries.SCHEMA_DDL``; ``sent`` is UTC."""

    message_id: str
    sent: datetime
    sender: str
    to: list[str]
    cc: list[str]
    bcc: list[str]
    subject: str
    body: str


class MailReport:
    """ReadCounts the mails of a reader; keeps the first ``MAX_REASONS`` reasons, each with its place."""

    def __init__(self) -> None:
        self.mails = 0
        self.malformed = 0
        self.reasons: list[str] = []

    def refuse(self, place: str, reason: str) -> None:
        """Count one mail that could not be read."""
        self.malformed += 1
        if len(self.reasons) < MAX_REASONS:
            self.reasons.append(f"{place}: {reason}")


def read_mail(path: Path, report: MailReport | None = None, limits: MailLimits = MAIL_LIMITS) -> Iterator[Mail]:
    """Yield the mails of an mbox file (plain or gzip) in file order, or of a folder tree in order of path.

    Raises:
        FileNotFoundError: ``path`` does not exist.
    """
    report = report or MailReport()
    raw = _tree_messages(path, report, limits) if path.is_dir() else _mbox_messages(path, report, limits)
    for place, message in raw:
        try:
            mail = parse_mail(message)
        except (ValueError, LookupError, MessageError, RecursionError) as error:
            report.refuse(place, str(error) or type(error).__name__)
            continue
        report.mails += 1
        yield mail


def parse_mail(raw: bytes) -> Mail:
    """Return the row for one raw message.

    Raises:
        ValueError: Message-ID, From or Date is missing or unreadable; the message says which.
    """
    message = message_from_bytes(raw)
    message_id = _header(message, "Message-ID")
    if not message_id:
        raise ValueError("no Message-ID")
    senders = _addresses(message, "From")
    if not senders:
        raise ValueError("no address in From")
    return Mail(
        message_id=message_id,
        sent=_sent(message),
        sender=senders[0],
        to=_addresses(message, "To"),
        cc=_addresses(message, "Cc"),
        bcc=_addresses(message, "Bcc"),
        subject=_header(message, "Subject"),
        body=_body(message),
    )


def _mbox_messages(path: Path, report: MailReport, limits: MailLimits) -> Iterator[tuple[str, bytes]]:
    with path.open("rb") as plain:
        compressed = plain.peek(2)[:2] == GZIP_MAGIC
        stream = cast("BinaryIO", gzip.GzipFile(fileobj=plain)) if compressed else plain
        yield from _split_mbox(stream, path.name, report, limits)


def _split_mbox(stream: BinaryIO, name: str, report: MailReport, limits: MailLimits) -> Iterator[tuple[str, bytes]]:
    """Yield (place, raw message) for what stands between separator lines."""
    place, message, after_blank = "", _Collected(limits.mail_bytes), True
    for number, line in enumerate(_lines(stream, name, report, limits.line_bytes), start=1):
        if after_blank and _SEPARATOR.match(line):
            yield from message.finish(place, report)
            place, message = f"{name}:{number}", _Collected(limits.mail_bytes)
        else:
            if not place and line.strip():
                report.refuse(f"{name}:{number}", "text before the first separator line")
                place, message = f"{name}:{number}", _Collected(limits.mail_bytes, refused=True)
            message.add(line)
        after_blank = not line.rstrip(b"\r\n")
    yield from message.finish(place, report)


class _Collected:
    """The lines of one message while it is read, at most ``max_bytes`` of them."""

    def __init__(self, max_bytes: int, *, refused: bool = False) -> None:
        self._max_bytes = max_bytes
        self._lines: list[bytes] = []
        self._bytes = 0
        self._refused = refused

    def add(self, line: bytes) -> None:
        self._bytes += len(line)
        if self._refused or self._bytes > self._max_bytes:
            self._lines.clear()
        else:
            self._lines.append(line)

    def finish(self, place: str, report: MailReport) -> Iterator[tuple[str, bytes]]:
        """Yield the message without quoting of ``From `` lines and without the closing blank line."""
        if not place or self._refused:
            return
        if self._bytes > self._max_bytes:
            report.refuse(place, f"{self._bytes} bytes, more than {self._max_bytes}")
            return
        if self._lines and not self._lines[-1].rstrip(b"\r\n"):
            self._lines.pop()
        yield place, _QUOTED_FROM.sub(rb"\1", b"".join(self._lines))


def _lines(stream: BinaryIO, name: str, report: MailReport, line_bytes: int) -> Iterator[bytes]:
    """Yield lines, very long ones in pieces; a damaged gzip stream ends the reading and is reported."""
    while True:
        try:
            line = stream.readline(line_bytes)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            report.refuse(name, f"damaged gzip stream: {error}")
            return
        if not line:
            return
        yield line


def _tree_messages(folder: Path, report: MailReport, limits: MailLimits) -> Iterator[tuple[str, bytes]]:
    for path in sorted(folder.rglob("*")):
        place = path.relative_to(folder)
        # A maildir's tmp holds unfinished mails; hidden files belong to the mail program.
        if place.parent.name == "tmp" or path.name.startswith(".") or not path.is_file():
            continue
        size = path.stat().st_size
        if size > limits.mail_bytes:
            report.refuse(str(place), f"{size} bytes, more than {limits.mail_bytes}")
            continue
        yield str(place), path.read_bytes()


def _header(message: Message, name: str) -> str:
    """Return a header as one line of text, encoded words and stray bytes decoded."""
    value = message.get(name)
    if value is None:
        return ""
    try:
        text = str(make_header(decode_header(value)))
    except (HeaderParseError, LookupError, ValueError):
        text = str(value)
    return " ".join(text.encode("utf-8", "replace").decode("utf-8").split())


def _addresses(message: Message, name: str) -> list[str]:
    """Return the addresses in a header in order; use the standard parser, or a plain search where it fails."""
    text = _header(message, name)
    found = [one for _, one in getaddresses([text]) if "@" in one and " " not in one and not one.startswith("'")]
    return found or [match[-1] for piece in text.split(",") if (match := _ADDRESS.findall(piece))]


def _sent(message: Message) -> datetime:
    text = _header(message, "Date")
    try:
        sent = parsedate_to_datetime(text)
    except (TypeError, ValueError) as error:
        raise ValueError(f"unreadable Date {text[:80]!r}") from error
    return sent.replace(tzinfo=UTC) if sent.tzinfo is None else sent.astimezone(UTC)


def _body(message: Message) -> str:
    """Return the first plain-text part (else the first part of all), line ends as line feeds."""
    parts = [part for part in message.walk() if not part.is_multipart()]
    part = next((part for part in parts if part.get_content_type() == "text/plain"), parts[0] if parts else message)
    payload = part.get_payload(decode=True)
    data = payload if isinstance(payload, bytes) else b""
    return _decoded(data, part.get_content_charset() or "utf-8").replace("\r\n", "\n")


def _decoded(data: bytes, charset: str) -> str:
    """Decode as declared; mail often declares wrongly, and latin-1 reads any bytes."""
    try:
        return data.decode(charset)
    except (UnicodeDecodeError, LookupError):
        return data.decode("latin-1")
