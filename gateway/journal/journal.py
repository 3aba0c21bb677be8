"""The journal of one query: appends in groups that share an fsync, reads by position, deletes from its beginning."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from gateway.connectors.position import Position
from gateway.journal.copying import Copying
from gateway.journal.files import JournalEntry, JournalFiles
from gateway.journal.frames import BODY_BYTES_MAX, encode_body
from gateway.journal.keys import SeenKey, SeenKeys
from gateway.journal.reading import PositionReader, Records
from gateway.journal.replica import GROUP_BYTES_MAX, Replica
from infra.clock import Clock
from infra.gate import ByteGate
from infra.statefiles import StateError
from infra.threads import run_to_end
from infra.together import wait_out

# How much may be in memory on its way to the disk before an append waits.
_PENDING_BYTES_MAX: Final = 32 * 2**20
_SEGMENTS_MIN: Final = 4
_PROBE_S: Final = 1.0


class JournalFullError(Exception):
    """The journal has reached its limit; nothing was accepted. Make the sender wait until some is released."""


@dataclass(slots=True)
class _Append:
    """An append on its way to the disk; ``done`` is resolved when it is there.

    Without records it is only for its notes; see ``CopiedGroup``.
    """

    entry: JournalEntry | None
    notes: Mapping[str, bytes]
    done: asyncio.Future[None] = field(default_factory=asyncio.Future)

    @property
    def size_bytes(self) -> int:
        """The size of its frame's body."""
        return 0 if self.entry is None else len(self.entry.body)


class Journal:
    """Records in the order of their receipt, each with a permanent number (from 0).

    Use it from one event loop; call ``open`` first. After a failed write or fsync the content of a file is uncertain:
    the file is cut back, and the journal continues in a new file.

    Args:
        folder: created if it does not exist; it must contain nothing else.
        limit_bytes: at this total size appends are refused; one append may exceed it.
        segment_bytes: at this size a new file is begun; at most a quarter of the limit.
        clock: time.
        remember_keys_s: how long an append's key is remembered; 0 remembers none.
        probe_s: how often a disk that failed is tried, when nobody appends.
        replica: the copy in an object store, which has each append before it returns; None for no copy.
    """

    def __init__(
        self,
        folder: Path,
        *,
        limit_bytes: int,
        segment_bytes: int,
        clock: Clock,
        remember_keys_s: float = 0.0,
        probe_s: float = _PROBE_S,
        replica: Replica | None = None,
    ) -> None:
        self.folder = folder
        self._probe_s = probe_s
        self._limit_bytes = limit_bytes
        self._clock = clock
        self._keys = SeenKeys(folder, remember_keys_s) if remember_keys_s > 0 else None
        self._files = JournalFiles(folder, min(segment_bytes, limit_bytes // _SEGMENTS_MIN), self._keys)
        self._copying = Copying(self._files, self._keys, replica, clock)
        self._reader = PositionReader(folder)
        self._pending: list[_Append] = []
        self._pending_bytes = 0
        self._gate = ByteGate(_PENDING_BYTES_MAX)
        self._wake = asyncio.Event()
        self._writer: asyncio.Task[None] | None = None
        self._closing = False
        self._disk = asyncio.Lock()
        self._reading = asyncio.Lock()
        self._disk_trouble = ""
        self._failed_bytes = 0

    # -------------------------------------------------------------------------------------------- opening and ending

    async def open(self) -> None:
        """Read the files, after any crash.

        Raises:
            StateError: it is damaged.
            OSError: the disk fails, or the object store with the copy.
        """
        await run_to_end(self._copying.recover)
        self._closing = False
        self._writer = asyncio.create_task(self._write(), name=f"journal {self.folder}")

    async def close(self) -> None:
        """Write pending appends, and close the files; a cancelled caller waits for it."""
        self._closing = True
        self._wake.set()
        await wait_out(self._close())

    async def _close(self) -> None:
        if self._writer is not None:
            await asyncio.wait([self._writer])
        await self._copying.close()
        async with self._disk, self._reading:
            self._reader.close()
            await run_to_end(self._files.close)

    # ----------------------------------------------------------------------------------------------------- appending

    @property
    def next_record(self) -> int:
        """Number of the next record; all before it are on disk."""
        return self._files.next_record

    @property
    def first_record(self) -> int:
        """Number of the oldest record that still exists."""
        return self._files.segments[0].first_record

    @property
    def held_bytes(self) -> int:
        """Total size of the files."""
        return self._files.held_bytes

    @property
    def full(self) -> bool:
        """Whether an append would be refused now."""
        return bool(self._copying.why_full) or self.held_bytes + self._pending_bytes >= self._limit_bytes

    @property
    def replicated(self) -> bool:
        """Whether an append is in an object store when it returns."""
        return self._copying.replica is not None

    @property
    def notes(self) -> Mapping[str, bytes]:
        """The latest note of each name; see ``note``."""
        return {} if self._copying.replica is None else self._copying.replica.notes

    @property
    def trouble(self) -> str:
        """Why nothing can be appended now, or ever again; empty if nothing is wrong."""
        if self._writer is not None and self._writer.done() and not self._closing:
            return f"the journal {self.folder} ended: {self._writer.exception()!r}"
        return self._disk_trouble

    def seen(self, key: str) -> SeenKey | None:
        """Return the append with ``key``, if it is recent enough to be remembered."""
        return None if self._keys is None else self._keys.find(key, self._clock.wall())

    async def append(
        self,
        records: Sequence[bytes],
        *,
        key: str = "",
        digest: bytes = b"",
        topics: Sequence[str] = (),
        notes: Mapping[str, bytes] | None = None,
    ) -> None:
        """Return once ``records`` are on disk, and in the copy if there is one: all of them, or none if it raises.

        A caller that is cancelled does not know whether they were added.

        Args:
            records: in order.
            key: remembered with the records; empty for none.
            digest: distinguishes this append from another one with the same key.
            topics: of each record; none, or as many as there are records.
            notes: for ``notes`` of the gateway that continues from the copy; see ``note``.

        Raises:
            JournalFullError: nothing was accepted.
            OSError: the disk is full or fails, or the store with the copy; nothing was accepted.
            ValueError: there are more bytes than one append can hold.
        """
        if not records:
            return
        body = encode_body(records, key=key, digest=digest, topics=topics)
        if len(body) > BODY_BYTES_MAX:
            raise ValueError(f"{len(body)} bytes are too many for one append; the most is {BODY_BYTES_MAX}")
        await self._gate.wait()
        self._check_open()
        if self.full:
            why = f"the journal holds {self.held_bytes} bytes, its limit is {self._limit_bytes}"
            raise JournalFullError(self._copying.why_full or why)
        wall_s = self._clock.wall()
        seen = SeenKey(key, digest, len(records), wall_s) if key else None
        await self._appended(_Append(JournalEntry(body, len(records), wall_s, seen), notes or {}))

    async def note(self, notes: Mapping[str, bytes]) -> None:
        """Return once the copy, if there is one, has ``notes``, each of which replaces an earlier one of its name.

        Raises:
            OSError: the store with the copy fails.
        """
        if self.replicated:
            self._check_open()
            await self._appended(_Append(None, notes))

    def _check_open(self) -> None:
        if self._closing or self._writer is None or self._writer.done():
            raise OSError(f"the journal {self.folder} is closed")

    async def _appended(self, append: _Append) -> None:
        self._pending.append(append)
        self._pending_bytes += append.size_bytes
        self._gate.take(append.size_bytes)
        self._wake.set()
        await append.done

    async def _write(self) -> None:
        """Write pending appends, group after group, until the journal is closed."""
        while self._pending or not self._closing:
            await self._wait_or_probe()
            group = self._next_group()
            group_bytes = sum(append.size_bytes for append in group)
            error: Exception = OSError(f"the journal {self.folder} ended while this was written")
            try:
                await self._put_unless_cancelled(group)
            except OSError as failure:
                error = OSError(failure.errno, failure.strerror or str(failure))
                self._failed_bytes = group_bytes
                self._disk_trouble = f"the journal {self.folder}: {error}"
            finally:
                self._pending_bytes -= group_bytes
                self._gate.give(group_bytes)
                for append in group:
                    if not append.done.done():
                        append.done.set_exception(error)

    def _next_group(self) -> list[_Append]:
        """Take the appends to write together: all that wait; with a copy, as many as an object holds."""
        taken, taken_bytes = 0, 0
        for append in self._pending:
            if taken and self.replicated and taken_bytes + append.size_bytes > GROUP_BYTES_MAX:
                self._wake.set()
                break
            taken, taken_bytes = taken + 1, taken_bytes + append.size_bytes
        group, self._pending = self._pending[:taken], self._pending[taken:]
        return group

    async def _wait_or_probe(self) -> None:
        """Return once there is something to write; meanwhile try a failed disk, so that its recovery is noticed."""
        while not self._wake.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(self._probe_s if self._disk_trouble else None):
                    await self._wake.wait()
            if self._disk_trouble and not self._wake.is_set():
                try:
                    await self._copying.mend()
                    async with self._disk:
                        await run_to_end(self._probe)
                except OSError as error:
                    self._disk_trouble = f"the journal {self.folder}: {error}"
        self._wake.clear()

    def _probe(self) -> None:
        if not self._files.writable:
            self._files.roll()
        if shutil.disk_usage(self.folder).free >= self._failed_bytes:
            self._disk_trouble = ""

    async def _put_unless_cancelled(self, group: list[_Append]) -> None:
        wanted = [append for append in group if not append.done.cancelled()]
        if not wanted:
            return
        entries = [append.entry for append in wanted if append.entry is not None]
        await self._copying.upload(entries, {name: note for append in wanted for name, note in append.notes.items()})
        if entries:
            async with self._disk:
                await run_to_end(lambda: self._files.put(entries))
        self._copying.settled()
        self._disk_trouble = ""
        for append in wanted:
            if not append.done.done():
                append.done.set_result(None)

    # ------------------------------------------------------------------------------------------- reading and release

    async def read(self, position: Position, max_records: int, max_bytes: int) -> Records | None:
        """Return the records from ``position`` on, at least one; None if there are none.

        Args:
            position: ``record`` is the first record; ``part`` and ``offset`` only help to find it.
            max_records: how many at most.
            max_bytes: no further record is added after this size.

        Raises:
            StateError: they are damaged, or do not exist any more.
            OSError: the disk fails.
        """
        end_record = self._files.next_record
        if position.record > end_record:
            raise StateError(
                f"{self.folder} ends before record {end_record}, but records up to {position.record} were read from "
                "it: restore the folder together with the files beside it"
            )
        if position.record == end_record or max_records < 1:
            return None
        async with self._reading:
            segments, reader = self._files.segments, self._reader
            return await run_to_end(lambda: reader.read(segments, position, max_records, max_bytes, end_record))

    def received_wall_s(self, record: int) -> float | None:
        """Return about when the record was received, seconds since 1970; None if it does not exist yet."""
        return self._files.received.at(record) if record < self._files.next_record else None

    async def release(self, position: Position) -> None:
        """Delete the files whose records are all before ``position``.

        Raises:
            OSError: some files remain; the next release deletes them too.
        """
        record = min(position.record, self._files.next_record)
        if self._writer is not None and not self._closing:
            self._copying.release(record)
        segments = self._files.segments
        # No record in any file is needed, and the files are so large that senders may have to wait for space.
        spent = record == self._files.next_record and self.held_bytes >= self._limit_bytes // 2
        if self._writer is None or (not spent and (len(segments) < 2 or segments[1].first_record > record)):
            return
        async with self._disk:
            await run_to_end(lambda: self._give_up(record, begin_anew=spent))

    def _give_up(self, record: int, *, begin_anew: bool) -> None:
        if begin_anew:
            self._files.roll()
        self._files.give_up(record, self._clock.wall())
