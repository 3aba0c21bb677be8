"""Reports of buses as one stream by time: readers of the traces of Dublin and Austin.

Dublin's have the delay of each bus. Austin's have none, and the trips of its timetable are not those of its traces. So
there the delay is how long a bus has been slower than a walker, which is long at the ends of lines and in jams.
"""

from __future__ import annotations

import csv
import gzip
import math
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO, TypeVar

import msgspec

from engines.buses.windows import WINDOW_S

SCHEMA_DDL = "at TIMESTAMP, area STRING, bus STRING, delay_s INT, longitude DOUBLE, latitude DOUBLE"

AREA_DEGREES = 0.02
"""The side of an area: about 2.2 km from south to north."""

_WALKING_M_PER_S = 1.5
_Line = TypeVar("_Line")
_Found = TypeVar("_Found")


class BusReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a bus reports, in the columns of ``SCHEMA_DDL``.

    Attributes:
        at: when, UTC.
        area: the part of the city in which it is.
        bus: the vehicle; None in a report that only makes time pass in its area.
        delay_s: how late it is.
        longitude: degrees, east positive.
        latitude: degrees, north positive.
    """

    at: datetime
    area: str
    bus: str | None = None
    delay_s: int | None = None
    longitude: float | None = None
    latitude: float | None = None


def read_dublin(path: Path) -> Iterator[BusReport]:
    """Yield the reports of a day in Dublin (Insight project) by time, and what ends each area's last window.

    Raises:
        ValueError: a line is no report; the message names file and line.
    """
    with _opened(path) as lines:
        found = [_read(path, number, _dublin, fields) for number, fields in enumerate(csv.reader(lines), 1)]
    yield from in_order(found)


def read_austin(path: Path) -> Iterator[BusReport]:
    """Yield the reports of a day in Austin (Capital Metro) by time, and what ends each area's last window.

    Raises:
        ValueError: a line is no report; the message names file and line.
    """
    with _opened(path) as lines:
        rows = csv.DictReader(lines)
        places = [_read(path, number, _austin, row) for number, row in enumerate(rows, 2) if row["longitude"]]
    fast: dict[str, datetime] = {}
    found = []
    for at, bus, speed, longitude, latitude in sorted(places):
        if bus not in fast or speed > _WALKING_M_PER_S:
            fast[bus] = at
        delay_s = int((at - fast[bus]).total_seconds())
        found.append(report(at, bus, delay_s, longitude, latitude))
    yield from in_order(found)


def in_order(reports: Iterable[BusReport]) -> Iterator[BusReport]:
    """Yield reports by time, and then for each area one without a bus, with which the last window ends."""
    found = sorted(reports, key=lambda each: (each.at, each.bus or ""))
    yield from found
    if found:
        end = datetime.fromtimestamp((int(found[-1].at.timestamp()) // WINDOW_S + 1) * WINDOW_S, UTC)
        for area in sorted({each.area for each in found}):
            yield BusReport(at=end, area=area)


def report(at: datetime, bus: str, delay_s: int, longitude: float, latitude: float) -> BusReport:
    """Return a report with the area of its place, named by the area's south-western corner."""
    west, south = (math.floor(degrees / AREA_DEGREES) * AREA_DEGREES for degrees in (longitude, latitude))
    return BusReport(
        at=at, area=f"{south:.2f},{west:.2f}", bus=bus, delay_s=delay_s, longitude=longitude, latitude=latitude
    )


def _dublin(fields: list[str]) -> BusReport:
    micros, *_, longitude, latitude, delay_s, _, bus, _, _ = fields
    at = datetime.fromtimestamp(int(micros) / 1e6, UTC)
    return report(at, bus, int(delay_s), float(longitude), float(latitude))


def _austin(row: dict[str, str]) -> tuple[datetime, str, float, float, float]:
    at = datetime.fromisoformat(row["timestamp"]).astimezone(UTC)
    return at, row["vehicle_id"], float(row["speed"] or 0), float(row["longitude"]), float(row["latitude"])


def _opened(path: Path) -> TextIO:
    return gzip.open(path, "rt", newline="") if path.suffix == ".gz" else path.open(newline="")


def _read(path: Path, number: int, read: Callable[[_Line], _Found], line: _Line) -> _Found:
    try:
        return read(line)
    except (ValueError, KeyError) as error:
        raise ValueError(f"{path}:{number}: not a report: {error}") from error
