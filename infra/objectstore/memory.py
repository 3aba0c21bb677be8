"""Objects in memory: for simulations, and for tests."""

from __future__ import annotations

import hashlib
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from itertools import takewhile
from threading import RLock

from infra.objectstore.base import ConflictError, Stored, StoreRefusedError, checked_name


class MemoryStore:
    """An ``ObjectStore`` in this process."""

    def __init__(self) -> None:
        self._turn = RLock()
        self._objects: dict[str, bytes] = {}
        self._names: list[str] = []

    def get(self, name: str, *, bytes_max: int) -> Stored | None:
        """See ``ObjectStore.get``."""
        data = self._objects.get(checked_name(name))
        if data is None:
            return None
        if len(data) > bytes_max:
            raise StoreRefusedError(f"{name} is larger than {bytes_max} bytes: another program wrote it")
        return Stored(data, _etag(data))

    def put(self, name: str, data: bytes) -> str:
        """See ``ObjectStore.put``."""
        with self._turn:
            if checked_name(name) not in self._objects:
                insort(self._names, name)
            self._objects[name] = data
            return _etag(data)

    def put_if_absent(self, name: str, data: bytes) -> str:
        """See ``ObjectStore.put_if_absent``."""
        with self._turn:
            if name in self._objects:
                raise ConflictError(f"{name}: another writer was first")
            return self.put(name, data)

    def put_if_match(self, name: str, data: bytes, etag: str) -> str:
        """See ``ObjectStore.put_if_match``."""
        with self._turn:
            if name not in self._objects or _etag(self._objects[name]) != etag:
                raise ConflictError(f"{name}: another writer was first")
            return self.put(name, data)

    def list(self, prefix: str, *, after: str = "") -> Iterator[str]:
        """See ``ObjectStore.list``."""
        with self._turn:
            at = max(bisect_left(self._names, prefix), bisect_right(self._names, after))
            found = [*takewhile(lambda name: name.startswith(prefix), self._names[at:])]
        yield from found

    def delete(self, name: str) -> None:
        """See ``ObjectStore.delete``."""
        with self._turn:
            if self._objects.pop(checked_name(name), None) is not None:
                del self._names[bisect_left(self._names, name)]


def _etag(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
