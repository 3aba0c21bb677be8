"""A number of events with their mean time and latency and the producers' events behind them (CEPSim, eq. 2-5, 7-8).

CEPSim does not handle single events; it counts them, also in fractions, and keeps three measures with each count.
"""

from __future__ import annotations

from dataclasses import dataclass, field


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
