"""Appends lines to numbered files in a folder, in the background, and limits the folder's size.

Lost lines do not harm any query: a disk error is logged, and lines that cannot be written in time are dropped.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from infra.statefiles import LineFiles
from infra.threads import run_to_end

_LOG = logging.getLogger(__name__)
_WAITING_MOST = 10_000


class LineWriter:
    """Writes one file after the other.

    Args:
        folder: of the files.
        what: what the lines are, for the log.
        encode: converts what is added to a line; called on a thread, so what is added must not change.
        limits: see ``LineFiles``.
    """

    def __init__(self, folder: Path, what: str, encode: Callable[[Any], bytes], limits: tuple[int, int]) -> None:
        self._what = what
        self._encode = encode
        self._waiting: list[Any] = []
        self._dropped = 0
        self._writing: asyncio.Task[None] | None = None
        self._files = LineFiles(folder, limits)

    def add(self, line: object) -> None:
        """Add a line; if too many wait, the oldest are dropped."""
        self._waiting.append(line)
        if len(self._waiting) > _WAITING_MOST:
            self._dropped += len(self._waiting) - _WAITING_MOST
            del self._waiting[: len(self._waiting) - _WAITING_MOST]

    def write_soon(self) -> None:
        """Begin to write the waiting lines, unless that is in progress."""
        if self._waiting and (self._writing is None or self._writing.done()):
            self._writing = asyncio.create_task(self._write(), name=f"write the {self._what}")

    async def close(self) -> None:
        """Write the waiting lines."""
        if self._writing is not None:
            await self._writing
        if self._waiting:
            await self._write()

    async def _write(self) -> None:
        # More may be added meanwhile.
        while self._waiting:
            await self._write_waiting()

    async def _write_waiting(self) -> None:
        lines, self._waiting = self._waiting, []
        try:
            await run_to_end(lambda: self._append(lines))
        except (OSError, TypeError) as error:  # a line that cannot be encoded must not end the gateway either
            _LOG.warning("%d %s were not written: %s", len(lines) + self._dropped, self._what, error)
            self._dropped = 0

    def _append(self, lines: list[Any]) -> None:
        self._files.append(b"".join(self._encode(line) + b"\n" for line in lines))
