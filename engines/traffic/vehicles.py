"""Made-up vehicles that pass two sensors, at the beginning and at the end of a no-passing stretch of 15 km.

As in the paper, they come as a Poisson process, most of them drive 60 km/h, and one of ten drives faster: up to
72 km/h, evenly distributed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from random import Random

import msgspec

SCHEMA_DDL = "vehicle STRING, position INT, at TIMESTAMP"
BEGIN, END = 1, 2
"""The positions of the two sensors."""
WAY_S = 900.0
_FIRST = datetime(2026, 1, 5, 6, tzinfo=UTC)
_FAST_PART, _FASTEST = 0.1, 1.2


class Passage(msgspec.Struct, frozen=True):
    """A vehicle passes a sensor."""

    vehicle: str
    position: int
    at: datetime


def generate_passages(count: int, seed: int, rate_per_s: float = 0.5, way_s: float = WAY_S) -> Iterator[Passage]:
    """Yield the passages of ``count`` vehicles by time; equal seeds give equal passages.

    Args:
        count: how many vehicles.
        seed: of the random numbers.
        rate_per_s: how many come in a second on average.
        way_s: how long the stretch takes at the usual speed.
    """
    draw, now_s, came_s = Random(f"came {seed}"), 0.0, list[float]()  # noqa: S311  # no secret
    for _ in range(count):
        now_s += draw.expovariate(rate_per_s)
        came_s.append(now_s)
    yield from passages_of(came_s, seed, way_s)[0]


def passages_of(came_s: Sequence[float], seed: int, way_s: float = WAY_S) -> tuple[list[Passage], list[float]]:
    """Return the passages of vehicles by time, and the times in seconds.

    Args:
        came_s: when each vehicle passes the first sensor, ascending.
        seed: of their speeds.
        way_s: how long the stretch takes at the usual speed.
    """
    draw, found = Random(f"speed {seed}"), list[tuple[float, int, str]]()  # noqa: S311  # no secret
    for number, at_s in enumerate(came_s):
        speed = draw.uniform(1.0, _FASTEST) if draw.random() < _FAST_PART else 1.0
        vehicle = f"v{number:06d}"
        found += ((at_s, BEGIN, vehicle), (at_s + way_s / speed, END, vehicle))
    found.sort()
    passages = [
        Passage(vehicle, position, _FIRST + timedelta(microseconds=round(at_s * 1e6)))
        for at_s, position, vehicle in found
    ]
    return passages, [at_s for at_s, _, _ in found]
