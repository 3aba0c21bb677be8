"""Copies a journal to an object store, and makes it again from there on another machine. Blocks.

The store has an append before the disk has it, so the folder never holds more than the store, and is made anew from it
at each start. Each object is created only if its number is free. A gateway that opens the journal creates an object of
its own first: from then on the next write of every earlier owner fails. See docs/decisions/0100.
"""

from __future__ import annotations

import errno
import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

from gateway.journal.copyobjects import OBJECT_BYTES_MAX, ReplicaPlace, in_os_errors
from gateway.journal.copyplan import FENCES_MAX, CopiedGroup, CopyPlan, KeptKeys, Placed, counted, decoded, encoded
from gateway.journal.files import JournalEntry, JournalFiles
from gateway.journal.frames import SEGMENT_HEAD_BYTES, encode_body
from gateway.journal.keys import SeenKey, SeenKeys
from gateway.journal.segments import PlacedFrame, SegmentReader, clear_folder, note_released, segments_in
from infra.objectstore.base import ConflictError
from infra.statefiles import StateError, write_atomically

_LOG = logging.getLogger(__name__)
GROUP_BYTES_MAX: Final = 4 << 20
"""An object is begun anew at this size, so that a rebuild may read several at a time."""
_TRIES: Final = 5
MARK: Final = "replicated"
"""The file in a journal's folder that says that the copy has all of it."""


class Replica:
    """The copy of one journal. One call at a time, except ``tidy``, which may run beside the others.

    Args:
        where: see there.
    """

    def __init__(self, where: ReplicaPlace) -> None:
        self._where = where
        self._store = where.store
        self._plan = CopyPlan(1, 1, ())
        self._lock = threading.Lock()
        self._fence = 1
        self._unsure = False

    @property
    def full(self) -> bool:
        """Whether the copy has as many objects as are allowed."""
        return self._plan.full

    @property
    def notes(self) -> Mapping[str, bytes]:
        """The latest note of each name."""
        return self._plan.notes

    # -------------------------------------------------------------------------------------------------------- opening

    def recover(self, files: JournalFiles, keys: SeenKeys | None) -> None:
        """Claim the copy for this gateway, and make the folder equal to it.

        Args:
            files: not recovered yet.
            keys: of the journal; None if it remembers none.

        Raises:
            StateError: the copy or the folder is damaged, or they do not belong together.
            OSError: the store cannot be reached, or the disk fails.
        """
        with in_os_errors():
            for _ in range(_TRIES):
                try:
                    self._recover(files, keys)
                except ConflictError:
                    continue
                return
        raise OSError(errno.EAGAIN, f"{self._where.folder} in {self._store} is written by other gateways all the time")

    def _recover(self, files: JournalFiles, keys: SeenKeys | None) -> None:
        # A start that the store interrupted may have left a file open.
        files.close()
        numbers = self._where.numbers(0)
        newest = self._where.placed(numbers[-1]).group if numbers else None
        fences: list[int] = []
        if newest is not None:
            self._check_epoch(newest)
            fences = [*self._where.placed(newest.fence).group.fences, newest.fence][-FENCES_MAX:]
        if newest is None or self._is_ahead(files.folder, newest):
            self._begin(files, keys, numbers, fences)
        else:
            self._take_over(newest, files, keys, numbers, fences)

    def _check_epoch(self, newest: CopiedGroup) -> None:
        where = self._where
        if newest.epoch > where.epoch or (newest.epoch == where.epoch and newest.place != where.place):
            raise StateError(
                f"{where.folder} in {self._store}: a gateway opened this journal with epoch {newest.epoch}, and "
                f"this one has epoch {where.epoch}: another gateway owns the fleet"
            )

    def _is_ahead(self, folder: Path, newest: CopiedGroup) -> bool:
        """Return whether the folder has what the copy lacks: the first upload was cut short, or there was none."""
        if (folder / MARK).exists() or not _holds_records(folder):
            return False
        if newest.place != self._where.place:
            raise StateError(
                f"{folder} holds events that are not in the object store, and another gateway has a copy of the "
                f"journal there ({self._where.folder}): finish this one without replicate, or remove the folder"
            )
        return True

    def _begin(self, files: JournalFiles, keys: SeenKeys | None, numbers: Sequence[int], fences: list[int]) -> None:
        """Upload the journal that is here; objects that are there are not needed."""
        files.recover()
        begin, record = (numbers[-1] if numbers else 0) + 1, files.segments[0].first_record
        plan = CopyPlan(begin, begin, [*fences, begin])
        plan.uploaded(self._claim(plan, record, fences))
        plan.found_unneeded(numbers)
        self._plan, self._unsure = plan, False
        for group in _groups(_entries(files)):
            self.upload(record, group)
            record += sum(entry.count for entry in group)
        if keys is not None and len(keys):
            kept, name = KeptKeys(list(keys), {}), self._where.kept(begin)
            self._store.put(name, encoded(kept))
            plan.found_kept(name, kept)
        write_atomically(files.folder / MARK, b"")

    def _take_over(
        self,
        newest: CopiedGroup,
        files: JournalFiles,
        keys: SeenKeys | None,
        numbers: Sequence[int],
        fences: list[int],
    ) -> None:
        """Make the folder from the copy."""
        plan = CopyPlan(newest.base, numbers[-1] + 1, [*fences, numbers[-1] + 1])
        fence = self._claim(plan, newest.end_record, fences)
        # From here on nobody else adds to the copy.
        files.folder.mkdir(parents=True, exist_ok=True)
        write_atomically(files.folder / MARK, b"")
        clear_folder(files.folder)
        self._load_keys(plan, keys)
        begun = False
        for placed, counts in counted(self._where.all_placed(newest.base, fence.number)):
            if not begun:
                note_released(files.folder, placed.group.first_record)
                files.recover()
                begun = True
            plan.uploaded(placed)
            if counts and placed.group.entries:
                files.put(placed.group.entries)
        plan.found_unneeded(number for number in numbers if number < newest.base)
        self._plan, self._unsure = plan, False
        _LOG.info("%s: made from %d objects in %s", files.folder, plan.object_count, self._store)

    def _claim(self, plan: CopyPlan, first_record: int, fences: list[int]) -> Placed:
        """Create this gateway's first object; ConflictError if another writer was faster."""
        number, where = plan.next_number, self._where
        group = CopiedGroup(where.place, where.epoch, plan.base, number, first_record, fences=fences)
        self._fence = number
        data = encoded(group)
        self._store.put_if_absent(where.group(number), data)
        return Placed(number, group, len(data))

    def _load_keys(self, plan: CopyPlan, keys: SeenKeys | None) -> None:
        for name, kept in self._where.all_kept():
            plan.found_kept(name, kept)
            if keys is not None:
                for key in kept.keys:
                    keys.add(key)

    # ------------------------------------------------------------------------------------------------------ uploading

    def upload(
        self, first_record: int, entries: Sequence[JournalEntry], notes: Mapping[str, bytes] | None = None
    ) -> None:
        """Store a group of appends. Records from ``first_record`` on that were stored before do not count any more.

        Args:
            first_record: number of the first one.
            entries: the appends; perhaps none.
            notes: see ``CopiedGroup``.

        Raises:
            OSError: the store cannot be reached or refuses, or another gateway owns the journal. The group may have
                been stored, so upload again, perhaps something else, before anything is acknowledged.
        """
        if why := self._where.why_not_write():
            raise OSError(errno.EPERM, why)
        try:
            with in_os_errors():
                self._upload(first_record, list(entries), dict(notes or {}))
        except StateError as error:
            raise OSError(errno.EIO, str(error)) from error
        # After the write: while this gateway owns the fleet, no other one has made the journal from the copy.
        if why := self._where.why_not_write():
            raise OSError(errno.EPERM, why)

    def _upload(self, first_record: int, entries: list[JournalEntry], notes: dict[str, bytes]) -> None:
        for _ in range(_TRIES):
            if self._uploaded(first_record, entries, notes):
                return
        raise OSError(errno.EIO, f"{self._where.folder} in {self._store}: its objects cannot be created")

    def _uploaded(self, first_record: int, entries: list[JournalEntry], notes: dict[str, bytes]) -> bool:
        """Create the next object; return whether it is this one, and not one of an earlier try."""
        where, number = self._where, self._plan.next_number
        group = CopiedGroup(where.place, where.epoch, self._plan.base, self._fence, first_record, entries, notes)
        data = encoded(group)
        unsure, self._unsure = self._unsure, True
        try:
            self._store.put_if_absent(where.group(number), data)
            if unsure and self._where.numbers(number):
                raise self._overtaken()
        except ConflictError:
            found = self._store.get(where.group(number), bytes_max=OBJECT_BYTES_MAX)
            if found is None:
                raise self._overtaken() from None
            if found.data != data:
                earlier = decoded(found.data, CopiedGroup, where.group(number))
                if (earlier.place, earlier.epoch) != (where.place, where.epoch):
                    raise self._overtaken() from None
                group, data = earlier, found.data
                with self._lock:
                    self._plan.uploaded(Placed(number, earlier, len(found.data)))
                return False
        self._unsure = False
        with self._lock:
            self._plan.uploaded(Placed(number, group, len(data)))
        return True

    def _overtaken(self) -> OSError:
        why = "another gateway of the fleet has opened this journal, and this one can add nothing to it"
        return OSError(errno.EPERM, f"{self._where.folder} in {self._store}: {why}")

    # ------------------------------------------------------------------------------------------------------- deleting

    def tidy(self, released_record: int, oldest_key_wall_s: float) -> None:
        """Delete objects that nobody needs.

        Args:
            released_record: everything before it is committed.
            oldest_key_wall_s: no key from before is remembered.

        Raises:
            OSError: not now; call it again.
        """
        with in_os_errors():
            with self._lock:
                retired = self._plan.retired(released_record)
            if retired is not None:
                name = self._where.kept(retired.last)
                if retired.kept is not None:
                    self._store.put(name, encoded(retired.kept))
                with self._lock:
                    self._plan.stored(retired, name)
            self._delete(oldest_key_wall_s)

    def _delete(self, oldest_key_wall_s: float) -> None:
        while True:
            with self._lock:
                number, kept = self._plan.next_to_delete(), self._plan.next_kept_to_delete(oldest_key_wall_s)
            if number is not None:
                self._store.delete(self._where.group(number))
                with self._lock:
                    self._plan.deleted()
            elif kept is not None:
                self._store.delete(kept)
                with self._lock:
                    self._plan.deleted_kept()
            else:
                return


def _holds_records(folder: Path) -> bool:
    if not folder.is_dir():
        return False
    return any(part.first_record > 0 or part.size_bytes > SEGMENT_HEAD_BYTES for part in segments_in(folder))


def _groups(entries: Iterator[JournalEntry]) -> Iterator[list[JournalEntry]]:
    """Yield the entries in groups of the size of an object."""
    group: list[JournalEntry] = []
    for entry in entries:
        group.append(entry)
        if sum(len(entry.body) for entry in group) >= GROUP_BYTES_MAX:
            yield group
            group = []
    if group:
        yield group


def _entries(files: JournalFiles) -> Iterator[JournalEntry]:
    """Yield the appends that are on disk."""
    ends = [*(segment.first_record for segment in files.segments[1:]), files.next_record]
    for segment, end in zip(files.segments, ends, strict=True):
        if segment.first_record == end:
            continue
        with closing(SegmentReader(segment)) as reader:
            yield from map(_entry, reader.frames(SEGMENT_HEAD_BYTES, end))


def _entry(frame: PlacedFrame) -> JournalEntry:
    body, head = frame.body, frame.head
    topics = body.topics * (head.count if len(body.topics) == 1 else 1)
    key = SeenKey(body.key, body.digest, head.count, head.wall_s) if body.key else None
    return JournalEntry(
        encode_body(body.records, key=body.key, digest=body.digest, topics=topics), head.count, head.wall_s, key
    )
