"""The objects of a journal's copy in an object store. Blocks."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final

from gateway.connectors.fleetplace import FleetPlace
from gateway.journal.copyplan import CopiedGroup, KeptKeys, Placed, decoded
from infra.objectstore.base import StoreRefusedError, StoreUnavailableError
from infra.statefiles import StateError

OBJECT_BYTES_MAX: Final = 1 << 30
_AT_A_TIME: Final = 8


class ReplicaPlace(FleetPlace):
    """Where the copy of a journal is, and who writes it."""

    __slots__ = ()

    def group(self, number: int) -> str:
        """Return the name of an object with appends."""
        return f"{self.folder}/records/{number:012d}"

    def kept(self, number: int) -> str:
        """Return the name of an object with keys; a later owner's sorts behind that of an earlier one."""
        return f"{self.folder}/keys/{number:012d}-{self.epoch:020d}"

    def numbers(self, after: int) -> list[int]:
        """Return the numbers of the objects with appends after this one."""
        names = self.store.list(f"{self.folder}/records/", after=self.group(after))
        return [int(name.rpartition("/")[2]) for name in names]

    def placed(self, number: int) -> Placed:
        """Return an object with appends.

        Raises:
            StateError: it is damaged or missing.
        """
        name = self.group(number)
        stored = self.store.get(name, bytes_max=OBJECT_BYTES_MAX)
        if stored is None:
            raise StateError(f"the object {name} of the journal's copy is missing: restore it in {self.store}")
        return Placed(number, decoded(stored.data, CopiedGroup, name), len(stored.data))

    def all_placed(self, first: int, last: int) -> Iterator[Placed]:
        """Yield the objects from ``first`` to ``last``; reads some at a time."""
        with ThreadPoolExecutor(_AT_A_TIME) as pool:
            for begin in range(first, last + 1, _AT_A_TIME):
                yield from pool.map(self.placed, range(begin, min(begin + _AT_A_TIME, last + 1)))

    def all_kept(self) -> Iterator[tuple[str, KeptKeys]]:
        """Yield the objects with keys, oldest first."""
        for name in self.store.list(f"{self.folder}/keys/"):
            stored = self.store.get(name, bytes_max=OBJECT_BYTES_MAX)
            if stored is not None:
                yield name, decoded(stored.data, KeptKeys, name)


@contextmanager
def in_os_errors() -> Iterator[None]:
    """Translate the store's errors, so that a store is waited for as a disk is."""
    try:
        yield
    except StoreUnavailableError as error:
        raise OSError(errno.EAGAIN, f"the object store cannot be reached: {error}") from error
    except StoreRefusedError as error:
        raise OSError(errno.EACCES, f"the object store refuses: {error}") from error
