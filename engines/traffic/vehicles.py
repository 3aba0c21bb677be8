"""Made-up vehicles that pass two sensors, at the beginning and at the end of a no-passing stretch of 15 km.

As in the paper, they come as a Poisson process, most of them drive 60 km/h, and one of ten drives faster: up to
72 km/h, evenly distributed.
"""

from __future__ import annotations

from collections.abc import Iterator
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
    draw, now_s, found = Random(seed), 0.0, list[tuple[float, int, str]]()  # noqa: S311  # no secret
    for number in range(count):
        now_s += draw.expovariate(rate_per_s)
        speed = draw.uniform(1.0, _FASTEST) if draw.random() < _FAST_PART else 1.0
        vehicle = f"v{number:06d}"
        found += ((now_s, BEGIN, vehicle), (now_s + way_s / speed, END, vehicle))
    for at_s, position, vehicle in sorted(found):
        yield Passage(vehicle, position, _FIRST + timedelta(microseconds=round(at_s * 1e6)))
