"""The arrivals as the CSV file that ``spillway simulate --trace`` reads; written while the gateway runs."""

from __future__ import annotations

import asyncio
import contextlib
import csv
import io
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Final, Protocol

from gateway.query.flow.run import Run
from infra.clock import Clock
from infra.together import end_tasks

COLUMNS: Final = ("at_s", "query", "events", "bytes")
_LOG = logging.getLogger(__name__)
_EVERY_S = 1.0
_WAITING_MOST = 10_000
_FILE_BYTES_MOST = 1_000_000_000


class TraceFile:
    """Counts events by the second in which they were due; with a ``flush`` each second a kill loses one second.

    A run that is read again after its engine was lost counts once. Events that were due before the trace begins count
    at its beginning. A disk error, or the size limit of the file, ends the trace, not the gateway.

    Args:
        path: must not exist yet.
        started_s: zero of the time axis.
        file_bytes: the size limit of the file.

    Raises:
        FileExistsError: it exists.
        OSError: it cannot be written.
    """

    def __init__(self, path: Path, started_s: float, file_bytes: int = _FILE_BYTES_MOST) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._file = path.open("xb", buffering=0)
        self._started_s = started_s
        self._left_bytes = file_bytes
        self._sums: dict[tuple[int, str], tuple[int, int]] = {}
        self._next_seq: dict[str, int] = {}
        self._ended = False
        self._write((",".join(COLUMNS) + "\n").encode())

    def arrived(self, query: str, run: Run) -> None:
        """Count a run that was read from the source."""
        events = run.last_seq + 1 - max(run.first_seq, self._next_seq.get(query, 0))
        if self._ended or events <= 0:
            return
        self._next_seq[query] = run.last_seq + 1
        key = (max(0, int(run.arrival_s - self._started_s)), query)
        before, before_bytes = self._sums.get(key, (0, 0))
        self._sums[key] = (before + events, before_bytes + round(run.raw_bytes * events / run.events))
        if len(self._sums) >= _WAITING_MOST:
            self.flush()

    def flush(self) -> None:
        """Write the arrivals since the last call."""
        text = io.StringIO()
        lines = csv.writer(text, lineterminator="\n")
        for (at_s, query), (events, size) in sorted(self._sums.items()):
            lines.writerow((at_s, query, events, size))
        self._sums.clear()
        self._write(text.getvalue().encode())

    def close(self) -> None:
        """Write the rest."""
        self.flush()
        self._ended = True
        self._file.close()

    def _write(self, text: bytes) -> None:
        if self._ended:
            return
        if len(text) > self._left_bytes:
            self._end("it has reached its largest size")
            return
        self._left_bytes -= len(text)
        try:
            while text:
                text = text[self._file.write(text) :]
        except OSError as error:
            self._end(error.strerror or str(error))

    def _end(self, why: str) -> None:
        self._ended = True
        _LOG.warning("recording to the trace %s has stopped: %s", self._path, why)


class Recordable(Protocol):
    """A query whose runs can be recorded."""

    on_run: Callable[[str, Run], None] | None


@contextlib.asynccontextmanager
async def recorded(path: Path | None, queries: Mapping[str, Recordable], clock: Clock) -> AsyncIterator[None]:
    """Write a trace of what these queries read; None writes nothing.

    Raises:
        OSError: see ``TraceFile``.
    """
    if path is None:
        yield
        return
    trace = TraceFile(path, clock.now())
    for query in queries.values():
        query.on_run = trace.arrived
    task = asyncio.create_task(_flushing(trace, clock), name="write the trace")
    try:
        yield
    finally:
        await end_tasks(task)
        trace.close()


async def _flushing(trace: TraceFile, clock: Clock) -> None:
    while True:
        await clock.sleep_until(clock.now() + _EVERY_S)
        trace.flush()
