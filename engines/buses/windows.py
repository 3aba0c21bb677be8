"""What the reports of one window of one area say: which buses were late all the time, and which of them came close.

The rule (elastic CEP by prediction, section IV): more than 10 buses have high delays all the time, and were within 10 m
at some instant inside the window. Here a bus is late if all its reports of a window say so, at least two. Of the late
buses of an area those count that were within 10 m of another one. An instant is 20 s, the time between two reports.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from itertools import combinations
from typing import NamedTuple

WINDOW_S = 300
INSTANT_S = 20
LATE_S = 120
"""A bus that is at least so late has a high delay."""
REPORTS_LEAST = 2
WITHIN_M = 10.0
BUSES_MOST = 10
"""With more buses there is an alarm."""

_EARTH_M = 6_371_000.0


class Sighting(NamedTuple):
    """A report within its window.

    Attributes:
        at_s: seconds since 1970.
        bus: the vehicle.
        delay_s: how late it is.
        longitude: degrees.
        latitude: degrees.
    """

    at_s: int
    bus: str
    delay_s: int
    longitude: float
    latitude: float


class Judged(NamedTuple):
    """What a window of an area says.

    Attributes:
        late: how many buses were late all the time.
        close: how many of them were within 10 m of another one.
        alarm: whether these are more than 10.
    """

    late: int
    close: int
    alarm: bool


def window_of(at_s: int) -> int:
    """Return the beginning of the window of a time, seconds since 1970."""
    return at_s - at_s % WINDOW_S


def judge(window: Iterable[Sighting]) -> Judged:
    """Return what the reports of one window of one area say; their order does not matter."""
    by_bus: dict[str, list[Sighting]] = defaultdict(list)
    for each in window:
        by_bus[each.bus].append(each)
    late = [
        reports
        for reports in by_bus.values()
        if len(reports) >= REPORTS_LEAST and all(each.delay_s >= LATE_S for each in reports)
    ]
    instants: dict[int, list[Sighting]] = defaultdict(list)
    for each in (each for reports in late for each in reports):
        instants[each.at_s // INSTANT_S].append(each)
    close = {bus for there in instants.values() for bus in _close(there)}
    return Judged(len(late), len(close), len(close) > BUSES_MOST)


def _close(there: Iterable[Sighting]) -> set[str]:
    pairs = combinations(there, 2)
    near = [(one, other) for one, other in pairs if one.bus != other.bus and _distance_m(one, other) < WITHIN_M]
    return {each.bus for pair in near for each in pair}


def _distance_m(one: Sighting, other: Sighting) -> float:
    """Return the distance on a plane that touches the earth there: for such short ways it is the one on the sphere."""
    east = math.radians(one.longitude - other.longitude) * math.cos(math.radians((one.latitude + other.latitude) / 2))
    return _EARTH_M * math.hypot(east, math.radians(one.latitude - other.latitude))
