"""The byte format of a journal: segment heads and frames. A frame holds the records of one append. No I/O.

A frame has a head with a CRC, a body with another CRC, and four end bytes. The head says where the group began that was
synced together with the frame: everything before that was on disk when the frame was written.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

_SEGMENT = struct.Struct("<8sQQI")  # magic, serial, first record, CRC of these
_SEGMENT_MAGIC = b"SpwJrnl1"
SEGMENT_HEAD_BYTES = _SEGMENT.size

_HEAD = struct.Struct("<4sIIQIdQI")  # magic, body bytes, body CRC, first record, records, wall, group start, CRC
MAGIC = b"SpwF"
_END = b"FwpS"  # never zero, so that an unwritten last sector is detected
HEAD_BYTES = _HEAD.size
_LENGTH = struct.Struct("<I")
_SECTOR_BYTES = 512
BODY_BYTES_MAX = 2**32 - 1 - len(_END)


class DamagedFrameError(Exception):
    """The bytes differ from those that were written."""


class _About(msgspec.Struct, frozen=True, array_like=True):
    """The part of a frame's body before its records; ``topics`` has one for each record, or one for all, or none."""

    key: str
    digest: bytes
    topics: list[str]


@dataclass(frozen=True, slots=True)
class FrameHead:
    """The head of a frame.

    Attributes:
        body_bytes: length of the body and the end bytes.
        body_crc: its CRC32.
        first_record: number of the first record.
        count: number of records.
        wall_s: when they were received, seconds since 1970.
        group_start: offset in the segment of the first frame that was synced together with this one.
    """

    body_bytes: int
    body_crc: int
    first_record: int
    count: int
    wall_s: float
    group_start: int

    @property
    def total_bytes(self) -> int:
        """Length of head and body."""
        return HEAD_BYTES + self.body_bytes

    @property
    def end_record(self) -> int:
        """Number of the record after the last one."""
        return self.first_record + self.count


@dataclass(frozen=True, slots=True)
class FrameBody:
    """The content of a frame; see ``encode_body``."""

    key: str
    digest: bytes
    topics: list[str]
    records: list[bytes]

    def topic(self, number: int) -> str:
        """Return the topic of the record with this number in the frame; empty if it has none."""
        if not self.topics:
            return ""
        return self.topics[number if len(self.topics) > 1 else 0]


def encode_segment_head(serial: int, first_record: int) -> bytes:
    """Return the first bytes of a segment."""
    fields = _SEGMENT.pack(_SEGMENT_MAGIC, serial, first_record, 0)[: -_LENGTH.size]
    return fields + _LENGTH.pack(zlib.crc32(fields))


def decode_segment_head(data: bytes) -> tuple[int, int] | None:
    """Return (serial, first record), or None if the bytes are not a segment's head."""
    if len(data) < SEGMENT_HEAD_BYTES:
        return None
    magic, serial, first_record, crc = _SEGMENT.unpack_from(data)
    intact = magic == _SEGMENT_MAGIC and crc == zlib.crc32(data[: SEGMENT_HEAD_BYTES - _LENGTH.size])
    return (serial, first_record) if intact else None


def encode_body(records: Sequence[bytes], *, key: str = "", digest: bytes = b"", topics: Sequence[str] = ()) -> bytes:
    """Return the body of a frame.

    Args:
        records: at least one.
        key: the idempotency key of the append; empty without one.
        digest: distinguishes this append from another one with the same key.
        topics: of each record; none, or as many as there are records.
    """
    kept = list(topics[:1]) if len(set(topics)) == 1 else list(topics)
    about = msgspec.msgpack.encode(_About(key, digest, kept))
    lengths = struct.pack(f"<{len(records)}I", *map(len, records))
    return b"".join([_LENGTH.pack(len(about)), about, lengths, *records, _END])


def frame_of(body: bytes, *, first_record: int, count: int, wall_s: float, group_start: int) -> bytes:
    """Return a frame around ``body``."""
    fields = _HEAD.pack(MAGIC, len(body), zlib.crc32(body), first_record, count, wall_s, group_start, 0)
    fields = fields[: -_LENGTH.size]
    return b"".join([fields, _LENGTH.pack(zlib.crc32(fields)), body])


def decode_head(data: bytes, at: int = 0) -> FrameHead | None:
    """Return the head that begins at ``at``, or None if there is no intact one."""
    if len(data) - at < HEAD_BYTES:
        return None
    magic, *fields, crc = _HEAD.unpack_from(data, at)
    if magic != MAGIC or crc != zlib.crc32(data[at : at + HEAD_BYTES - _LENGTH.size]):
        return None
    return FrameHead(*fields)


def decode_body(head: FrameHead, data: bytes) -> FrameBody:
    """Return the content of a frame.

    Raises:
        DamagedFrameError: the bytes differ from those that were written.
    """
    if len(data) != head.body_bytes or zlib.crc32(data) != head.body_crc:
        raise DamagedFrameError
    (about_bytes,) = _LENGTH.unpack_from(data)
    at = _LENGTH.size + about_bytes
    about = msgspec.msgpack.decode(data[_LENGTH.size : at], type=_About)
    lengths = struct.unpack_from(f"<{head.count}I", data, at)
    at += _LENGTH.size * head.count
    records: list[bytes] = []
    for length in lengths:
        records.append(data[at : at + length])
        at += length
    return FrameBody(about.key, about.digest, about.topics, records)


def is_torn(rest: bytes, at: int) -> bool:
    """Return whether an interrupted write explains the bad frame at the end of a segment.

    Synced data is never cut. The frame was synced if a later frame says so, or if no sector of the bad frame is empty,
    since an unwritten sector reads as zeros.

    Args:
        rest: the segment from the bad frame to its end.
        at: offset of ``rest`` in the segment.
    """
    head = decode_head(rest)
    if len(rest) < HEAD_BYTES or (head is not None and head.total_bytes > len(rest)):
        return True
    if any(later.group_start > at for later in _intact_after(rest)):
        return False
    frame = rest if head is None else rest[: head.total_bytes]
    first = _SECTOR_BYTES - at % _SECTOR_BYTES
    sectors = [frame[:first], *(frame[i : i + _SECTOR_BYTES] for i in range(first, len(frame), _SECTOR_BYTES))]
    return any(not any(sector) for sector in sectors)


def _intact_after(rest: bytes) -> list[FrameHead]:
    found: list[FrameHead] = []
    at = rest.find(MAGIC, 1)
    while at >= 0:
        head = decode_head(rest, at)
        if head is not None and zlib.crc32(rest[at + HEAD_BYTES : at + head.total_bytes]) == head.body_crc:
            found.append(head)
        at = rest.find(MAGIC, at + 1)
    return found
