"""All announced load of a query, and how many VMs it needs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from policies.announced.watching import Coming, Watch
from policies.announcement import Announcement

_SLOTS = 10
"""The usual rate is the mean of about so many slots."""
_SAME = 0.05
"""A VM that would do less than this part of its work is not wanted."""


class Needed(NamedTuple):
    """What announced load needs.

    Attributes:
        wanted: VMs that should be launched by now, or serve.
        kept: VMs that are kept when their billing periods end.
        coming: the occurrence because of which.
        engines: engines of a VM's speed that its events keep busy.
    """

    wanted: int
    kept: int
    coming: Coming
    engines: float


class AnnouncedLoad:
    """Watches a query's announcements.

    Args:
        announcements: what was said.
        slot_s: length of a slot.
    """

    def __init__(self, announcements: Sequence[Announcement], slot_s: float) -> None:
        self._slot_s = slot_s
        self._watches = [Watch(each, slot_s) for each in announcements]
        self._usual: float | None = None

    def change(self, announcements: Sequence[Announcement]) -> None:
        """Take other announcements; what was seen of an unchanged name still counts."""
        known = {watch.announcement.name: watch for watch in self._watches}
        self._watches = [known.get(each.name) or Watch(each, self._slot_s) for each in announcements]
        for watch, each in zip(self._watches, announcements, strict=True):
            watch.announcement = each

    def observe(self, wall_s: float, rate: float) -> None:
        """Take the input rate (events/s) of a slot that ended at ``wall_s`` (s since 1970)."""
        if self._usual is None:
            self._usual = rate
        for watch in self._watches:
            watch.observe(wall_s, rate, self._usual)
        if not any(watch.is_near for watch in self._watches):
            self._usual += (rate - self._usual) / _SLOTS

    def needed(
        self, wall_s: float, *, boot_s: float, period_s: float, event_s: float, home_engines: float
    ) -> Needed | None:
        """Return what announced load needs now; None if none is near.

        Args:
            wall_s: now, in seconds since 1970.
            boot_s: from the order of a VM until it serves.
            period_s: of billing; a VM that will be wanted again within it is kept.
            event_s: how long a VM is busy with an event.
            home_engines: how many VMs home is worth.
        """
        usual = self._usual or 0.0
        within_s = boot_s + self._slot_s
        found = [watch.coming(wall_s, within_s + period_s, usual) for watch in self._watches]
        kept = [each for each in found if each is not None]
        if not kept:
            return None
        soon = [each for each in kept if each.from_s - within_s <= wall_s]
        most = max(soon or kept, key=lambda each: each.rate.high)

        def vms(coming: Sequence[Coming]) -> int:
            engines = max((each.rate.high * event_s for each in coming), default=0.0)
            return max(0, math.ceil(engines - home_engines - _SAME))

        return Needed(vms(soon), vms(kept), most, most.rate.high * event_s)
