"""Mail as JSON lines, the input of the e-mail benchmark: real mail, or generated mail."""

from __future__ import annotations

import gzip
from collections.abc import Iterable
from pathlib import Path

import msgspec

from engines.email.generator import generate_mail
from engines.email.mailbox import Mail, MailReport, read_mail


def write_mail(mails: Iterable[Mail], out: Path) -> int:
    """Write one JSON object a line, gzipped when ``out`` ends with .gz, and return how many.

    The file is written atomically; equal mails give equal bytes.
    """
    encoder = msgspec.json.Encoder()
    temporary = out.with_name(f".{out.name}.new")
    count = 0
    try:
        with temporary.open("wb") as raw:
            # No file name and no time in the gzip header: the same mail gives the same file.
            packed = gzip.GzipFile("", "wb", 6, raw, mtime=0) if out.suffix == ".gz" else raw
            with packed as file:
                for mail in mails:
                    file.write(encoder.encode(mail) + b"\n")
                    count += 1
        temporary.replace(out)
    finally:
        temporary.unlink(missing_ok=True)
    return count


def chosen_mail(source: Path | None, count: int, seed: int, report: MailReport) -> Iterable[Mail]:
    """Return the mails of an mbox, maildir or folder; without one, ``count`` generated ones."""
    return generate_mail(count, seed) if source is None else read_mail(source, report)
