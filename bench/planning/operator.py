"""An operator of the paper (Mayer et al., Figure 1), event by event: a splitter's buffer and its instances.

It shares nothing with the formulas. There are two ways to distribute events. From one buffer, the instance that is free
first takes the next event, as in queueing theory and like Spillway's lanes. Or by selection, as in the paper: an
instance is bound to the selections that it got when they opened, so a new instance only helps with later selections.
"""

from __future__ import annotations

import bisect
import heapq
from collections import deque
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from policies.arrays import Array

SAMPLE_S = 10.0


@dataclass(frozen=True, slots=True)
class Load:
    """Events of a run.

    Attributes:
        arrivals: arrival times in seconds, shape (n,).
        busy_s: processing time of each event.
        opened: opening time of each event's selection.
    """

    arrivals: Array
    busy_s: Array
    opened: Array


@dataclass(slots=True)
class Crew:
    """The instances.

    Attributes:
        live: those that accept new events (or selections).
        booting: when ordered instances become live.
        free_s: when each instance that ever existed has finished its events.
        busy: the working intervals of each.
        shifts: which instances are live, and since when.
    """

    live: list[int]
    booting: list[float] = field(default_factory=list)
    free_s: list[float] = field(default_factory=list)
    busy: list[deque[tuple[float, float]]] = field(default_factory=list)
    shifts: list[tuple[float, tuple[int, ...]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.free_s, self.busy = [0.0] * len(self.live), [deque() for _ in self.live]
        self.shifts = [(-1e9, tuple(self.live))]

    def start(self, count: int, ready_s: float) -> None:
        """Order instances."""
        for _ in range(count):
            heapq.heappush(self.booting, ready_s)

    def cancel(self, count: int, at_s: float) -> list[int]:
        """Cancel some, booting ones first. Return those that were live."""
        while count and self.booting:
            self.booting.remove(max(self.booting))
            count -= 1
        gone = [self.live.pop() for _ in range(min(count, len(self.live) - 1))]
        self.shifts.append((at_s, tuple(self.live)))
        return gone

    def revive(self, instances: list[int], at_s: float) -> None:
        """Use cancelled instances again."""
        self.live += instances
        self.shifts.append((at_s, tuple(self.live)))

    def boot(self, at_s: float) -> None:
        """Make instances live that have booted by now."""
        while self.booting and self.booting[0] <= at_s:
            ready_s = heapq.heappop(self.booting)
            self.live.append(len(self.free_s))
            self.free_s.append(ready_s)
            self.busy.append(deque())
            self.shifts.append((ready_s, tuple(self.live)))

    def work(self, instance: int, from_s: float, busy_s: float) -> float:
        """Let an instance process an event as soon as it can; return when it is done."""
        began_s = max(from_s, self.free_s[instance])
        ends_s = self.free_s[instance] = began_s + busy_s
        self.busy[instance].append((began_s, ends_s))
        return ends_s

    def load(self, from_s: float, to_s: float) -> float:
        """Return the part of the time in which live instances worked."""
        worked_s = 0.0
        for instance in self.live:
            spans = self.busy[instance]
            while spans and spans[0][1] <= from_s:
                spans.popleft()
            for began_s, ends_s in spans:
                if began_s >= to_s:
                    break
                worked_s += min(ends_s, to_s) - max(began_s, from_s)
        return worked_s / (len(self.live) * (to_s - from_s))


class Controller(Protocol):
    """Decides the number of instances."""

    def arrived(self, between_s: float, at_s: float, crew: Crew) -> None:
        """Note an event."""
        ...

    def tick(self, at_s: float, crew: Crew) -> None:
        """Note that some seconds have passed."""
        ...


@dataclass(frozen=True, slots=True)
class Played:
    """The history, each array of shape (samples,).

    Attributes:
        buffered: events in the splitter's buffer, with those being processed.
        instances: live ones.
    """

    buffered: Array
    instances: Array

    def held(self, limit: int) -> float:
        """Return the part of the time in which the buffer kept a limit."""
        return float(np.mean(self.buffered <= limit))


def play(load: Load, controller: Controller, instances: int, *, by_selection: bool, tick_s: float = 5.0) -> Played:
    """Simulate the operator with the load."""
    crew, waiting = Crew(list(range(instances))), deque[int]()
    done: list[float] = []
    counts: list[tuple[float, int]] = [(0.0, instances)]
    next_tick, before_s = tick_s, 0.0
    arrivals, busy_s = load.arrivals.tolist(), load.busy_s.tolist()
    for each, at_s in enumerate(arrivals):
        while next_tick <= at_s:
            _advance(crew, waiting, arrivals, busy_s, done, next_tick)
            controller.tick(next_tick, crew)
            counts.append((next_tick, len(crew.live)))
            next_tick += tick_s
        if by_selection:
            crew.boot(at_s)
            there = crew.shifts[bisect.bisect_right(crew.shifts, load.opened[each], key=lambda shift: shift[0]) - 1][1]
            done.append(crew.work(there[each % len(there)], at_s, busy_s[each]))
        else:
            waiting.append(each)
            _advance(crew, waiting, arrivals, busy_s, done, at_s)
        controller.arrived(at_s - before_s, at_s, crew)
        before_s = at_s
    moments = np.arange(SAMPLE_S, arrivals[-1], SAMPLE_S)
    buffered = np.searchsorted(load.arrivals, moments, "right") - np.searchsorted(np.sort(done), moments, "right")
    times = np.array([at_s for at_s, _ in counts])
    live = np.array([count for _, count in counts])[np.searchsorted(times, moments, "right") - 1]
    return Played(buffered, live)


def _advance(
    crew: Crew, waiting: deque[int], arrivals: list[float], busy_s: list[float], done: list[float], until_s: float
) -> None:
    """Distribute waiting events up to a moment, in order, to the first free instance; booted instances join in time."""
    while True:
        boots_s = min(crew.booting[0], until_s) if crew.booting else until_s
        while waiting:
            first = min(crew.live, key=crew.free_s.__getitem__)
            from_s = max(arrivals[waiting[0]], crew.free_s[first])
            if from_s > boots_s:
                break
            done.append(crew.work(first, from_s, busy_s[waiting.popleft()]))
        if not crew.booting or crew.booting[0] > until_s:
            return
        crew.boot(boots_s)
