"""Who overtook whom, from the whole list of passages. An oracle."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Protocol


class Passage(Protocol):
    """A vehicle passes a sensor."""

    @property
    def vehicle(self) -> str: ...
    @property
    def position(self) -> int: ...
    @property
    def at(self) -> datetime: ...


def overtakings(passages: Iterable[Passage]) -> list[tuple[str, str, datetime]]:
    """Return the slow vehicle, the fast one, and when that one left, in order of when the slow one left."""
    came, left = dict[str, datetime](), dict[str, datetime]()
    for each in passages:
        (came if each.position == 1 else left)[each.vehicle] = each.at
    found = []
    for slow in sorted(left, key=left.__getitem__):
        others = sorted(fast for fast in left if came[slow] < came[fast] and left[fast] < left[slow])
        found += [(slow, fast, left[fast]) for fast in others]
    return found
