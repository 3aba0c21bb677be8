"""Announced load: the World Cup's trace with the calendar of its matches, and with announcements drawn from the trace.

The world is that of ``elasticity``: windows of an hour, a VM that serves a window after its order, blocks of three
windows. The planner and the rate rule decide as there, and what announced load needs is added, as in the gateway.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from zoneinfo import ZoneInfo

import numpy as np

from planning.document import table
from planning.elasticity import BLOCK, MOST_VMS, Course, Planned, Policy, Vm, World, best, live, world_of
from planning.traces import SEED, Trace
from policies.advice import Site
from policies.announced.load import AnnouncedLoad
from policies.announcement import Announcement, Occurrence
from policies.planning.rules import RateRule

_MATCH_S = 7_200.0
_FACTOR = 4.0
"""What an operator might say before the first match: four times the usual load."""
_SHIFT_S = 1_800.0
_WRONG = 0.2
"""The standard deviation of the logarithm of an announced height over the real one."""
_BURST = 2.0
"""A window belongs to a burst if it has so many times the median load of the day around it."""
# The matches of 10 June to 12 July 1998 (FIFA, match schedule): their beginnings in Paris, by day.
_MATCHES = {
    "06-10": "17:30 21:00", "06-11": "17:30 21:00", "06-12": "14:30 17:30 21:00", "06-13": "14:30 17:30 21:00",
    "06-14": "14:30 17:30 21:00", "06-15": "14:30 17:30 21:00", "06-16": "17:30 21:00", "06-17": "17:30 21:00",
    "06-18": "17:30 21:00", "06-19": "17:30 21:00", "06-20": "14:30 17:30 21:00", "06-21": "14:30 17:30 21:00",
    "06-22": "17:30 21:00", "06-23": "16:00 21:00", "06-24": "16:00 21:00", "06-25": "16:00 21:00",
    "06-26": "16:00 21:00", "06-27": "16:30 21:00", "06-28": "16:30 21:00", "06-29": "16:30 21:00",
    "06-30": "16:30 21:00", "07-03": "16:30 21:00", "07-04": "16:30 21:00", "07-07": "21:00", "07-08": "21:00",
    "07-11": "21:00", "07-12": "21:00",
}  # fmt: skip


def matches() -> tuple[Announcement, ...]:
    """Return the calendar: at weekends people watch at home, so these matches are announced by themselves."""
    paris, days, ends = ZoneInfo("Europe/Paris"), list[Occurrence](), list[Occurrence]()
    for day, times in _MATCHES.items():
        for time in times.split():
            begins = datetime.fromisoformat(f"1998-{day}T{time}").replace(tzinfo=paris)
            begins_s = begins.timestamp()
            (ends if begins.weekday() >= 5 else days).append(Occurrence(begins_s, begins_s + _MATCH_S))
    return tuple(
        Announcement(name=name, occurrences=tuple(each), factor=_FACTOR)
        for name, each in (("matches on workdays", days), ("matches at weekends", ends))
    )


def drawn(trace: Trace) -> tuple[Announcement, ...]:
    """Return the trace's bursts as announcements: times shifted by up to half an hour, heights wrong by a fifth."""
    values, a_day = trace.values, round(86_400 / trace.bin_s)
    usual = np.array([np.median(values[max(0, at - a_day) : at + a_day]) for at in range(len(values))])
    edges = np.flatnonzero(np.diff(np.concatenate([[False], values > _BURST * usual, [False]]).astype(int)))
    rng, start_s = np.random.default_rng(SEED), float(trace.at_s[0])

    def announced(first: int, end: int) -> Occurrence:
        begins_s = start_s + first * trace.bin_s + rng.uniform(-_SHIFT_S, _SHIFT_S)
        rate = float(values[first:end].max()) / trace.bin_s * rng.lognormal(0.0, _WRONG)
        return Occurrence(begins_s, begins_s + (end - first) * trace.bin_s, rate)

    return (Announcement(name="bursts", occurrences=tuple(announced(*each) for each in edges.reshape(-1, 2).tolist())),)


class Announced(Policy):
    """Another policy with announcements.

    Args:
        world: its world.
        inner: the policy without them.
        announcements: what is known in advance.
    """

    def __init__(self, world: World, inner: Policy, announcements: Sequence[Announcement]) -> None:
        self._world = world
        self._inner = inner
        self._load = AnnouncedLoad(announcements, world.window_s)
        self._site = Site(max_vms=MOST_VMS, terms=world.terms, boot_s=world.window_s, slot_s=world.window_s)
        for window in range(1, world.begins):
            self._observe(window)

    def _observe(self, window: int) -> float:
        """Take the window that ended last, and return when that was."""
        world = self._world
        now_s = float(world.trace.at_s[0]) + window * world.window_s
        self._load.observe(now_s, float(world.trace.values[window - 1]) / world.window_s)
        return now_s

    def wanted(self, window: int, fleet: Sequence[Vm]) -> tuple[int, int]:
        """See ``Policy``."""
        world, (wanted, kept) = self._world, self._inner.wanted(window, fleet)
        needed = self._load.needed(
            self._observe(window),
            boot_s=world.window_s,
            period_s=BLOCK * world.window_s,
            event_s=world.event_s,
            home_engines=1.0,
        )
        if needed is None:
            return wanted, kept
        return max(wanted, min(MOST_VMS, needed.wanted)), max(kept, min(MOST_VMS, needed.kept), wanted)

    def starts(self, there: int, wanted: int, at_s: float) -> int:
        """See ``Policy``; launches for announced load do not wait."""
        self._inner.starts(there, wanted, at_s)
        return super().starts(there, wanted, at_s)

    def ended(self, there: int, at_s: float) -> None:
        """See ``Policy``."""
        self._inner.ended(there, at_s)


def report(traces: Sequence[Trace]) -> str:
    """Return what announcements are worth on the first trace, which is the World Cup's or a generated one."""
    rows = []
    for trace in traces:
        world = world_of(trace)
        said = {"bursts, shifted": drawn(trace)}
        if trace.name == "WorldCup98":
            said["matches"] = matches()
        least, arrived = best(world), float(world.trace.values[world.first :].sum())
        for name, rule in (("planner", None), ("rate (DS2)", RateRule(1 + MOST_VMS))):
            for what, announcements in {"": (), **said}.items():
                inner = Planned(world) if rule is None else Policy(world, rule)
                course = live(world, Announced(world, inner, announcements) if announcements else inner)
                rows.append((trace.name, name, what or "none", *_figures(course, least, arrived)))
                print(rows[-1], flush=True)
        rows.append((trace.name, "clairvoyant", "", *_figures(least, least, arrived)))
    head = ("trace", "decided by", "announced", "VMs, mean", "missed", "cost, USD", "/ clairvoyant")
    return table(head, rows, text_columns=3)


def _figures(course: Course, least: Course, arrived: float) -> tuple[str, ...]:
    usd = sum(course.usd)
    return (
        f"{np.mean(course.vms):.2f}",
        f"{sum(course.missed) / arrived:.2%}",
        f"{usd:,.0f}",
        f"{usd / sum(least.usd):.2f}",
    )
