"""The copy of a journal in an object store: what its objects hold, which are needed, which can go. No I/O.

The objects are numbered from 1 without a gap. An object replaces the records of the one before it from its own first
record on: so an append that failed after its upload does not count. See docs/decisions/0100.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, TypeVar

import msgspec

from gateway.journal.files import JournalEntry
from gateway.journal.keys import KEYS_MAX, SeenKey
from infra.statefiles import StateError

# A fail-over reads as many objects too many at most.
_BATCH: Final = 64
_BATCH_BYTES: Final = 16 << 20
OBJECTS_MAX: Final = 20_000
"""With so many objects that are still needed, the journal is full."""
FENCES_MAX: Final = 1000
_KEYS_TOGETHER: Final = 4096
_CRC_BYTES: Final = 4


class CopiedGroup(msgspec.Struct, frozen=True, array_like=True):
    """The content of one object: appends that were uploaded together, perhaps none.

    Attributes:
        place: names the state_dir of the gateway that wrote it.
        epoch: with which that gateway opened the query.
        base: objects before this number are not needed, as of this object.
        fence: number of the first object of the same writer.
        first_record: number of the first record.
        entries: the appends.
        notes: what receivers noted with them, by name; each replaces an earlier one of its name.
        fences: of the first object of a writer: those of earlier writers.
    """

    place: str
    epoch: int
    base: int
    fence: int
    first_record: int
    entries: list[JournalEntry] = []
    notes: dict[str, bytes] = {}
    fences: list[int] = []

    @property
    def end_record(self) -> int:
        """Number of the record after the last one."""
        return self.first_record + sum(entry.count for entry in self.entries)


class KeptKeys(msgspec.Struct, frozen=True, array_like=True):
    """What outlives the objects it came with: idempotency keys, and the latest notes."""

    keys: list[SeenKey]
    notes: dict[str, bytes]


C = TypeVar("C", CopiedGroup, KeptKeys)


def encoded(content: CopiedGroup | KeptKeys) -> bytes:
    """Return the bytes of an object."""
    data = msgspec.msgpack.encode(content)
    return zlib.crc32(data).to_bytes(_CRC_BYTES, "little") + data


def decoded(data: bytes, kind: type[C], name: str) -> C:
    """Return the content of an object.

    Raises:
        StateError: it is damaged.
    """
    try:
        if int.from_bytes(data[:_CRC_BYTES], "little") != zlib.crc32(data[_CRC_BYTES:]):
            raise StateError(f"the object {name} of the journal's copy is damaged: restore it in the object store")
        return msgspec.msgpack.decode(memoryview(data)[_CRC_BYTES:], type=kind)
    except msgspec.DecodeError as error:
        raise StateError(
            f"the object {name} of the journal's copy cannot be read ({error}): update this gateway to the version of "
            "the one that wrote it"
        ) from error


@dataclass(frozen=True, slots=True)
class Placed:
    """An object of the copy: its number, its content, and its size."""

    number: int
    group: CopiedGroup
    size_bytes: int


def counted(objects: Iterable[Placed]) -> Iterator[tuple[Placed, bool]]:
    """Yield the objects, each with whether its records count: not if the next object replaces them.

    Raises:
        StateError: an object is missing.
    """
    before: Placed | None = None
    for placed in objects:
        if before is not None:
            first, end = placed.group.first_record, before.group.end_record
            if placed.number != before.number + 1 or first > end:
                raise StateError(
                    f"between object {before.number} and {placed.number} of the journal's copy an object is missing: "
                    "restore it in the object store"
                )
            yield before, first == end
        before = placed
    if before is not None:
        yield before, True


@dataclass(frozen=True, slots=True)
class _Held:
    number: int
    end_record: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Retired:
    """Objects that are not needed any more.

    Attributes:
        last: number of the last one.
        kept: what must be stored before they can go; None for nothing.
    """

    last: int
    kept: KeptKeys | None


class CopyPlan:
    """Which objects there are and what happens to them next.

    Args:
        base: see ``CopiedGroup``.
        next_number: of the next object.
        fences: objects that are never deleted: each makes the next write of an earlier writer fail.
    """

    def __init__(self, base: int, next_number: int, fences: Sequence[int]) -> None:
        self.base = base
        self.next_number = next_number
        self.fences = frozenset(fences)
        self.notes: dict[str, bytes] = {}
        self._notes_before: dict[str, bytes] = {}
        self._stored_base = base
        self._held: deque[_Held] = deque()
        # As many as are remembered at all; of more, the oldest are forgotten.
        self._keys: deque[tuple[int, SeenKey]] = deque(maxlen=KEYS_MAX)
        self._gone: deque[int] = deque()
        self._kept: deque[tuple[str, float]] = deque()
        self._kept_keys: list[SeenKey] = []
        self._spent_kept: deque[str] = deque()

    @property
    def full(self) -> bool:
        """Whether there are as many objects as are allowed."""
        return len(self._held) >= OBJECTS_MAX

    @property
    def object_count(self) -> int:
        """How many objects hold what is still needed, or was not retired yet."""
        return len(self._held)

    def uploaded(self, placed: Placed) -> None:
        """Note that the store has the next object."""
        number, group = placed.number, placed.group
        if self._held and group.first_record < self._held[-1].end_record:
            self._replace_last(group.first_record)
        self._held.append(_Held(number, group.end_record, placed.size_bytes))
        self._keys.extend((number, entry.key) for entry in group.entries if entry.key is not None)
        self._notes_before, self.notes = self.notes, self.notes | group.notes
        self._stored_base = max(self._stored_base, group.base)
        self.next_number = number + 1

    def _replace_last(self, end_record: int) -> None:
        """Forget the keys and notes that came with the last object: its appends failed."""
        last = self._held.pop()
        self._held.append(_Held(last.number, end_record, last.size_bytes))
        self.notes = self._notes_before
        while self._keys and self._keys[-1][0] == last.number:
            self._keys.pop()

    def retired(self, released_record: int) -> Retired | None:
        """Return the objects with nothing but records before ``released_record``, if they are worth the requests."""
        last, count, total_bytes = 0, 0, 0
        # The last one stays: it shows where the copy ends.
        for held in islice(self._held, max(0, len(self._held) - 1)):
            if held.end_record > released_record:
                break
            last, count, total_bytes = held.number, count + 1, total_bytes + held.size_bytes
        if count < _BATCH and total_bytes < _BATCH_BYTES:
            return None
        keys = [key for number, key in self._keys if number <= last]
        if not keys and not self.notes:
            return Retired(last, None)
        together = self._kept_keys if len(self._kept_keys) < _KEYS_TOGETHER else []
        return Retired(last, KeptKeys([*together, *keys], dict(self.notes)))

    def stored(self, retired: Retired, name: str) -> None:
        """Note that the store has what must be kept of ``retired``; the next object declares the rest as not needed.

        Args:
            retired: as returned.
            name: of the object with what is kept.
        """
        while self._held[0].number <= retired.last:
            self._gone.append(self._held.popleft().number)
        while self._keys and self._keys[0][0] <= retired.last:
            self._keys.popleft()
        self.base = self._held[0].number
        if retired.kept is not None:
            if self._kept and len(self._kept_keys) < _KEYS_TOGETHER:
                self._spent_kept.append(self._kept.pop()[0])
            self.found_kept(name, retired.kept)

    def found_kept(self, name: str, kept: KeptKeys) -> None:
        """Note that the store has ``kept``, later than all before."""
        self._kept_keys = kept.keys
        self.notes = kept.notes | self.notes
        self._kept.append((name, max((key.wall_s for key in kept.keys), default=0.0)))

    def found_unneeded(self, numbers: Iterable[int]) -> None:
        """Note objects before ``base`` that a gateway had no time to delete."""
        self._gone.extend(numbers)

    def next_to_delete(self) -> int | None:
        """Return the next object that can be deleted: the store says that it is not needed."""
        while self._gone and self._gone[0] in self.fences:
            self._gone.popleft()
        return self._gone[0] if self._gone and self._gone[0] < self._stored_base else None

    def deleted(self) -> None:
        """Note that ``next_to_delete`` is deleted."""
        self._gone.popleft()

    def next_kept_to_delete(self, oldest_wall_s: float) -> str | None:
        """Return the next kept keys that can be deleted: joined with later ones, or all before ``oldest_wall_s``."""
        if self._spent_kept:
            return self._spent_kept[0]
        # The last ones stay: they hold the notes.
        return self._kept[0][0] if len(self._kept) > 1 and self._kept[0][1] < oldest_wall_s else None

    def deleted_kept(self) -> None:
        """Note that ``next_kept_to_delete`` is deleted."""
        (self._spent_kept or self._kept).popleft()
