"""Reads the log's files: the records about one query, the last ones, and those that follow, as text."""

from __future__ import annotations

import json
import os
import re
from collections import deque
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path
from typing import Final

from gateway.views.logs import OLDER_FILES

_BEGINS: Final = re.compile(r"\{|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} [A-Z]+ ")
"""A record, or one of the text that earlier versions wrote."""
_UNFINISHED_BYTES_MOST: Final = 1 << 20


def about(query: str | None) -> re.Pattern[str]:
    """Return what a record about a query contains: its name as a word of its own; without a query, anything."""
    return re.compile("" if query is None else rf"(?<![\w.-]){re.escape(query)}(?![\w-]|\.\w)")


def last_records(path: Path, wanted: re.Pattern[str], most: int) -> list[str]:
    """Return the last records that match, oldest first. A record may have several lines, as with a traceback.

    Args:
        path: the newest file of the log; older ones are read before it.
        wanted: from ``about``.
        most: how many.

    Raises:
        OSError: a file cannot be read.
    """
    found: deque[str] = deque(maxlen=most)
    for number in range(OLDER_FILES, -1, -1):
        file = path.with_name(f"{path.name}.{number}") if number else path
        if number and not file.exists():
            continue
        with file.open(encoding="utf-8", errors="replace") as lines:
            records = (f"{as_text(each)}\n" for each in _records(lines))
            found.extend(each for each in records if wanted.search(each))
    return list(found)


def as_text(record: str) -> str:
    """Return a record as text: time, level, message and traceback; one of an earlier version is text already."""
    try:
        # Not msgspec, which refuses half of a surrogate pair.
        said = json.loads(record)
        head = f"{said['time']} {said['level'].upper()} {said['message']}"
    except (ValueError, KeyError, TypeError, AttributeError):
        return record.rstrip("\n")
    text = f"{head}\n{said['exception']}" if "exception" in said else head
    return text.encode(errors="backslashreplace").decode()


def _records(lines: Iterator[str]) -> Iterator[str]:
    """Put lines together that belong to one record."""
    record = ""
    for line in lines:
        if _BEGINS.match(line) and record:
            yield record
            record = ""
        record += line
    if record:
        yield record


class LogFollower:
    """The records that are written after the last call; it goes on when the file is rotated.

    Args:
        path: the newest file of the log.
        wanted: from ``about``.
    """

    def __init__(self, path: Path, wanted: re.Pattern[str]) -> None:
        self._path = path
        self._wanted = wanted
        self._file: BufferedReader | None = None
        self._rest = b""
        self._shown = False
        if path.exists():
            self._file = path.open("rb")
            self._file.seek(0, os.SEEK_END)

    def next(self) -> list[str]:
        """Return the new lines of records that match, as text.

        Raises:
            OSError: the file cannot be read.
        """
        lines = self._read()
        if self._is_rotated():
            lines += self._read()  # what came between the two looks
            self.close()
            self._file = self._path.open("rb")
            lines += self._read()
        return [as_text(line) for line in lines if self._is_wanted(line)]

    def _is_wanted(self, line: str) -> bool:
        if _BEGINS.match(line):
            self._shown = self._wanted.search(as_text(line)) is not None
        return self._shown

    def _is_rotated(self) -> bool:
        if self._file is None:
            return self._path.exists()
        try:
            now = self._path.stat()
        except FileNotFoundError:
            return False  # for a moment, while it is rotated
        return now.st_ino != os.fstat(self._file.fileno()).st_ino or now.st_size < self._file.tell()

    def _read(self) -> list[str]:
        if self._file is None:
            return []
        *whole, self._rest = (self._rest + self._file.read()).split(b"\n")
        if len(self._rest) > _UNFINISHED_BYTES_MOST:
            whole, self._rest = [*whole, self._rest], b""
        return [line.decode(errors="replace") for line in whole]

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None
