"""Reads the records at a position of a journal."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from gateway.connectors.position import Position
from gateway.journal.frames import SEGMENT_HEAD_BYTES
from gateway.journal.segments import PlacedFrame, Segment, SegmentReader
from infra.statefiles import StateError
from policies.arrays import Array

_MARKS_MAX: Final = 4096
_NO_END: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class Records:
    """Consecutive records of a journal.

    Attributes:
        start: position of the first one.
        end: position after the last one.
        records: their bytes, as appended.
        topics: of each record; an empty text if it has none.
        offsets: in its segment, of the frame that holds the record.
        walls_s: when each was received, seconds since 1970; shape (n,).
    """

    start: Position
    end: Position
    records: list[bytes]
    topics: list[str]
    offsets: list[int]
    walls_s: Array


class PositionReader:
    """Reads records from any position. Blocks on the disk; used by one thread at a time.

    Args:
        folder: the journal's, for messages.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._reader: SegmentReader | None = None
        self._frame: PlacedFrame | None = None
        self._following: Iterator[PlacedFrame] = iter(())

    def read(
        self, segments: Sequence[Segment], position: Position, max_records: int, max_bytes: int, end_record: int
    ) -> Records:
        """Return the records from ``position`` on, at least one, up to a limit or ``end_record``.

        Raises:
            StateError: they are damaged, or do not exist any more.
            OSError: the disk fails.
        """
        records: list[bytes] = []
        topics: list[str] = []
        offsets: list[int] = []
        walls_s: list[float] = []
        total_bytes, end = 0, position
        while len(records) < max_records and total_bytes < max_bytes and end.record < end_record:
            frame, part = self._frame_at(segments, end)
            for number in range(end.record - frame.head.first_record, frame.head.count):
                records.append(frame.body.records[number])
                topics.append(frame.body.topic(number))
                offsets.append(frame.offset)
                walls_s.append(frame.head.wall_s)
                total_bytes += len(records[-1])
                if len(records) >= max_records or total_bytes >= max_bytes:
                    break
            record = position.record + len(records)
            end = Position(record, part, frame.end_offset if record == frame.head.end_record else frame.offset)
        return Records(position, end, records, topics, offsets, np.array(walls_s))

    def _frame_at(self, segments: Sequence[Segment], position: Position) -> tuple[PlacedFrame, int]:
        """Return the frame with a record, and its segment's first record; the last frame read is cached."""
        at = bisect_right(segments, position.record, key=lambda segment: segment.first_record) - 1
        if at < 0:
            raise StateError(
                f"{self._folder} begins with record {segments[0].first_record}; record {position.record} is not there "
                "any more: restore the folder together with the files beside it"
            )
        segment = segments[at]
        if self._reader is None or self._reader.segment is not segment:
            self.close()
            self._reader = SegmentReader(segment)
        kept, self._frame = self._frame, None
        if kept is None or not kept.head.first_record <= position.record < kept.head.end_record:
            if kept is None or kept.head.end_record != position.record:
                self._following = self._reader.frames(_offset_for(self._reader, position), _NO_END)
            # The next frame, when records are read in order.
            kept = _first_with(self._following, position.record)
        self._frame = kept
        return kept, segment.first_record

    def close(self) -> None:
        """Close the open file."""
        if self._reader is not None:
            self._reader.close()
        self._reader = self._frame = None
        self._following = iter(())


def _offset_for(reader: SegmentReader, position: Position) -> int:
    """Return where to look for a record: at its position's offset if that is valid, else at the first frame."""
    if position.part == reader.segment.first_record and position.offset > SEGMENT_HEAD_BYTES:
        head = reader.head_at(position.offset)
        if head is not None and head.first_record <= position.record:
            return position.offset
    return SEGMENT_HEAD_BYTES


def _first_with(frames: Iterator[PlacedFrame], record: int) -> PlacedFrame:
    return next(frame for frame in frames if record < frame.head.end_record)


class ReceiptTimes:
    """About when each record of a journal was received; less exact for more records."""

    def __init__(self) -> None:
        self._marks: list[tuple[int, float]] = []

    def add(self, record: int, wall_s: float) -> None:
        """Note that ``record``, later than all before, was received at ``wall_s``."""
        if len(self._marks) >= _MARKS_MAX:
            self._marks = self._marks[::2]
        self._marks.append((record, wall_s))

    def at(self, record: int) -> float | None:
        """Return when the record, or one shortly before it, was received; None if nothing is known."""
        marks = self._marks
        at = bisect_right(marks, record, key=lambda mark: mark[0]) - 1
        return marks[at][1] if at >= 0 else None

    def forget(self, before_record: int) -> None:
        """Drop times that are not needed any more."""
        at = bisect_right(self._marks, before_record, key=lambda mark: mark[0]) - 1
        self._marks = self._marks[max(0, at) :]
