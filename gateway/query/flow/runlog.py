"""The run log: which events each run holds, durable before the run is dispatched, so that recovery cuts equal runs.

One line per record: CRC32 in hex, a blank, JSON. A torn tail (a line without its end, or a last line with a wrong CRC)
is cut off; a wrong line before the last is damage and is reported.
"""

from __future__ import annotations

import logging
import os
import threading
import zlib
from bisect import bisect_left
from collections.abc import Sequence
from pathlib import Path

import msgspec

from gateway.connectors.position import Position
from gateway.sources.marks import Mark
from infra.failpoints import reached
from infra.statefiles import StateError, make_folder, sync_folder, write_atomically


class SelectionMark(msgspec.Struct, frozen=True, array_like=True):
    """Where the selections of the next run begin: see ``policies.selections.splitter.SplitterMark``.

    Attributes:
        selection: the number of the next selection that closes.
        before_ms: the stream's time at the event before; None before the first event.
        reports_from: no run so far had this seq or a later one among its rows.
        needed_from: the first seq that an open selection has.
        blocked_by: see ``SplitterMark``.
        unreported: see ``Reported.gaps``.
    """

    selection: int = 0
    before_ms: int | None = None
    reports_from: int = 0
    needed_from: int = 0
    blocked_by: tuple[int, int] | None = None
    unreported: tuple[tuple[int, int], ...] = ()


class RunRecord(msgspec.Struct, frozen=True, tag="run"):
    """A run: its seq range, the source positions around it, and the mean due time of its events.

    ``shed``: how many more events between its positions, evenly spread, were shed. ``shed_before``: how many between
    the previous run and this one were shed.
    ``arrival_wall_s`` is seconds since 1970, since the monotonic clock does not survive a reboot. ``disordered``: it
    contains an event older than an earlier one, and is processed at home. ``newest``: the event-time column that
    decides this, and the newest time in it (us since 1970) up to the end of this run. ``selections``: where those of
    the next run begin, if the query has any. ``reference``: it was not read; then each offset between its positions has
    a seq.
    """

    first_seq: int
    last_seq: int
    start: Position
    end: Position
    arrival_wall_s: float
    disordered: bool = False
    newest: tuple[str, int] | None = None
    shed: int = 0
    shed_before: int = 0
    selections: SelectionMark | None = None
    reference: bool = False


class LogHead(msgspec.Struct, frozen=True, tag="head"):
    """The first line: the log's owner, the start of its replay, the end of earlier runs, and their newest time.

    ``shed`` counts the events that were shed before its position. ``source`` is the mark of the source of all positions
    in the log; None in a log of an older version. ``selections``: see ``RunRecord``.
    """

    owner: str
    started_wall_s: float
    next_seq: int = 0
    position: Position = Position()
    newest: tuple[str, int] | None = None
    shed: int = 0
    source: Mark | None = None
    selections: SelectionMark | None = None


_LOG = logging.getLogger(__name__)
_ENCODER = msgspec.json.Encoder()
_DECODER: msgspec.json.Decoder[LogHead | RunRecord] = msgspec.json.Decoder(LogHead | RunRecord)


def _shed(runs: Sequence[RunRecord]) -> int:
    return sum(run.shed + run.shed_before for run in runs)


def _line(record: LogHead | RunRecord) -> bytes:
    body = _ENCODER.encode(record)
    return b"%08x %s\n" % (zlib.crc32(body), body)


class LoggedRuns:
    """The content of a run log, in memory: its head, and the runs that follow it, by seq."""

    def __init__(self, head: LogHead) -> None:
        self.head = head
        self.runs: list[RunRecord] = []

    @property
    def next_seq(self) -> int:
        """The first seq that is in no run of the log."""
        runs = self.runs  # read once: another thread may replace it by a shorter list
        return runs[-1].last_seq + 1 if runs else self.head.next_seq

    @property
    def selections(self) -> SelectionMark:
        """Where the selections of the next run begin."""
        runs = self.runs
        return (runs[-1].selections if runs else self.head.selections) or SelectionMark()

    def needed_from(self, committed_before: int) -> int:
        """Return the first event that a start needs once everything before ``committed_before`` is committed.

        That is an earlier one if a selection that is open there has it.
        """
        runs = self.runs
        at = bisect_left(runs, committed_before, key=lambda run: run.last_seq)
        mark = runs[at - 1].selections if at else self.head.selections
        return committed_before if mark is None else min(committed_before, mark.needed_from)

    def forget(self, before_seq: int) -> None:
        """Remove runs that end before ``before_seq``."""
        keep = next((i for i, run in enumerate(self.runs) if run.last_seq >= before_seq), len(self.runs))
        if not keep:
            return
        last = self.runs[keep - 1]
        self.head = msgspec.structs.replace(
            self.head,
            next_seq=last.last_seq + 1,
            position=last.end,
            newest=last.newest,
            shed=self.head.shed + _shed(self.runs[:keep]),
            selections=last.selections,
        )
        self.runs = self.runs[keep:]


class RunLog(LoggedRuns):
    """The log of one query. Its methods block on the disk: call them in threads; they wait for one another.

    Attributes:
        head: the first record; its ``owner`` must match.
        runs: the runs that were not retired when the log was opened, by seq.
        shed_events: how many events were ever shed before the last run in the log; as durable as the runs.
        shed_since: events that were shed after the last run; the next run's record must count them.
    """

    def __init__(self, path: Path, head: LogHead) -> None:
        """Open the log at ``path``, or begin it with ``head``.

        Raises:
            StateError: the log is damaged, or belongs to another state.
        """
        self._path = path
        super().__init__(head)
        self._lock = threading.Lock()
        self._skipped: Position | None = None
        self.shed_since = 0
        self._torn = False
        if path.exists():
            self._read()
            if self.head.owner != head.owner:
                raise StateError(f"{path} belongs to a different state than the files beside it: restore them together")
        else:
            make_folder(path.parent)
            write_atomically(path, _line(head))
        self.shed_events = self.head.shed + _shed(self.runs)
        self._file = path.open("ab", buffering=0)
        self._appended_bytes = 0

    @property
    def newest(self) -> tuple[str, int] | None:
        """The event-time column and the newest time in it (us since 1970), from the last run in the log."""
        runs = self.runs
        return runs[-1].newest if runs else self.head.newest

    @property
    def position(self) -> Position:
        """The source position after the last run in the log, and after skipped records."""
        skipped, runs = self._skipped, self.runs
        return skipped or (runs[-1].end if runs else self.head.position)

    def position_before(self, seq: int) -> Position:
        """Return the position that separates the events before ``seq`` from those from ``seq`` on."""
        with self._lock:
            if seq >= self.next_seq and not self.shed_since:
                return self.position
            # The next run counts events that were shed since: until then the source must keep them.
            ends = [run.end for run in self.runs if run.last_seq < seq]
            return ends[-1] if ends else self.head.position

    def append(self, runs: Sequence[RunRecord]) -> None:
        """Add runs, in order of seq, and return once they are on disk.

        Raises:
            OSError: the disk is full or fails; add them again, and those that are in the log are skipped.
        """
        with self._lock:
            runs = [run for run in runs if run.first_seq >= self.next_seq]
            if not runs:
                return
            data = memoryview(b"".join(map(_line, runs)))
            if self._torn:
                # After a failed write or fsync the file's content is uncertain, so it is rewritten.
                self._rewrite()
            reached("runlog.append.before")
            self._torn = True
            written = 0
            while written < len(data):
                written += self._file.write(data[written:]) or 0
            reached("runlog.append.written")
            os.fsync(self._file.fileno())
            self._torn = False
            self._appended_bytes += len(data)
            self.runs.extend(runs)
            self.shed_events += _shed(runs)
            self._skipped, self.shed_since = None, 0
            reached("runlog.append.after")

    def skip(self, position: Position, shed: int = 0) -> None:
        """Note that there is no event up to ``position`` except shed ones; this need not survive a crash."""
        self._skipped = position
        self.shed_since += shed

    def retire(self, before_seq: int, *, rewrite_bytes: int = 1_000_000) -> None:
        """Remove runs that end before ``before_seq``; the file is rewritten once it has grown by ``rewrite_bytes``."""
        with self._lock:
            self.forget(before_seq)
            if self._appended_bytes >= rewrite_bytes:
                self._rewrite()

    def content(self) -> tuple[LogHead, list[RunRecord]]:
        """Return the head, and the runs that were not retired, as they are at one moment."""
        with self._lock:
            return self.head, self.runs[:]

    def note_source(self, mark: Mark) -> None:
        """Store ``mark`` as that of the source of all positions in the log.

        Raises:
            OSError: the disk fails; call it again.
        """
        with self._lock:
            if mark != self.head.source:
                self._replace_head(msgspec.structs.replace(self.head, source=mark), self.runs)

    def begin_source(self, mark: Mark, position: Position, started_wall_s: float) -> None:
        """Continue in another source at ``position``: the runs, all committed, are removed, and seq continues.

        One write replaces position and mark, so that no crash can mix the two sources.

        Raises:
            OSError: the disk fails; call it again.
        """
        with self._lock:
            head = LogHead(
                self.head.owner,
                started_wall_s,
                self.next_seq,
                position,
                shed=self.shed_events,
                source=mark,
                selections=self.selections,
            )
            self._replace_head(head, [])

    def _replace_head(self, head: LogHead, runs: list[RunRecord]) -> None:
        before = self.head, self.runs
        self.head, self.runs = head, runs
        try:
            self._rewrite()
        except BaseException:
            self.head, self.runs = before
            raise

    def close(self, *, rewrite: bool = True) -> None:
        """Leave only the runs that were not retired, unless ``rewrite`` is False, and close the file."""
        with self._lock:
            try:
                if rewrite:
                    self._rewrite()
            except OSError as error:
                # Everything appended is in it; the next start finds retired runs committed.
                _LOG.warning("%s cannot be truncated now: %s", self._path, error)
            finally:
                self._file.close()

    def _rewrite(self) -> None:
        # Until the new file is durable, records that are appended to it may be lost in a crash.
        self._torn = True
        reached("runlog.rewrite.before")
        try:
            write_atomically(self._path, b"".join([_line(self.head), *map(_line, self.runs)]))
        finally:
            # Whether or not it was replaced, records from now on must go to the file with that name.
            self._file.close()
            self._file = self._path.open("ab", buffering=0)
        self._appended_bytes = 0
        self._torn = False
        reached("runlog.rewrite.after")

    def _read(self) -> None:
        lines = self._path.read_bytes().split(b"\n")
        good_bytes = 0
        for number, line in enumerate(lines[:-1], start=1):
            record = _parse(line)
            if record is None:
                if any(_parse(later) is not None for later in lines[number:]):
                    raise StateError(f"{self._path}:{number}: damaged record: restore the file from a backup")
                break
            good_bytes += len(line) + 1
            if isinstance(record, LogHead):
                self.head = record
            else:
                self.runs.append(record)
        if good_bytes == 0:
            raise StateError(f"{self._path}: no readable head: restore the file, or start with an empty state_dir")
        if good_bytes < self._path.stat().st_size:
            os.truncate(self._path, good_bytes)
            sync_folder(self._path.parent)


def replace_log(path: Path, head: LogHead, runs: Sequence[RunRecord]) -> None:
    """Replace the log at ``path``, which is not open, by another one.

    Raises:
        OSError: the disk fails; call it again.
    """
    make_folder(path.parent)
    write_atomically(path, b"".join([_line(head), *map(_line, runs)]))


def peek(path: Path) -> tuple[LogHead, list[RunRecord]] | None:
    """Return the content of a log, even of another gateway; None if there is none. Changes nothing.

    Raises:
        StateError: it has no head.
    """
    if not path.exists():
        return None
    records = [record for line in path.read_bytes().split(b"\n")[:-1] if (record := _parse(line)) is not None]
    if not records or not isinstance(records[0], LogHead):
        raise StateError(f"{path}: no readable head: restore the file, or start with an empty state_dir")
    return records[0], [record for record in records[1:] if isinstance(record, RunRecord)]


def _parse(line: bytes) -> LogHead | RunRecord | None:
    crc, _, body = line.partition(b" ")
    try:
        if int(crc, 16) != zlib.crc32(body):
            return None
        return _DECODER.decode(body)
    except (ValueError, msgspec.DecodeError):
        return None


class KeptRuns:
    """Knows which runs must stay in the run log, beside those that the sink does not have.

    Args:
        stateful: the query keeps state.
    """

    def __init__(self, *, stateful: bool) -> None:
        self._stateful = stateful
        self._batch_start_seq = 0
        self._kept_from_seq: int | None = None

    def answered(self, first_seq: int) -> None:
        """Note the first seq of an answer."""
        self._batch_start_seq = max(self._batch_start_seq, first_seq)

    def keep_from(self, seq: int | None) -> None:
        """Keep every run from this seq on: on a VM, a query may have to continue with it at home. None: no more."""
        self._kept_from_seq = seq

    @property
    def batch_start_seq(self) -> int:
        """The first seq of the last answer: where it was given, the checkpoint has everything before it."""
        return self._batch_start_seq

    def needed_from(self, watermark: int) -> int:
        """Return the seq before which no run will be needed again; the sink has everything before ``watermark``."""
        if self._kept_from_seq is not None:
            return min(watermark, self._kept_from_seq)
        # A stateful query's last batch may have to run again although its results exist: its runs stay in the log.
        return min(watermark, self._batch_start_seq) if self._stateful else watermark
