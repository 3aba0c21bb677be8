"""The correct answers of the query about lasting bus delays: all reports are read before anything is judged.

It shares no code with the query but the type of a report, and measures distances on the sphere.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from math import asin, cos, radians, sin, sqrt
from typing import Any

from engines.buses.traces import BusReport


def windows_of(reports: Iterable[BusReport]) -> list[dict[str, Any]]:
    """Return the rows of the query, by window and area.

    A window of an area has a row if a bus was late by 2 minutes in all its reports there, at least two, and if a later
    report of the area says that the window is complete.
    """
    windows: dict[tuple[str, int], list[BusReport]] = {}
    for each in reports:
        windows.setdefault((each.area, int(each.at.timestamp()) // 300), []).append(each)
    last = dict(sorted(windows))
    rows = []
    for (area, number), found in windows.items():
        buses = {each.bus for each in found if each.bus is not None}
        late = {bus for bus in buses if always_late([each for each in found if each.bus == bus])}
        close = {bus for bus in late if any(near(one, found, late) for one in found if one.bus == bus)}
        if late and number < last[area]:
            opens = datetime.fromtimestamp(number * 300, UTC)
            alarm = len(close) > 10
            rows.append({"opens": opens, "area": area, "late": len(late), "close": len(close), "alarm": alarm})
    return sorted(rows, key=lambda row: (row["opens"], row["area"]))


def always_late(found: list[BusReport]) -> bool:
    return len(found) > 1 and min(each.delay_s or 0 for each in found) >= 120


def near(one: BusReport, found: list[BusReport], late: set[str]) -> bool:
    """Return whether another one of the late buses is within 10 m in the same 20 s."""
    instant = int(one.at.timestamp()) // 20
    others = [each for each in found if each.bus in late and each.bus != one.bus]
    return any(int(each.at.timestamp()) // 20 == instant and metres(one, each) < 10 for each in others)


def metres(one: BusReport, other: BusReport) -> float:
    """Return the distance on a sphere of the earth's mean radius (haversine)."""
    assert one.longitude is not None
    assert one.latitude is not None
    assert other.longitude is not None
    assert other.latitude is not None
    up, along = radians(other.latitude - one.latitude), radians(other.longitude - one.longitude)
    half = sin(up / 2) ** 2 + cos(radians(one.latitude)) * cos(radians(other.latitude)) * sin(along / 2) ** 2
    return 2 * 6_371_000 * asin(sqrt(half))
