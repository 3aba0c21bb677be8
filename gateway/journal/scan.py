"""The latest appends to a journal, for a caller that must find out after a crash whether its last append succeeded."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from gateway.journal.frames import SEGMENT_HEAD_BYTES
from gateway.journal.segments import SegmentReader, segments_in


def keys_since(folder: Path, record: int, end_record: int) -> set[str]:
    """Return the keys of the appends with a record from ``record`` to before ``end_record``. Blocks.

    Args:
        folder: of an open journal that nobody appends to meanwhile.
        record: number of the first record of interest.
        end_record: the journal's ``next_record``.

    Raises:
        StateError: the journal is damaged.
        OSError: the disk fails.
    """
    keys: set[str] = set()
    segments = segments_in(folder)
    ends = [*(segment.first_record for segment in segments[1:]), end_record]
    for segment, end in zip(segments, ends, strict=True):
        if end <= max(record, segment.first_record):
            continue
        with closing(SegmentReader(segment)) as reader:
            frames = reader.frames(SEGMENT_HEAD_BYTES, end)
            keys |= {frame.body.key for frame in frames if frame.head.end_record > record}
    return keys
