"""What reading rows of a source can fail with, and records that are no events."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DeadRecord:
    """A record that is not an event: its place (0-based), the reason, and its raw bytes.

    ``place`` describes the place if record and offset do not (a partition, a file of many). The dead letter keeps 64
    KiB of ``raw``; ``raw_bytes`` is the length of the whole record if ``raw`` is only its beginning, else -1.
    ``replayed``, ``stream``: see ``DeadLetter``.
    """

    record: int
    offset: int
    reason: str
    raw: bytes
    place: str = ""
    raw_bytes: int = -1
    replayed: int = -1
    stream: str = ""


class SourceError(Exception):
    """The source itself (not a single record) cannot be read; the message says what to do."""


class SourceUnavailableError(Exception):
    """The source cannot be reached now (for example while a broker restarts); the gateway retries."""
