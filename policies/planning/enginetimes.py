"""How long a loaded engine is busy with an event: Lat of equation 9 (Zacheilas et al.), measured.

An engine works in micro-batches, and a batch costs something however small it is. At a low load batches are small, so
events per busy second say little about an engine's capacity. Least squares over the slots' measurements separates the
cost of a batch from that of an event.
"""

from __future__ import annotations

from dataclasses import dataclass

from policies.signals import HOME, QuerySlot

MEMORY = 0.99
"""The weight of a slot one slot later: about a hundred slots count."""

_LEAST_SPREAD = 0.05
"""Batch sizes must vary by this part of their mean to separate the two costs."""

_LEAST_PART = 0.1
"""At least this part of the time that a latency allows for a batch is for events."""


@dataclass(slots=True)
class BatchCosts:
    """Sums over micro-batches of n events that took t seconds: t = a + b n, with weights that fade.

    All batches of a slot count as equally large: only their sums are known.
    """

    batches: float = 0.0
    events: float = 0.0
    busy_s: float = 0.0
    events_squared: float = 0.0
    events_busy_s: float = 0.0

    def add(self, batches: int, events: int, busy_s: float) -> None:
        """Add the micro-batches of a slot."""
        self.batches += batches
        self.events += events
        self.busy_s += busy_s
        self.events_squared += events**2 / batches
        self.events_busy_s += events * busy_s / batches

    def fade(self, memory: float = MEMORY) -> None:
        """Reduce the weight of past slots to this part."""
        self.batches *= memory
        self.events *= memory
        self.busy_s *= memory
        self.events_squared *= memory
        self.events_busy_s *= memory

    def event_s(self, latency_s: float) -> float | None:
        """Return the time per event in batches as large as a latency allows; None if nothing was measured.

        An event waits for the batch before its own, so a batch may take half the latency L: n = (L / 2 - a) / b events
        fit into it, and each takes (L / 2) / n. The result is at most the measured average.

        Args:
            latency_s: L, the latency to be kept.
        """
        if self.events <= 0 or self.busy_s <= 0:
            return None
        batch_s, slope_s = self._line()
        return min(self.busy_s / self.events, slope_s / max(1.0 - 2.0 * batch_s / latency_s, _LEAST_PART))

    def event_s_in(self, events: float) -> float | None:
        """Return the time per event in a micro-batch of so many events; None if nothing was measured."""
        if self.events <= 0 or self.busy_s <= 0:
            return None
        batch_s, slope_s = self._line()
        return batch_s / events + slope_s

    def _line(self) -> tuple[float, float]:
        """Return a and b; 0 and the mean time per event if the two cannot be told apart."""
        mean_s = self.busy_s / self.events
        mean_events = self.events / self.batches
        variance = self.events_squared / self.batches - mean_events**2
        if variance <= (_LEAST_SPREAD * mean_events) ** 2:
            return 0.0, mean_s
        slope_s = (self.events_busy_s / self.batches - mean_events * self.busy_s / self.batches) / variance
        batch_s = self.busy_s / self.batches - slope_s * mean_events
        return (0.0, mean_s) if slope_s <= 0 or batch_s < 0 else (batch_s, slope_s)


class EngineTimes:
    """The time per event of a query at home and on VMs.

    Args:
        latency_s: the latency target.
        memory: the weight of a slot one slot later.
    """

    def __init__(self, latency_s: float, memory: float = MEMORY) -> None:
        self._latency_s = latency_s
        self._memory = memory
        self._home = BatchCosts()
        self._cloud = BatchCosts()

    def observe(self, slot: QuerySlot) -> None:
        """Add a slot."""
        for costs in (self._home, self._cloud):
            costs.fade(self._memory)
        for lane, batches in slot.batches.items():
            events = slot.completed_events.get(lane, 0)
            if batches and events:
                (self._home if lane == HOME else self._cloud).add(batches, events, slot.busy_s.get(lane, 0.0))

    @property
    def vm_event_s(self) -> float | None:
        """Return how long a VM is busy with an event; the time of home until a VM was measured; None before that."""
        cloud_s = self._cloud.event_s(self._latency_s)
        return self._home.event_s(self._latency_s) if cloud_s is None else cloud_s

    def event_s_in(self, events: float) -> tuple[float, float] | None:
        """Return the time per event on a VM and at home, in micro-batches of so many events.

        What was not measured yet counts as equally fast. None if nothing was.
        """
        home_s, cloud_s = self._home.event_s_in(events), self._cloud.event_s_in(events)
        known_s = cloud_s if home_s is None else home_s
        if known_s is None:
            return None
        return known_s if cloud_s is None else cloud_s, known_s if home_s is None else home_s

    @property
    def home_engines(self) -> float:
        """Return how many VMs the private cluster is worth."""
        home_s, vm_s = self._home.event_s(self._latency_s), self.vm_event_s
        return 1.0 if home_s is None or vm_s is None else vm_s / home_s
