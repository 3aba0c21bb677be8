"""Totals of a query over a whole run of the gateway, for its report."""

from __future__ import annotations

from collections import Counter

from policies.histogram import Histogram
from policies.signals import HOME


class Tally:
    """Counts what a query did since the gateway started. Latencies are weighted by events."""

    def __init__(self) -> None:
        self.latency = Histogram()
        self.delivery = Histogram()
        self.events_by_lane: Counter[str] = Counter()
        self.direct_events = 0
        self.dispatched_events = 0
        self.events = 0
        self.shed = 0
        self._next_seq = 0
        self.results = 0
        self.late_results = 0
        self.disordered_events = 0
        self.dead_letters = 0
        self.too_late = 0
        self._open_groups: dict[int, int | None] = {}
        self._state_next_seqs: dict[int, int] = {}
        self._highest_seq = -1
        self.raw_bytes = 0
        self.sent_bytes = 0
        self._slot_latency_s = 0.0
        self._slot_events = 0

    def arrived(self, first_seq: int, last_seq: int, shed: int = 0) -> None:
        """Count the events of a run, and the events that were shed with it.

        A run that is read again after its engine was lost is not counted again.
        """
        self.shed += shed if first_seq >= self._next_seq else 0
        self.events += max(0, last_seq + 1 - max(first_seq, self._next_seq))
        self._next_seq = max(self._next_seq, last_seq + 1)

    @property
    def again_events(self) -> int:
        """Events that were dispatched and not completed there, and so are dispatched again or still in a lane."""
        return self.dispatched_events - self.events_by_lane.total()

    def dispatched(self, events: int) -> None:
        """Count a run that was sent to a lane."""
        self.dispatched_events += events

    def carried(self, events: int) -> None:
        """Count events that Spark at home has read, and delivered, by itself."""
        self.events += events
        self.dispatched_events += events
        self.events_by_lane[HOME] += events
        self.direct_events += events

    def sent(self, raw_bytes: int, sent_bytes: int) -> None:
        """Count a run that crossed the WAN."""
        self.raw_bytes += raw_bytes
        self.sent_bytes += sent_bytes

    def completed(self, lane: str, latency_s: float, events: int) -> None:
        """Count a completion."""
        self.latency.add(latency_s, events)
        self.events_by_lane[lane] += events
        self._slot_latency_s += latency_s * events
        self._slot_events += events

    def received(self, first_seq: int, last_seq: int) -> None:
        """Count a run's events as out of order if a later one was completed before (ESM, section 7.4)."""
        if first_seq < self._highest_seq:
            self.disordered_events += last_seq + 1 - first_seq
        self._highest_seq = max(self._highest_seq, last_seq)

    def released(self, latency_s: float, events: int, results: int, *, late: bool) -> None:
        """Count a release to the sink."""
        self.delivery.add(latency_s, events)
        self.results += results
        self.late_results += results if late else 0

    @property
    def open_groups(self) -> int | None:
        """Groups that wait in the state of all parts of a query; None if that is unknown, or there are none."""
        known = [groups for groups in self._open_groups.values() if groups is not None]
        return sum(known) if known else None

    def state(self, part: int, last_seq: int, too_late: int, open_groups: int | None) -> int:
        """Count what a micro-batch of a stateful query, or of one part of it, dropped, and what it left in the state.

        A micro-batch that runs again has the same limits, and is not counted again.

        Returns:
            How many were counted.
        """
        self._open_groups[part] = open_groups
        if last_seq < self._state_next_seqs.get(part, 0):
            return 0
        self._state_next_seqs[part] = last_seq + 1
        self.too_late += too_late
        return too_late

    def take_slot(self) -> tuple[int, float | None]:
        """Return (events completed, their mean latency over all lanes) since the last call; None without events."""
        events = self._slot_events
        mean_s = self._slot_latency_s / events if events else None
        self._slot_latency_s, self._slot_events = 0.0, 0
        return events, mean_s
