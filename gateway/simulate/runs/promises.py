"""What must hold in every world."""

from __future__ import annotations


class BrokenPromiseError(AssertionError):
    """Something that must never happen in any world has happened."""


def promise(kept: bool, what: str) -> None:
    """Raise unless a promise is kept.

    ``what`` is put together before it is known whether it is needed. Where a promise is seen to very often, raise the
    error instead, under an ``if``.

    Raises:
        BrokenPromiseError: it is not.
    """
    if not kept:
        raise BrokenPromiseError(what)
