"""Raises what a policy wants to what announced load needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from policies.advice import Advice, Expected, FitOrder, Load, Seen, Site, VmPolicy
from policies.announced.load import AnnouncedLoad, Needed
from policies.announcement import Announcement
from policies.gaussian.forecaster import Trained
from policies.planning.enginetimes import EngineTimes
from policies.queueing.loadtable import LoadTable

_MEMORY = 0.9995
"""The weight of a slot one slot later: between two occurrences the load may be low for long."""


class AnnouncedPolicy(VmPolicy):
    """Decides as another policy, and has VMs ready for announced load.

    Args:
        inner: the query's policy.
        announcements: what operators know of its load.
        site: the settings that all queries share.
        latency_s: the promised latency.
    """

    def __init__(self, inner: VmPolicy, announcements: Sequence[Announcement], site: Site, latency_s: float) -> None:
        self.name, self.insists, self.phi_starts = inner.name, inner.insists, inner.phi_starts
        self._inner = inner
        self._site = site
        self._times = EngineTimes(latency_s, _MEMORY)
        self._load = AnnouncedLoad(announcements, site.slot_s)
        self._told = self._of = Advice()
        self._news: tuple[object, ...] = ()

    def announce(self, announced: tuple[Announcement, ...]) -> None:
        """See ``VmPolicy.announce``."""
        self._load.change(announced)

    def advise(self, seen: Seen) -> Advice:
        """See ``VmPolicy.advise``."""
        advice = self._inner.advise(seen)
        self._times.observe(seen.slot)
        self._load.observe(seen.wall_s, seen.slot.input_rate)
        event_s = self._times.vm_event_s
        if event_s is None:
            return advice
        needed = self._load.needed(
            seen.wall_s,
            boot_s=seen.boot_s,
            period_s=self._site.terms.period_s,
            event_s=event_s,
            home_engines=self._times.home_engines,
        )
        if needed is None:
            return advice
        raised = with_announced(advice, needed, seen, self._times.home_engines, self._site)
        # Only news is logged; the expected rate changes a little in each slot.
        coming = needed.coming
        news = (raised.wanted, raised.kept, coming.name, coming.occurrence, coming.has_come)
        if advice != self._of or news != self._news:
            self._of, self._told, self._news = advice, raised, news
        return self._told

    def fit_order(self) -> FitOrder | None:
        """See ``VmPolicy.fit_order``."""
        return self._inner.fit_order()

    def fitted(self, models: tuple[Trained | LoadTable, ...], trouble: str) -> None:
        """See ``VmPolicy.fitted``."""
        self._inner.fitted(models, trouble)


def with_announced(advice: Advice, needed: Needed, seen: Seen, home_engines: float, site: Site) -> Advice:
    """Return a policy's advice, raised to what announced load needs; it is never lowered.

    Where equation 1 decides, the VMs that it has launched are kept while the load is there.
    """
    plain = len(seen.vms) if advice.wanted is None else advice.kept
    wanted = max(advice.wanted or 0, min(needed.wanted, site.max_vms))
    kept = max(plain, wanted, min(needed.kept, site.max_vms))
    if wanted == kept == 0:
        return advice
    load = advice.load or Load(0.0, 0.0, home_engines)
    why = _words(needed, wanted)
    return replace(
        advice,
        wanted=wanted,
        kept=kept,
        why=f"{why}; {advice.why}" if advice.why else why,
        expected=_expected(needed, seen.wall_s) if needed.wanted >= (advice.wanted or 0) else advice.expected,
        options=advice.options or site.prices(wanted),
        load=Load(
            max(load.ahead, needed.engines if needed.wanted else 0.0), max(load.most, needed.engines), load.home_engines
        ),
        rising_to=max(advice.rising_to, min(needed.kept, site.max_vms)),
    )


def _expected(needed: Needed, wall_s: float) -> Expected:
    low, rate, high = needed.coming.rate
    return Expected(max(0.0, needed.coming.from_s - wall_s), rate, low, high)


def _words(needed: Needed, wanted: int) -> str:
    coming = needed.coming
    times_s = (coming.occurrence.begins_s, coming.occurrence.ends_s)
    begins, ends = (datetime.fromtimestamp(each, UTC) for each in times_s)
    there = "is there" if coming.has_come else "is announced"
    earlier = f"; {coming.words}" if coming.words else ""
    return (
        f"announced: {wanted} VMs because of {coming.name}, which {there} for {begins:%Y-%m-%d %H:%M} to {ends:%H:%M} "
        f"UTC with {coming.rate.mean:,.0f} events/s (up to {coming.rate.high:,.0f}){earlier}"
    )
