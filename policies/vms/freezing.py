"""Times of the week in which no VM is launched or given back (freeze windows of a change calendar). Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo


@dataclass(frozen=True, slots=True, kw_only=True)
class FreezeWindow:
    """A window that comes each week.

    Attributes:
        days: on which it begins; 0 is Monday.
        begin_s: seconds after midnight.
        end_s: the same; if it is not after ``begin_s``, the window ends on the next day.
        zone: the time zone of days and times, by its IANA name.
    """

    days: tuple[int, ...]
    begin_s: int
    end_s: int
    zone: str = "UTC"

    def end_after(self, wall_s: float) -> float | None:
        """Return when the window that contains ``wall_s`` ends; None if none contains it. Both in s since 1970."""
        zone = ZoneInfo(self.zone)
        today = datetime.fromtimestamp(wall_s, zone).date()
        for day in (today, today - timedelta(days=1)):
            if day.weekday() not in self.days:
                continue
            midnight = datetime.combine(day, time(), zone)
            # Arithmetic within a zone is that of its clocks, also on a day with 23 or 25 hours.
            begin = midnight + timedelta(seconds=self.begin_s)
            end = midnight + timedelta(days=self.end_s <= self.begin_s, seconds=self.end_s)
            if begin.timestamp() <= wall_s < end.timestamp():
                return end.timestamp()
        return None


def frozen_until(windows: Iterable[FreezeWindow], wall_s: float) -> float | None:
    """Return when the last window that contains ``wall_s`` ends; None if none contains it. Both in s since 1970."""
    return max((end_s for window in windows if (end_s := window.end_after(wall_s)) is not None), default=None)


def why_frozen(windows: Iterable[FreezeWindow], wall_s: float) -> str:
    """Return until when no VM is launched or given back, in words; empty if they may be. ``wall_s``: s since 1970."""
    until_s = frozen_until(windows, wall_s)
    if until_s is None:
        return ""
    return f"no VM is launched or terminated before {datetime.fromtimestamp(until_s, UTC):%Y-%m-%d %H:%M} UTC"
