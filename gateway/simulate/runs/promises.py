"""What must hold in every world."""

from __future__ import annotations


class BrokenPromiseError(AssertionError):
    """Something that must never happen in any world has happened."""


def promise(kept: bool, what: str) -> None:
    """Raise unless a promise is kept.

    Raises:
        BrokenPromiseError: it is not.
    """
    if not kept:
        raise BrokenPromiseError(what)
