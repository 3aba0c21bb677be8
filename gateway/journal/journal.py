"""The journal of one query: appended in groups that share an fsync, read by position, given up from its beginning."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Final

from gateway.gate import ByteGate
from gateway.journal.frames import BODY_BYTES_MAX, SEGMENT_HEAD_BYTES, encode_body, frame_of
from gateway.journal.keys import SeenKey, SeenKeys
from gateway.journal.reading import PositionReader, ReceiptTimes, Records
from gateway.journal.segments import Frame, Segment, SegmentReader, make_segment, segments_in
from gateway.position import Position
from gateway.statefiles import StateError, sync_folder
from gateway.threads import run_to_end
from infra.clock import Clock
from infra.failpoints import reached

_LOG = logging.getLogger(__name__)
# What may be in memory on its way to the disk before an append waits.
_PENDING_BYTES_MAX: Final = 32 * 2**20
_SEGMENTS_MIN: Final = 4


class JournalFullError(Exception):
    """The journal holds as much as it may; nothing was taken. Hold the sender back until some is released."""


@dataclass(slots=True)
class _Append:
    """An append on its way to the disk; ``done`` is resolved when it is there."""

    body: bytes
    count: int
    key: SeenKey | None
    wall_s: float
    done: asyncio.Future[None] = field(default_factory=asyncio.Future)


class Journal:
    """Records in the order of their receipt, each with a number (from 0) for ever.

    Used from one event loop; ``open`` before all else. After a failed write or fsync nobody knows what a file holds:
    it is cut back, and the journal goes on in a new file.

    Args:
        folder: made if it is not there; nothing else may be in it.
        limit_bytes: when the files hold so much, appends are refused; one append may go over it.
        segment_bytes: when a file holds so much, a new one is begun; at most a quarter of the limit.
        clock: time.
        remember_keys_s: how long an append's key is remembered; 0 remembers none.
    """

    def __init__(
        self, folder: Path, *, limit_bytes: int, segment_bytes: int, clock: Clock, remember_keys_s: float = 0.0
    ) -> None:
        self.folder = folder
        self._limit_bytes = limit_bytes
        self._segment_bytes = min(segment_bytes, limit_bytes // _SEGMENTS_MIN)
        self._clock = clock
        self._keys = SeenKeys(folder, remember_keys_s) if remember_keys_s > 0 else None
        self._segments: list[Segment] = []
        self._next_record = 0
        self._active_keys: list[SeenKey] = []
        self._file: int | None = None
        self._pending: list[_Append] = []
        self._pending_bytes = 0
        self._gate = ByteGate(_PENDING_BYTES_MAX)
        self._wake = asyncio.Event()
        self._writer: asyncio.Task[None] | None = None
        self._closing = False
        self._disk = asyncio.Lock()
        self._reading = asyncio.Lock()
        self._reader = PositionReader(folder)
        self._received = ReceiptTimes()

    # -------------------------------------------------------------------------------------------- opening and ending

    async def open(self) -> None:
        """Find what is there, after whatever crash.

        Raises:
            StateError: it is damaged.
            OSError: the disk fails.
        """
        await run_to_end(self._recover)
        self._writer = asyncio.create_task(self._write(), name=f"journal {self.folder}")

    def _recover(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._segments = segments_in(self.folder) or [make_segment(self.folder, 0, 0)]
        saved = self._keys.load() if self._keys is not None else set()
        for segment, after in pairwise(self._segments):
            if segment.first_record < after.first_record:
                self._look_into(segment, after.first_record, keys=segment.serial not in saved)
        last = self._segments[-1]
        self._next_record = last.first_record
        with closing(SegmentReader(last)) as reader:
            for frame in reader.recover():
                self._next_record = frame.head.end_record
                self._active_keys += self._note(frame)
        self._file = os.open(last.path, os.O_WRONLY | os.O_APPEND)

    def _look_into(self, segment: Segment, end_record: int, *, keys: bool) -> None:
        """Note what must be known of a full segment: when its first record came, and its keys if no file has them."""
        found: list[SeenKey] = []
        with closing(SegmentReader(segment)) as reader:
            for frame in reader.frames(SEGMENT_HEAD_BYTES, end_record):
                found += self._note(frame)
                if self._keys is None or not keys:
                    return
        if self._keys is not None:
            self._keys.save(segment.serial, found)

    def _note(self, frame: Frame) -> list[SeenKey]:
        self._received.add(frame.head.first_record, frame.head.wall_s)
        if self._keys is None or not frame.body.key:
            return []
        seen = SeenKey(frame.body.key, frame.body.digest, frame.head.count, frame.head.wall_s)
        self._keys.add(seen)
        return [seen]

    async def close(self) -> None:
        """Write what is on its way, and close the files."""
        self._closing = True
        self._wake.set()
        if self._writer is not None:
            await asyncio.wait([self._writer])
        async with self._disk, self._reading:
            if self._file is not None:
                os.close(self._file)
                self._file = None
            self._reader.close()

    # ----------------------------------------------------------------------------------------------------- appending

    @property
    def next_record(self) -> int:
        """Number of the record that is appended next; all before it are on the disk."""
        return self._next_record

    @property
    def first_record(self) -> int:
        """Number of the oldest record that is still there."""
        return self._segments[0].first_record

    @property
    def held_bytes(self) -> int:
        """What the files hold."""
        return sum(segment.size_bytes for segment in self._segments)

    @property
    def full(self) -> bool:
        """Whether an append would be refused now."""
        return self.held_bytes + self._pending_bytes >= self._limit_bytes

    def seen(self, key: str) -> SeenKey | None:
        """Return what was appended with ``key`` within the time that keys are remembered."""
        return None if self._keys is None else self._keys.find(key, self._clock.wall())

    async def append(
        self, records: Sequence[bytes], *, key: str = "", digest: bytes = b"", topics: Sequence[str] = ()
    ) -> None:
        """Return once ``records`` are on the disk: all of them, or none when it raises.

        A caller that is cancelled does not know whether they are in.

        Args:
            records: in order.
            key: remembered with the records; empty for none.
            digest: what tells this append from another one with the same key.
            topics: of each record; none, or as many as there are records.

        Raises:
            JournalFullError: nothing was taken.
            OSError: the disk is full or fails; nothing was taken.
            ValueError: there are more bytes than one append can hold.
        """
        if not records:
            return
        body = encode_body(records, key=key, digest=digest, topics=topics)
        if len(body) > BODY_BYTES_MAX:
            raise ValueError(f"{len(body)} bytes are too many for one append; the most is {BODY_BYTES_MAX}")
        await self._gate.wait()
        if self._closing or self._writer is None or self._writer.done():
            raise OSError(f"the journal {self.folder} is closed")
        if self.full:
            raise JournalFullError(f"the journal holds {self.held_bytes} bytes, and may hold {self._limit_bytes}")
        wall_s = self._clock.wall()
        append = _Append(body, len(records), SeenKey(key, digest, len(records), wall_s) if key else None, wall_s)
        self._pending.append(append)
        self._pending_bytes += len(body)
        self._gate.take(len(body))
        self._wake.set()
        await append.done

    async def _write(self) -> None:
        """Write what is pending, group after group, until the journal is closed."""
        while self._pending or not self._closing:
            await self._wake.wait()
            self._wake.clear()
            group, self._pending = self._pending, []
            group_bytes = sum(len(append.body) for append in group)
            error: Exception = OSError(f"the journal {self.folder} ended while this was written")
            try:
                async with self._disk:
                    await self._put_unless_cancelled(group)
            except OSError as failure:
                error = OSError(failure.errno, failure.strerror or str(failure))
            finally:
                self._pending_bytes -= group_bytes
                self._gate.give(group_bytes)
                for append in group:
                    if not append.done.done():
                        append.done.set_exception(error)

    async def _put_unless_cancelled(self, group: list[_Append]) -> None:
        wanted = [append for append in group if not append.done.cancelled()]
        if not wanted:
            return
        await run_to_end(lambda: self._put(wanted))
        for append in wanted:
            if not append.done.done():
                append.done.set_result(None)

    def _put(self, group: Sequence[_Append]) -> None:
        """Make a group durable; called in a thread, one at a time."""
        segment = self._segments[-1]
        if self._file is None or segment.size_bytes >= self._segment_bytes:
            segment = self._roll()
        assert self._file is not None, "a new segment is open"
        record, frames = self._next_record, []
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
        self._received.add(self._next_record, group[0].wall_s)
        segment.size_bytes += len(data)
        self._next_record = record

    def _cut_back(self, segment: Segment) -> None:
        """Let nothing of a failed append be seen, and never write to that file again."""
        assert self._file is not None, "it was being written"
        try:
            os.ftruncate(self._file, segment.size_bytes)
            os.fsync(self._file)
        except OSError as error:
            # The next segment's first record says where this one ends; until there is one, a restart may still find
            # the append that failed, for which its sender was told that it may not be in.
            _LOG.error("%s could not be cut back to %d bytes: %s", segment.path, segment.size_bytes, error)
        os.close(self._file)
        self._file = None

    def _roll(self) -> Segment:
        """Begin a new segment.

        Raises:
            OSError: there is none; it may be tried again.
        """
        kept, last = self._segments, self._segments[-1]
        serial = last.serial
        if last.size_bytes > SEGMENT_HEAD_BYTES:
            if self._keys is not None:
                self._keys.save(serial, self._active_keys)
            serial += 1
        else:
            kept = kept[:-1]
        segment = make_segment(self.folder, serial, self._next_record)
        handle = os.open(segment.path, os.O_WRONLY | os.O_APPEND)
        if self._file is not None:
            os.close(self._file)
        self._file = handle
        self._active_keys = []
        # A new list, since the event loop may look at the old one meanwhile.
        self._segments = [*kept, segment]
        return segment

    # ------------------------------------------------------------------------------------------- reading and release

    async def read(self, position: Position, max_records: int, max_bytes: int) -> Records | None:
        """Return the records from ``position`` on, at least one; None when there are none.

        Args:
            position: ``record`` says which record is the first; ``part`` and ``offset`` only help to find it.
            max_records: how many at most.
            max_bytes: no further record is taken once so much is.

        Raises:
            StateError: they are damaged, or not there any more.
            OSError: the disk fails.
        """
        end_record = self._next_record
        if position.record > end_record:
            raise StateError(
                f"{self.folder} ends before record {end_record}, but records up to {position.record} were read from "
                "it: restore the folder together with the files beside it"
            )
        if position.record == end_record or max_records < 1:
            return None
        async with self._reading:
            segments = self._segments
            return await run_to_end(lambda: self._reader.read(segments, position, max_records, max_bytes, end_record))

    def received_wall_s(self, record: int) -> float | None:
        """Return about when the record came, seconds since 1970; None when it is not there yet."""
        return self._received.at(record) if record < self._next_record else None

    async def release(self, position: Position) -> None:
        """Give up the files in which every record is before ``position``.

        Raises:
            OSError: some are still there; the next release gives them up too.
        """
        record = min(position.record, self._next_record)
        if not self._writer or not self._may_give_up(record):
            return
        async with self._disk:
            await run_to_end(lambda: self._give_up(record))

    def _may_give_up(self, record: int) -> bool:
        return (len(self._segments) > 1 and self._segments[1].first_record <= record) or self._is_spent(record)

    def _is_spent(self, record: int) -> bool:
        """Return whether nothing that is needed is in any file, and they hold so much that senders may wait for it."""
        return record == self._next_record and self.held_bytes >= self._limit_bytes // 2

    def _give_up(self, record: int) -> None:
        if self._is_spent(record):
            self._roll()
        while len(self._segments) > 1 and self._segments[1].first_record <= record:
            reached("journal.unlink.before")
            self._segments[0].path.unlink(missing_ok=True)
            # One after the other for good, so that what is left has no hole.
            sync_folder(self.folder)
            self._segments = self._segments[1:]
            reached("journal.unlink.after")
        self._received.forget(record)
        if self._keys is not None:
            self._keys.forget(self._clock.wall(), self._segments[0].serial)


def _write_all(file: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(file, rest) :]
