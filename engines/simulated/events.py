"""A number of events with their mean time and latency and the producers' events behind them (CEPSim, eq. 2-5, 7-8).

CEPSim does not handle single events; it counts them, also in fractions, and keeps three measures with each count.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

_GROUPS_MAX = 1024


@dataclass(slots=True)
class EventSet:
    """Events in a queue, or emitted by a vertex at one time.

    Attributes:
        count: how many; fractions are partly processed events.
        at_s: ts, mean time at which they arrived where they are.
        latency_s: l, mean time that they had spent in the query by then.
        totals: tl, how many events of each producer had to be produced for them.
    """

    count: float = 0.0
    at_s: float = 0.0
    latency_s: float = 0.0
    totals: dict[str, float] = field(default_factory=dict)

    def add(self, other: EventSet, selectivity: float = 1.0) -> None:
        """Add ``other`` to these events: weighted means of eq. 2, 4 and 5, and the sum of eq. 8.

        An edge passes the part ``selectivity`` of the events; their totals stay whole.
        """
        count = other.count * selectivity
        together = self.count + count
        if together > 0:
            weight = count / together
            self.at_s += weight * (other.at_s - self.at_s)
            self.latency_s += weight * (other.latency_s - self.latency_s)
        self.count = together
        totals = self.totals
        for producer, total in other.totals.items():
            totals[producer] = totals.get(producer, 0.0) + total

    def take(self, count: float) -> EventSet:
        """Take out ``count`` of these events, with their part of the totals (eq. 7); all, if there are fewer."""
        if count >= self.count:
            taken = EventSet(self.count, self.at_s, self.latency_s, self.totals)
            self.count, self.totals = 0.0, {}
            return taken
        part = count / self.count
        totals = {producer: part * total for producer, total in self.totals.items()}
        self.count -= count
        for producer, total in totals.items():
            self.totals[producer] -= total
        return EventSet(count, self.at_s, self.latency_s, totals)

    def emitted(self, at_s: float, count: float | None = None) -> EventSet:
        """Return what a vertex emits at ``at_s`` for these events, which it consumed (eq. 3).

        Args:
            at_s: now.
            count: how many events are emitted; the same number, if not given.
        """
        latency_s = self.latency_s + (at_s - self.at_s)
        return EventSet(self.count if count is None else count, at_s, latency_s, self.totals)


class EventQueue:
    """A queue in which the events that came first leave first.

    Eq. 4 and 5 of the paper keep one mean time and one mean latency for all that waits, so that events that leave are
    as old as the mean of the queue. Here events that came together stay together, as a group. Of more than
    1,024 groups, neighbours become one group as long as it holds at most a 256th of the queue.
    """

    def __init__(self) -> None:
        self.count = 0.0
        self._groups: deque[EventSet] = deque()

    def add(self, events: EventSet, selectivity: float = 1.0) -> None:
        """Add the part ``selectivity`` of these events at the end; their totals stay whole (eq. 8)."""
        if events.count * selectivity <= 0:
            return
        self.count += events.count * selectivity
        if not self._groups or self._groups[-1].at_s != events.at_s:
            self._groups.append(EventSet())
        self._groups[-1].add(events, selectivity)
        if len(self._groups) > _GROUPS_MAX:
            self._groups = deque(_joined(self._groups, self.count * 4 / _GROUPS_MAX))

    def take(self, count: float, at_s: float) -> EventSet:
        """Take out the first ``count`` events, with their totals; all, if there are fewer.

        Args:
            count: how many.
            at_s: when they are processed; those that come later in this tick are processed when they come.
        """
        taken = EventSet()
        if count >= self.count:
            for group in self._groups:
                taken.add(group.emitted(max(at_s, group.at_s)))
            self.clear()
            return taken
        self.count -= count
        while self._groups and self._groups[0].count <= count - taken.count:
            group = self._groups.popleft()
            taken.add(group.emitted(max(at_s, group.at_s)))
        if self._groups and taken.count < count:
            group = self._groups[0].take(count - taken.count)
            taken.add(group.emitted(max(at_s, group.at_s)))
        return taken

    def clear(self) -> None:
        """Forget all events."""
        self.count = 0.0
        self._groups.clear()


def _joined(groups: Iterable[EventSet], most: float) -> Iterator[EventSet]:
    """Yield the groups, with neighbours as one as long as they hold at most so many events together."""
    current = EventSet()
    for group in groups:
        if current.count > 0 and current.count + group.count > most:
            yield current
            current = EventSet()
        current.add(group)
    yield current
