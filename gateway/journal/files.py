"""All files of a journal: new records are appended, old files are deleted. Blocks on the disk."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from gateway.journal.frames import SEGMENT_HEAD_BYTES, frame_of
from gateway.journal.keys import SeenKey, SeenKeys
from gateway.journal.reading import ReceiptTimes
from gateway.journal.segments import (
    PlacedFrame,
    Segment,
    SegmentReader,
    make_segment,
    note_released,
    released_record,
    segments_in,
)
from infra.failpoints import reached
from infra.statefiles import StateError, sync_folder

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """The content of one append.

    Attributes:
        body: the frame's body.
        count: the number of records in it.
        wall_s: when they were received, seconds since 1970.
        key: the idempotency key to remember; None without a key.
    """

    body: bytes
    count: int
    wall_s: float
    key: SeenKey | None


class JournalFiles:
    """The segments of a journal. Call its methods in threads, one at a time; attributes may be read meanwhile.

    After a failed write or fsync the content of a file is uncertain: the file is cut back, and a new one is begun.

    Args:
        folder: created if it does not exist.
        segment_bytes: at this size a new file is begun.
        keys: the keys that are remembered; None if there are none.

    Attributes:
        segments: oldest first; a new list after each change.
        next_record: number of the next record; all before it are on disk.
        received: when records were received.
    """

    def __init__(self, folder: Path, segment_bytes: int, keys: SeenKeys | None) -> None:
        self.folder = folder
        self.segments: list[Segment] = []
        self.next_record = 0
        self.received = ReceiptTimes()
        self._segment_bytes = segment_bytes
        self._keys = keys
        self._active_keys: list[SeenKey] = []
        self._file: int | None = None
        self._uncut = False

    @property
    def held_bytes(self) -> int:
        """Total size of the files."""
        return sum(segment.size_bytes for segment in self.segments)

    def recover(self) -> None:
        """Read the files, after any crash.

        Raises:
            StateError: it is damaged.
            OSError: the disk fails.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        self._active_keys, self.received, self._uncut = [], ReceiptTimes(), False
        released = released_record(self.folder)
        self.segments = segments_in(self.folder) or [make_segment(self.folder, 0, released)]
        if self.segments[0].first_record > released:
            raise StateError(
                f"{self.folder}: the file with record {released} is missing: restore it from a backup; without one, "
                "the query needs an empty state_dir and sink to start again"
            )
        saved = self._keys.load() if self._keys is not None else set()
        for segment, after in pairwise(self.segments):
            if segment.first_record < after.first_record:
                self._look_into(segment, after.first_record, keys=segment.serial not in saved)
        last = self.segments[-1]
        self.next_record = last.first_record
        with closing(SegmentReader(last)) as reader:
            for frame in reader.recover():
                self.next_record = frame.head.end_record
                self._active_keys += self._note(frame)
        handle = os.open(last.path, os.O_WRONLY | os.O_APPEND)
        try:
            # A killed process may have written records without a sync. From now on they are read, so they must become
            # durable.
            os.fsync(handle)
        except OSError:
            os.close(handle)
            raise
        self._file = handle

    def _look_into(self, segment: Segment, end_record: int, *, keys: bool) -> None:
        """Read what is needed of a full segment: when its first record came, and its keys if they have no file."""
        found: list[SeenKey] = []
        with closing(SegmentReader(segment)) as reader:
            for frame in reader.frames(SEGMENT_HEAD_BYTES, end_record):
                found += self._note(frame)
                if self._keys is None or not keys:
                    return
        if self._keys is not None:
            self._keys.save(segment.serial, found)

    def _note(self, frame: PlacedFrame) -> list[SeenKey]:
        self.received.add(frame.head.first_record, frame.head.wall_s)
        if self._keys is None or not frame.body.key:
            return []
        seen = SeenKey(frame.body.key, frame.body.digest, frame.head.count, frame.head.wall_s)
        self._keys.add(seen)
        return [seen]

    @property
    def writable(self) -> bool:
        """Whether there is a file to append to; otherwise call ``roll``."""
        return self._file is not None

    def put(self, group: Sequence[JournalEntry]) -> None:
        """Add a group durably.

        Raises:
            OSError: nothing of it was added.
        """
        segment = self.segments[-1]
        if not self.writable or segment.size_bytes >= self._segment_bytes:
            segment = self.roll()
        assert self._file is not None, "a new segment is open"
        record, frames = self.next_record, []
        for append in group:
            frames.append(
                frame_of(
                    append.body,
                    first_record=record,
                    count=append.count,
                    wall_s=append.wall_s,
                    group_start=segment.size_bytes,
                )
            )
            record += append.count
        data = b"".join(frames)
        reached("journal.append.before")
        try:
            _write_all(self._file, data)
            reached("journal.append.written")
            os.fsync(self._file)
            reached("journal.append.after")
        except OSError:
            self._cut_back(segment)
            raise
        for append in group:
            if self._keys is not None and append.key is not None:
                self._keys.add(append.key)
                self._active_keys.append(append.key)
        self.received.add(self.next_record, group[0].wall_s)
        segment.size_bytes += len(data)
        self.next_record = record

    def _cut_back(self, segment: Segment) -> None:
        """Hide the data of a failed append, and never write to that file again."""
        assert self._file is not None, "it was being written"
        try:
            os.ftruncate(self._file, segment.size_bytes)
            os.fsync(self._file)
        except OSError as error:
            # The next segment's first record shows where this one ends. Until that segment exists, which is retried
            # again and again, a killed process leaves data of an append that its sender considers failed.
            self._uncut = True
            _LOG.error("%s could not be truncated to %d bytes: %s", segment.path, segment.size_bytes, error)
        os.close(self._file)
        self._file = None

    def roll(self) -> Segment:
        """Begin a new segment.

        Raises:
            OSError: there is none; call it again.
        """
        kept, last = self.segments, self.segments[-1]
        serial = last.serial
        if last.size_bytes > SEGMENT_HEAD_BYTES:
            if self._keys is not None:
                self._keys.save(serial, self._active_keys)
            serial += 1
        else:
            kept = kept[:-1]
        segment = make_segment(self.folder, serial, self.next_record)
        handle = os.open(segment.path, os.O_WRONLY | os.O_APPEND)
        if self._file is not None:
            os.close(self._file)
        self._file = handle
        self._uncut = False
        self._active_keys = []
        # A new list, since the event loop may read the old one meanwhile.
        self.segments = [*kept, segment]
        return segment

    def give_up(self, record: int, now_wall_s: float) -> None:
        """Remove the files whose records are all before ``record``, and the keys that are too old.

        Raises:
            OSError: some files remain; the next call removes them too.
        """
        note_released(self.folder, record)
        while len(self.segments) > 1 and self.segments[1].first_record <= record:
            reached("journal.unlink.before")
            self.segments[0].path.unlink(missing_ok=True)
            # One after the other, durably, so that the rest has no gap.
            sync_folder(self.folder)
            self.segments = self.segments[1:]
            reached("journal.unlink.after")
        self.received.forget(record)
        if self._keys is not None:
            self._keys.forget(now_wall_s, self.segments[0].serial)

    def close(self) -> None:
        """Close the current file."""
        if self._uncut:
            try:
                self.roll()
            except OSError as error:
                _LOG.error(
                    "%s: an append that failed may still appear in the journal after the next start: %s",
                    self.folder,
                    error,
                )
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _write_all(file: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(file, rest) :]
