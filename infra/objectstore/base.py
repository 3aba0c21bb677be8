"""The interface of every object store.

A conditional write decides between writers, so its outcome matters. A write that failed with ``StoreUnavailableError``
may have succeeded, or may still succeed later. The writer's own earlier try, whose answer was lost, may cause a
``ConflictError``. In both cases read what is stored before you rely on anything; ``infra.objectstore.versions`` does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Protocol

_NAME: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*")
_NAME_LENGTH_MAX: Final = 512


class StoreUnavailableError(Exception):
    """The store does not answer now (a timeout, a server error, throttling); whether a write succeeded is unknown."""


class StoreRefusedError(Exception):
    """The store refuses this until something is corrected (no bucket, no access); the message says what to do."""


class ConflictError(Exception):
    """The condition of a write does not hold, perhaps because of an earlier try of the same write."""


class ReplacedError(Exception):
    """An object that others wrote is gone, or is not the one that was listed."""


@dataclass(frozen=True, slots=True)
class Stored:
    """An object's content, and the etag that identifies it in ``put_if_match``."""

    data: bytes
    etag: str


@dataclass(frozen=True, slots=True)
class ListedObject:
    """An object that others wrote, when it was listed; its name may have any characters."""

    name: str
    size_bytes: int
    etag: str


class ForeignObjects(Protocol):
    """Objects that other programs write, for reading. The methods block.

    Every method raises StoreUnavailableError (after a bounded number of retries) and StoreRefusedError.
    """

    def listed(self) -> Iterator[ListedObject]:
        """Yield all objects in the order of their names; reads page after page."""
        ...

    def pieces(self, found: ListedObject, *, start: int = 0, end: int | None = None) -> Iterator[bytes]:
        """Yield the content from byte ``start`` to before ``end`` (None: all the rest), in pieces of at most 256 KiB.

        Raises:
            ReplacedError: it is gone, or is another one than was listed.
        """
        ...


class ObjectStore(Protocol):
    """Objects by name. The methods block, so call them in threads; several calls may run at a time.

    Every method raises StoreUnavailableError (after a bounded number of retries) and StoreRefusedError.
    """

    def get(self, name: str, *, bytes_max: int) -> Stored | None:
        """Return an object, None if it does not exist; StoreRefusedError if it is larger than ``bytes_max``."""
        ...

    def put(self, name: str, data: bytes) -> str:
        """Write or replace an object, and return its etag."""
        ...

    def put_if_absent(self, name: str, data: bytes) -> str:
        """Write an object that does not exist yet, and return its etag; ConflictError if it exists."""
        ...

    def put_if_match(self, name: str, data: bytes, etag: str) -> str:
        """Replace the object with this etag, and return the new etag; ConflictError if its etag differs."""
        ...

    def list(self, prefix: str, *, after: str = "") -> Iterator[str]:
        """Yield the names that begin with ``prefix`` and sort after ``after``, in order; reads page after page."""
        ...

    def delete(self, name: str) -> None:
        """Delete an object; nothing happens if it does not exist."""
        ...


def checked_name(name: str) -> str:
    """Return ``name`` if it is valid in every store.

    Raises:
        ValueError: it is not.
    """
    if len(name) > _NAME_LENGTH_MAX or _NAME.fullmatch(name) is None:
        raise ValueError(
            f'"{name}" is not a valid object name: use parts of letters, digits, dots and dashes, joined by /'
        )
    return name
