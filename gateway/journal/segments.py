"""The files of a journal: their names, their content, and where they end after a crash."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from gateway.journal.frames import (
    HEAD_BYTES,
    SEGMENT_HEAD_BYTES,
    DamagedFrameError,
    FrameBody,
    FrameHead,
    decode_body,
    decode_head,
    decode_segment_head,
    encode_segment_head,
    is_torn,
)
from infra.statefiles import StateError, sync_folder, write_atomically

_NAME = re.compile(r"(\d{8,})-(\d{16,})\.journal")
_RELEASED = "released"
_BLOCK_BYTES = 1 << 18


@dataclass(slots=True)
class Segment:
    """One file.

    Attributes:
        path: of the file.
        serial: counts the files of the journal from 0.
        first_record: number of its first record.
        size_bytes: the valid size; leftovers of a failed append may follow.
    """

    path: Path
    serial: int
    first_record: int
    size_bytes: int

    def damage(self, offset: int, what: str) -> StateError:
        """Return the error for damage at ``offset``."""
        return StateError(
            f"{self.path}: at byte {offset}: {what}. Restore the file from a backup; without one, the data received "
            "from there on is lost, and the query needs an empty state_dir and sink to start again"
        )


@dataclass(frozen=True, slots=True)
class PlacedFrame:
    """A frame and its place in its segment."""

    offset: int
    head: FrameHead
    body: FrameBody

    @property
    def end_offset(self) -> int:
        """Offset of the next frame."""
        return self.offset + self.head.total_bytes


def segments_in(folder: Path) -> list[Segment]:
    """Return the segments of a folder, oldest first; remove a last one that was not completely created.

    Raises:
        StateError: one is missing or damaged.
    """
    found: list[Segment] = []
    for path in folder.iterdir():
        name = _NAME.fullmatch(path.name)
        if name is not None:
            found.append(Segment(path, int(name[1]), int(name[2]), path.stat().st_size))
    found.sort(key=lambda segment: segment.serial)
    if found and _was_being_made(found[-1]):
        found.pop().path.unlink()
        sync_folder(folder)
    for before, after in pairwise(found):
        if after.serial != before.serial + 1 or after.first_record < before.first_record:
            raise StateError(
                f"{folder}: between {before.path.name} and {after.path.name} a file is missing: restore it from a "
                "backup; without one, the query needs an empty state_dir and sink to start again"
            )
    for segment in found:
        with segment.path.open("rb") as file:
            if decode_segment_head(file.read(SEGMENT_HEAD_BYTES)) != (segment.serial, segment.first_record):
                raise segment.damage(0, "the head of the file is damaged")
    return found


def released_record(folder: Path) -> int:
    """Return the record before which everything was released, as far as files were deleted because of that.

    Raises:
        StateError: the file that records it is damaged.
    """
    path = folder / _RELEASED
    if not path.exists():
        return 0
    text = path.read_text(errors="replace").strip()
    if not text.isdigit():
        raise StateError(f"{path} is damaged: write into it the number in the name of the oldest file beside it")
    return int(text)


def note_released(folder: Path, record: int) -> None:
    """Record durably, before files are deleted, that everything before ``record`` was released."""
    write_atomically(folder / _RELEASED, f"{record}\n".encode())


def clear_folder(folder: Path) -> None:
    """Remove the files of a journal and of its keys.

    Raises:
        OSError: some remain.
    """
    for pattern in ("*.journal", "*.keys", _RELEASED):
        for path in folder.glob(pattern):
            path.unlink()
    sync_folder(folder)


def _was_being_made(segment: Segment) -> bool:
    """Return whether a segment was not durably created, so that it cannot contain anything."""
    if segment.size_bytes < SEGMENT_HEAD_BYTES:
        return True
    return segment.size_bytes == SEGMENT_HEAD_BYTES and not any(segment.path.read_bytes())


def make_segment(folder: Path, serial: int, first_record: int) -> Segment:
    """Create a segment without frames, durably.

    Raises:
        OSError: it was not created; call it again.
    """
    path = folder / f"{serial:08d}-{first_record:016d}.journal"
    path.unlink(missing_ok=True)
    with path.open("xb") as file:
        file.write(encode_segment_head(serial, first_record))
        file.flush()
        os.fsync(file.fileno())
    sync_folder(folder)
    return Segment(path, serial, first_record, SEGMENT_HEAD_BYTES)


class SegmentReader:
    """Reads frames of one segment, in blocks. Blocks on the disk.

    Raises:
        FileNotFoundError: the segment was deleted meanwhile.
    """

    def __init__(self, segment: Segment) -> None:
        self.segment = segment
        self._file = segment.path.open("rb", buffering=0)
        self._block = b""
        self._block_at = 0

    def frames(self, offset: int, end_record: int) -> Iterator[PlacedFrame]:
        """Yield the frames from ``offset`` on until ``end_record``.

        Raises:
            StateError: the segment does not contain them as they were written.
        """
        while True:
            head = decode_head(self._bytes(offset, HEAD_BYTES))
            if head is None:
                raise self.segment.damage(offset, "no frame begins here, although one was written")
            yield self._frame(offset, head)
            offset += head.total_bytes
            if head.end_record >= end_record:
                return

    def _frame(self, offset: int, head: FrameHead) -> PlacedFrame:
        try:
            return PlacedFrame(offset, head, decode_body(head, self._bytes(offset + HEAD_BYTES, head.body_bytes)))
        except DamagedFrameError as error:
            last = head.end_record - 1
            what = f"the frame of records {head.first_record} to {last} is damaged"
            raise self.segment.damage(offset, what) from error

    def head_at(self, offset: int) -> FrameHead | None:
        """Return the head of the frame at ``offset``, if there is one."""
        return decode_head(self._bytes(offset, HEAD_BYTES))

    def recover(self) -> Iterator[PlacedFrame]:
        """Yield all frames of the last segment of a journal, and cut a torn tail.

        Raises:
            StateError: there is damage other than a torn tail.
        """
        offset, record = SEGMENT_HEAD_BYTES, self.segment.first_record
        size_bytes = self.segment.size_bytes
        while offset < size_bytes:
            frame = self._next_frame(offset, record)
            if frame is None:
                if not is_torn(self._read(offset, size_bytes - offset), offset):
                    raise self.segment.damage(offset, f"record {record} should follow, but is damaged")
                self._cut(offset)
                break
            yield frame
            offset, record = frame.end_offset, frame.head.end_record
        self.segment.size_bytes = offset

    def _next_frame(self, offset: int, record: int) -> PlacedFrame | None:
        """Return the frame at ``offset`` if it begins with ``record`` and is intact."""
        head = decode_head(self._bytes(offset, HEAD_BYTES))
        if head is None or head.first_record != record:
            return None
        try:
            return PlacedFrame(offset, head, decode_body(head, self._bytes(offset + HEAD_BYTES, head.body_bytes)))
        except DamagedFrameError:
            return None

    def _cut(self, offset: int) -> None:
        with self.segment.path.open("rb+") as file:
            file.truncate(offset)
            os.fsync(file.fileno())

    def _bytes(self, offset: int, count: int) -> bytes:
        """Return this many bytes, fewer at the end of the file."""
        at = offset - self._block_at
        if at < 0 or at + count > len(self._block):
            # Not beyond the valid size: a cached block must not contain half of an append in progress.
            self._block = self._read(offset, min(max(count, _BLOCK_BYTES), self.segment.size_bytes - offset))
            self._block_at, at = offset, 0
        return self._block[at : at + count]

    def _read(self, offset: int, count: int) -> bytes:
        parts: list[bytes] = []
        while count > 0 and (part := os.pread(self._file.fileno(), count, offset)):
            parts.append(part)
            offset += len(part)
            count -= len(part)
        return b"".join(parts)

    def close(self) -> None:
        """Close the file."""
        self._file.close()
