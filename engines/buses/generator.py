"""Made-up buses for machines without traces: one of ten is late, and now and then a jam holds up those of one area.

Like Dublin's, a bus reports each 20 s where it is and how late it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from random import Random

from engines.buses.traces import AREA_DEGREES, BusReport, in_order, report
from engines.buses.windows import INSTANT_S, LATE_S

_FIRST = datetime(2013, 1, 31, 6, tzinfo=UTC)
_WEST, _SOUTH = -6.40, 53.30
_ROWS, _COLUMNS = 4, 6
_JAM_STEPS = 45
_JAMMED = 16
_JAM_DEGREES = 4e-5
"""Some 4 m: the buses of a jam stand close to one another."""


def generate_reports(count: int, seed: int, buses: int = 240) -> Iterator[BusReport]:
    """Yield about ``count`` reports by time, and what ends each area's last window; equal seeds give equal reports.

    Args:
        count: how many reports; the last round of all buses is complete.
        seed: of the random numbers.
        buses: how many there are.
    """
    yield from in_order(_rounds(-(-count // buses), buses, Random(seed)))  # noqa: S311  # no secret


def _rounds(rounds: int, buses: int, draw: Random) -> Iterator[BusReport]:
    jammed: dict[int, tuple[float, float]] = {}
    homes = [_somewhere(draw) for _ in range(buses)]
    for step in range(rounds):
        if step % _JAM_STEPS == 0:
            jammed = _jam(buses, draw)
        for bus in range(buses):
            at = _FIRST + timedelta(seconds=step * INSTANT_S + bus % INSTANT_S)
            longitude, latitude = homes[bus]
            delay_s = int(draw.gauss(0 if bus % 10 else 4 * LATE_S, LATE_S / 2))
            if bus in jammed:
                longitude, latitude = jammed[bus]
                delay_s = LATE_S + int(draw.expovariate(1 / 600))
            spread = _JAM_DEGREES if bus in jammed else AREA_DEGREES / 50
            place = (longitude + draw.gauss(0, spread), latitude + draw.gauss(0, spread))
            yield report(at, str(33_000 + bus), delay_s, *place)


def _jam(buses: int, draw: Random) -> dict[int, tuple[float, float]]:
    """Return where the buses of two jams are; often there are too few for an alarm."""
    jammed: dict[int, tuple[float, float]] = {}
    for _ in range(2):
        place = _somewhere(draw)
        jammed |= dict.fromkeys(draw.sample(range(buses), k=draw.randint(2, min(_JAMMED, buses))), place)
    return jammed


def _somewhere(draw: Random) -> tuple[float, float]:
    """Return a place in the middle of an area, so that a jam is in one area."""
    column, row = draw.randrange(_COLUMNS), draw.randrange(_ROWS)
    return _WEST + (column + 0.5) * AREA_DEGREES, _SOUTH + (row + 0.5) * AREA_DEGREES
