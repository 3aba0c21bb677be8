"""What every object store offers.

A conditional write decides between writers, so its outcome matters. A write that failed with ``StoreUnavailableError``
may have got in, or may still get in later. A ``ConflictError`` may be caused by the writer's own earlier try, whose
answer was lost. In both cases read what is there before you believe anything; ``infra.objectstore.versions`` does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Protocol

_NAME: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*(/[A-Za-z0-9_-][A-Za-z0-9._-]*)*")
_NAME_LENGTH_MAX: Final = 512


class StoreUnavailableError(Exception):
    """The store does not answer now (a timeout, a server error, throttling); whether a write got in is unknown."""


class StoreRefusedError(Exception):
    """The store will not do this as things are (no bucket, no access); the message says what to do."""


class ConflictError(Exception):
    """The condition of a write does not hold, perhaps because of an earlier try of the same write."""


@dataclass(frozen=True, slots=True)
class Stored:
    """An object's content, and the etag that stands for it in ``put_if_match``."""

    data: bytes
    etag: str


class ObjectStore(Protocol):
    """Objects by name. The methods block: call them in threads; they may be called in several at a time.

    Every method raises StoreUnavailableError (after a bounded number of tries of its own) and StoreRefusedError.
    """

    def get(self, name: str, *, bytes_max: int) -> Stored | None:
        """Return an object, None if it is not there; StoreRefusedError if it is larger than ``bytes_max``."""
        ...

    def put(self, name: str, data: bytes) -> str:
        """Write an object, whatever is there, and return its etag."""
        ...

    def put_if_absent(self, name: str, data: bytes) -> str:
        """Write an object that is not there yet, and return its etag; ConflictError if it is there."""
        ...

    def put_if_match(self, name: str, data: bytes, etag: str) -> str:
        """Replace the object that ``etag`` stands for, and return the new etag; ConflictError if there is another."""
        ...

    def list(self, prefix: str, *, after: str = "") -> Iterator[str]:
        """Yield the names that begin with ``prefix`` and come after ``after``, sorted; asks for more as it goes."""
        ...

    def delete(self, name: str) -> None:
        """Delete an object; nothing happens if it is not there."""
        ...


def checked_name(name: str) -> str:
    """Return ``name`` if it is good for every store.

    Raises:
        ValueError: it is not.
    """
    if len(name) > _NAME_LENGTH_MAX or _NAME.fullmatch(name) is None:
        raise ValueError(
            f'"{name}" is not a valid object name: use parts of letters, digits, dots and dashes, joined by /'
        )
    return name
