"""Invariants of every simulated world."""

from __future__ import annotations


class BrokenPromiseError(AssertionError):
    """An invariant of every world is broken."""


class NeverAtRestError(BrokenPromiseError):
    """Events still wait long after the last one came: a mistake of ours, unless the load is too high for the hosts."""


def promise(kept: bool, what: str) -> None:
    """Raise unless an invariant holds.

    ``what`` is put together before it is known whether it is needed. Where a promise is seen to very often, raise the
    error instead, under an ``if``.

    Raises:
        BrokenPromiseError: it does not.
    """
    if not kept:
        raise BrokenPromiseError(what)
