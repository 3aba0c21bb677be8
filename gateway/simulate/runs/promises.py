"""Invariants of every simulated world."""

from __future__ import annotations


class BrokenPromiseError(AssertionError):
    """An invariant of every world is broken."""


def promise(kept: bool, what: str) -> None:
    """Raise unless an invariant holds.

    Raises:
        BrokenPromiseError: it does not.
    """
    if not kept:
        raise BrokenPromiseError(what)
