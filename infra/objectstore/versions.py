"""A record in an object store that one writer at a time replaces; it needs only ``put_if_absent``.

Each version is an object of its own, ``<folder>/<number>``, and the highest number is the record. A writer creates the
number after the one that it has read; of two writers one succeeds. Old versions are deleted, so a writer that slept for
long may create a number that is free again. Therefore a writer that created a number looks for a higher one, which
shows that it was overtaken. The highest version is never deleted, and readers use only that one.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import Final

from infra.objectstore.base import ConflictError, ObjectStore, StoreRefusedError, StoreUnavailableError

_KEPT: Final = 16
_BYTES_MAX: Final = 16_000_000
_LOOKS: Final = 5
_PRUNED_MAX: Final = 10_000


@dataclass(frozen=True, slots=True)
class Version:
    """A version: its number, from 1, and content."""

    number: int
    data: bytes


class OvertakenError(Exception):
    """Another writer has written; ``latest`` is the newest version."""

    def __init__(self, latest: Version) -> None:
        self.latest = latest
        super().__init__(f"version {latest.number} exists")


class Versions:
    """The versions of one record. The methods block.

    Args:
        store: the object store.
        folder: the folder in it, for this record alone.
    """

    def __init__(self, store: ObjectStore, folder: str) -> None:
        self._store = store
        self._folder = folder

    def latest(self) -> Version | None:
        """Return the record, None if there is none.

        Raises:
            StoreUnavailableError: or StoreRefusedError.
        """
        for _ in range(_LOOKS):
            numbers = self._numbers(0)
            if not numbers:
                return None
            # A slow reader may find that the version was deleted meanwhile; then there are newer ones.
            found = self.at(numbers[-1])
            if found is not None:
                return found
        raise StoreUnavailableError(f"{self._folder}: versions are written faster than they can be read")

    def at(self, number: int) -> Version | None:
        """Return one version, None if it does not exist (yet, or any more)."""
        stored = self._store.get(self._name(number), bytes_max=_BYTES_MAX)
        return None if stored is None else Version(number, stored.data)

    def add(self, number: int, data: bytes) -> None:
        """Make ``data`` the record, as version ``number``, which follows the one that was read.

        Args:
            number: one more than the number that was read; 1 for the first.
            data: must differ from the data of every other writer, and from this writer's at other times.

        Raises:
            OvertakenError: another writer was faster, so this is not the record.
            StoreUnavailableError: it may be the record now, or become it later: call again with the same arguments, or
                with other data, to find out.
            StoreRefusedError: the store refuses this until something is corrected.
        """
        try:
            self._store.put_if_absent(self._name(number), data)
        except ConflictError:
            found = self.at(number)
            if found is None or found.data != data:
                raise OvertakenError(self._sure_latest()) from None
        if self._numbers(number):
            raise OvertakenError(self._sure_latest())

    def prune(self, number: int, kept: int = _KEPT) -> None:
        """Delete the version that is no longer needed once ``number`` is the record and so many are ``kept``."""
        if number > kept:
            self._store.delete(self._name(number - kept))

    def prune_all(self, number: int) -> None:
        """Delete all versions that are no longer needed once ``number`` is the record, a bounded number of them."""
        for old in islice(self._numbers(0), _PRUNED_MAX):
            if old > number - _KEPT:
                return
            self._store.delete(self._name(old))

    def _sure_latest(self) -> Version:
        latest = self.latest()
        if latest is None:
            raise StoreRefusedError(f"the versions in {self._folder} were deleted by another program: restore them")
        return latest

    def _name(self, number: int) -> str:
        return f"{self._folder}/{number:012d}"

    def _numbers(self, after: int) -> list[int]:
        names = self._store.list(f"{self._folder}/", after=self._name(after))
        stems = [name.rpartition("/")[2] for name in names]
        return [int(stem) for stem in stems if stem.isdigit()]
