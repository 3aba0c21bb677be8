"""Announcements of load, and when they say that it comes. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import takewhile
from zoneinfo import ZoneInfo

from cronsim import CronSim


@dataclass(frozen=True, slots=True)
class Occurrence:
    """One time at which announced load comes.

    Attributes:
        begins_s: its begin, in seconds since 1970.
        ends_s: its end.
        rate: events per second at its height; None: as the announcement says.
    """

    begins_s: float
    ends_s: float
    rate: float | None = None

    @property
    def lasts_s(self) -> float:
        """Return its length."""
        return self.ends_s - self.begins_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Announcement:
    """What an operator says of a load.

    Attributes:
        name: as ``why`` shows it.
        occurrences: fixed times.
        every: a cron expression for when it begins; empty if its times are fixed.
        zone: the time zone of ``every``, by its IANA name.
        lasts_s: with ``every``: how long it lasts.
        rate: events per second at its height; None if ``factor`` says it.
        factor: its height as a multiple of the rate before.
    """

    name: str
    occurrences: tuple[Occurrence, ...] = ()
    every: str = ""
    zone: str = "UTC"
    lasts_s: float = 0.0
    rate: float | None = None
    factor: float = 1.0

    def level(self, occurrence: Occurrence, usual: float) -> float:
        """Return the announced rate (events/s) at the height of an occurrence, if ``usual`` came before."""
        rate = self.rate if occurrence.rate is None else occurrence.rate
        return self.factor * usual if rate is None else rate

    def between(self, from_s: float, to_s: float) -> Iterator[Occurrence]:
        """Yield the occurrences that end after ``from_s`` and begin before ``to_s`` (s since 1970)."""
        if self.every:
            since = datetime.fromtimestamp(from_s - self.lasts_s, ZoneInfo(self.zone))
            times = (begin.timestamp() for begin in CronSim(self.every, since))
            for begins_s in takewhile(lambda at_s: at_s < to_s, times):
                yield Occurrence(begins_s, begins_s + self.lasts_s)
        yield from (each for each in self.occurrences if each.ends_s > from_s and each.begins_s < to_s)
