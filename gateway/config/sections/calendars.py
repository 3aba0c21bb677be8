"""Reads the times of an iCalendar file (RFC 5545)."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo

from policies.announcement import Occurrence

_BYTES_MOST: Final = 10 * 2**20
_MOST: Final = 10_000
_AHEAD: Final = timedelta(days=366)
_BACK: Final = timedelta(days=7)


def occurrences_of(path: Path, zone: str, now: datetime) -> tuple[Occurrence, ...]:
    """Return when the events of a calendar take place, from a week ago until a year ahead, by time. Blocks.

    Args:
        path: of the file.
        zone: the time zone of times without one, and of whole days.
        now: with its zone.

    Raises:
        ValueError: it cannot be read; says why, and what to do.
    """
    import recurring_ical_events
    from icalendar import Calendar

    text = _bytes_of(path)
    try:
        events = recurring_ical_events.of(Calendar.from_ical(text)).between(now - _BACK, now + _AHEAD)
    except (ValueError, KeyError, IndexError, TypeError) as error:
        # What these libraries raise for text that is no calendar, or for an event without a beginning.
        raise ValueError(f"{path} is no iCalendar file ({error}): export it again as .ics") from error
    if len(events) > _MOST:
        raise ValueError(f"{path} has {len(events)} events within a year: a calendar of at most {_MOST} is followed")
    found = [Occurrence(_wall_s(each.start, zone), _wall_s(each.end, zone)) for each in events]
    if (endless := next((each for each in found if each.lasts_s <= 0), None)) is not None:
        begins = datetime.fromtimestamp(endless.begins_s, UTC)
        raise ValueError(f"{path} has an event without a length, at {begins:%Y-%m-%d %H:%M} UTC: give it an end")
    return tuple(sorted(found, key=lambda each: each.begins_s))


def _bytes_of(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            text = file.read(_BYTES_MOST + 1)
    except OSError as error:
        raise ValueError(f"{path} cannot be read ({error.strerror}): check the path") from error
    if len(text) > _BYTES_MOST:
        raise ValueError(f"{path} is larger than 10 MiB: give a calendar of the announced load only")
    return text


def _wall_s(at: date, zone: str) -> float:
    """Return seconds since 1970; a day begins at its midnight."""
    when = at if isinstance(at, datetime) else datetime(at.year, at.month, at.day)  # noqa: DTZ001 -- it gets its zone below
    return (when if when.tzinfo else when.replace(tzinfo=ZoneInfo(zone))).astimezone(UTC).timestamp()
