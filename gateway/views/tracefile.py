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


_HEADER: Final = (",".join(COLUMNS) + "\n").encode()
_TAIL_BYTES: Final = 1 << 16


class NoTraceError(Exception):
    """A file that should be continued is not a trace; the message says what to do."""


def end_of_trace(path: Path) -> tuple[int, int]:
    """Return the second in which a trace continues, and how many of its bytes are whole lines; zeros without a file.

    Raises:
        NoTraceError: the file is not a trace.
        OSError: it cannot be read.
    """
    if not path.exists() or not path.stat().st_size:
        return 0, 0
    with path.open("rb") as file:
        head = file.read(len(_HEADER))
        begins = max(len(_HEADER), path.stat().st_size - _TAIL_BYTES)
        file.seek(begins)
        whole = file.read().rpartition(b"\n")[0]
    if head != _HEADER:
        raise NoTraceError(f"{path} is not a trace (its first line is not {','.join(COLUMNS)}): choose another name")
    if not whole:  # nothing but the header, or a line that was torn
        return 0, begins
    try:
        last_s = int(whole.rpartition(b"\n")[2].partition(b",")[0])
    except ValueError as error:
        raise NoTraceError(f"{path} is not a trace (its last line has no at_s): choose another name") from error
    return last_s + 1, begins + len(whole) + 1


class TraceFile:
    """Counts events by the second in which they were due; with a ``flush`` each second a kill loses one second.

    A trace that exists is continued in the second after its last one, as if no time had passed between the gateways.
    A run that is read again after its engine was lost counts once. Events that were due before the trace begins count
    at its beginning. A disk error, or the size limit of the file, ends the trace, not the gateway.

    Args:
        path: of the trace, which is begun or continued.
        started_s: zero of the time axis.
        file_bytes: the size limit of the file.

    Raises:
        NoTraceError: the file exists, and is not a trace.
        OSError: it cannot be written.
    """

    def __init__(self, path: Path, started_s: float, file_bytes: int = _FILE_BYTES_MOST) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        begins_s, kept_bytes = end_of_trace(path)
        self._path = path
        self._file = path.open("ab", buffering=0)
        self._file.truncate(kept_bytes)
        self._started_s = started_s - begins_s
        self._begins_s = begins_s
        self._left_bytes = file_bytes - kept_bytes
        self._sums: dict[tuple[int, str], tuple[int, int]] = {}
        self._next_seq: dict[str, int] = {}
        self._ended = False
        if not kept_bytes:
            self._write(_HEADER)

    def arrived(self, query: str, run: Run) -> None:
        """Count a run that was read from the source."""
        events = run.last_seq + 1 - max(run.first_seq, self._next_seq.get(query, 0))
        if self._ended or events <= 0:
            return
        self._next_seq[query] = run.last_seq + 1
        key = (max(self._begins_s, int(run.arrival_s - self._started_s)), query)
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
