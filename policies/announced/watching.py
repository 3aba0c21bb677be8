"""Watches announced load: what is expected of the next occurrence, and whether it comes."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from policies.announced.experience import CameTrue, Experience, Prediction
from policies.announcement import Announcement, Occurrence

_NEAR_PART = 0.25
"""Load that comes so much of its length earlier or later than announced still counts as announced."""
_BINS = 20
_RECENT = 2
"""Once half of its length is over, the highest of the last so many bins says what is needed."""
_JUDGED_PART = 0.5
"""After so much of its length, what came counts more than what was announced."""
_RISEN = 0.25
"""Load has come when the rate has risen by this part of the expected rise."""


class Coming(NamedTuple):
    """An occurrence that is expected, or that is there.

    Attributes:
        name: its announcement.
        occurrence: as announced.
        from_s: from when VMs should serve (s since 1970).
        until_s: until when.
        rate: events per second at its height.
        has_come: whether its load is there.
        words: how earlier ones came true.
    """

    name: str
    occurrence: Occurrence
    from_s: float
    until_s: float
    rate: Prediction
    has_come: bool
    words: str


class Watch:
    """Watches one announcement.

    Args:
        announcement: what was said.
        slot_s: length of a slot.
    """

    def __init__(self, announcement: Announcement, slot_s: float) -> None:
        self.announcement = announcement
        self._slot_s = slot_s
        self._experience = Experience()
        self._seen: _Seen | None = None
        self._judged_s = 0.0
        """When the last occurrence that is over had begun."""

    def observe(self, wall_s: float, rate: float, usual: float) -> None:
        """Take a slot that ended at ``wall_s``, its events per second, and the usual rate before."""
        if self._seen is not None and wall_s > self._seen.near_until_s:
            self._experience.add(self._seen.came_true)
            self._judged_s, self._seen = self._seen.occurrence.begins_s, None
        if self._seen is None and (next_one := self._next(wall_s, 0.0)) is not None:
            level = self.announcement.level(next_one, usual)
            expected = level * self._experience.ratio().mean
            self._seen = _Seen(next_one, level, usual + _RISEN * (expected - usual), self._slot_s)
        if self._seen is not None:
            self._seen.observe(wall_s, rate)

    @property
    def is_near(self) -> bool:
        """Return whether load may be there because of an occurrence."""
        return self._seen is not None

    def coming(self, wall_s: float, within_s: float, usual: float) -> Coming | None:
        """Return the occurrence for which VMs should serve now or within a time; None without one."""
        if not self._experience.believed:
            return None
        seen = self._seen
        found = seen.occurrence if seen is not None else self._next(wall_s, within_s)
        if found is None:
            return None
        ratio, late = self._experience.ratio(), self._experience.late_s(found.lasts_s)
        from_s = found.begins_s + late.low
        until_s = found.ends_s + max(0.0, late.high)
        level = self.announcement.level(found, usual) if seen is None else seen.level
        rate = Prediction(level * ratio.low, level * ratio.mean, level * ratio.high)
        has_come = seen is not None and seen.came_s is not None
        if seen is not None and has_come:
            real = max(seen.recent) if seen.is_judged(wall_s, 0.0) else max(seen.height, rate.mean)
            rate = Prediction(min(rate.low, real), real, real)
        elif seen is not None and seen.is_judged(wall_s, max(0.0, late.high)):
            return None
        if not from_s - within_s <= wall_s < until_s:
            return None
        return Coming(self.announcement.name, found, from_s, until_s, rate, has_come, self._experience.words)

    def _next(self, wall_s: float, within_s: float) -> Occurrence | None:
        """Return the first occurrence that is near or that begins within a time, and is not judged."""
        until_s = wall_s + within_s
        for each in self.announcement.between(wall_s, until_s + _NEAR_PART * self._longest_s):
            if each.begins_s > self._judged_s and each.begins_s - _NEAR_PART * each.lasts_s <= until_s:
                return each
        return None

    @property
    def _longest_s(self) -> float:
        of = self.announcement
        return max((each.lasts_s for each in of.occurrences), default=of.lasts_s)


class _Seen:
    """The rates near an occurrence, in bins of a twentieth of its length.

    Args:
        occurrence: as announced.
        level: its announced height.
        risen: the rate from which on its load has come.
        slot_s: length of a slot.
    """

    def __init__(self, occurrence: Occurrence, level: float, risen: float, slot_s: float) -> None:
        self.occurrence = occurrence
        self.level = level
        self.came_s: float | None = None
        self.height = 0.0
        self.recent: deque[float] = deque(maxlen=_RECENT)
        self._risen = risen
        self._slot_s = slot_s
        self._bin_s = max(slot_s, occurrence.lasts_s / _BINS)
        self._events = self._covered_s = 0.0

    @property
    def near_until_s(self) -> float:
        """Return until when its load may be there."""
        return self.occurrence.ends_s + _NEAR_PART * self.occurrence.lasts_s

    def observe(self, wall_s: float, rate: float) -> None:
        """Add a slot that ended at ``wall_s``."""
        self._events += rate * self._slot_s
        self._covered_s += self._slot_s
        if self._covered_s < self._bin_s * (1 - 1e-9):
            return
        mean = self._events / self._covered_s
        self.height = max(self.height, mean)
        self.recent.append(mean)
        if self.came_s is None and mean >= self._risen:
            self.came_s = wall_s - self._covered_s / 2
        self._events = self._covered_s = 0.0

    def is_judged(self, wall_s: float, late_s: float) -> bool:
        """Return whether what came counts more than what was announced."""
        begun_s = self.occurrence.begins_s + late_s if self.came_s is None else self.came_s
        return wall_s >= begun_s + _JUDGED_PART * self.occurrence.lasts_s

    @property
    def came_true(self) -> CameTrue:
        """Return what the occurrence was in the end."""
        if self.came_s is None or self.level <= 0:
            return CameTrue(0.0)
        return CameTrue(self.height / self.level, self.came_s - self.occurrence.begins_s)
