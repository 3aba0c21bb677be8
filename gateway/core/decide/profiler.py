"""The measurements of a slot: latency, rates and bytes of each query and lane (ESM, section 4: the Profiler).

Pure: the caller reports what happened and when. It keeps no runs: the exchange knows which are open, and which answer
is the first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

import numpy as np

from gateway.core.exchange.views import OpenRuns
from policies.histogram import Histogram
from policies.queueing.sketch import TimesSeen, TimesSketch
from policies.signals import HOME, QuerySlot

Statistic = Literal["mean", "p95"]

RATE_MEMORY = 0.8
"""The weight of a slot in the service rate one slot later: about five slots count."""

FLOW_WEIGHT = 0.4
"""The weight of the last slot in the flow through a lane: micro-batches complete in jumps."""


@dataclass(slots=True)
class _Rate:
    """Events per busy second of a lane, smoothed over slots."""

    events: float = 0.0
    busy_s: float = 0.0
    last_batch: int | None = None
    batch_events: int = 0
    batch_s: float = 0.0

    def add(self, events: int, batch_id: int, batch_s: float) -> bool:
        """Count events; return whether their batch is a new one."""
        self.events += events
        new = batch_id != self.last_batch
        if new:
            self.busy_s += batch_s
            self.last_batch, self.batch_events, self.batch_s = batch_id, 0, batch_s
        self.batch_events += events
        return new

    @property
    def relative(self) -> float | None:
        """Return the last batch's time per event over the lane's mean; None without a batch."""
        done = self.batch_events and self.busy_s > 0
        return self.batch_s / self.batch_events * self.events / self.busy_s if done else None

    def fade(self) -> None:
        self.events *= RATE_MEMORY
        self.busy_s *= RATE_MEMORY


@dataclass(slots=True)
class _Flow:
    """Events in a lane and completed by it per second, smoothed over the slots in which it had any."""

    open_events: float = 0.0
    completed_per_s: float = 0.0

    def add(self, open_events: int, completed_per_s: float) -> None:
        if not open_events and not completed_per_s:
            return  # it says nothing; else the first run after an idle while would seem to stay for minutes
        self.open_events += FLOW_WEIGHT * (open_events - self.open_events)
        self.completed_per_s += FLOW_WEIGHT * (completed_per_s - self.completed_per_s)


def _little_s(flows: Iterable[_Flow]) -> float | None:
    """Return the mean time in these lanes by Little's law; None while nothing completes."""
    open_events, completed_per_s = 0.0, 0.0
    for flow in flows:
        open_events += flow.open_events
        completed_per_s += flow.completed_per_s
    return open_events / completed_per_s if completed_per_s > 0 else None


_counts: Callable[[], defaultdict[str, int]] = partial(defaultdict, int)
_sums: Callable[[], defaultdict[str, float]] = partial(defaultdict, float)


@dataclass(slots=True)
class _Slot:
    """Counters of one query, which restart with each slot."""

    arrived_events: int = 0
    arrived_bytes: int = 0
    first_due_s: float | None = None
    last_due_s: float | None = None
    no_credit: set[str] = field(default_factory=set)
    dispatched_events: defaultdict[str, int] = field(default_factory=_counts)
    dispatched_runs: int = 0
    raw_bytes: defaultdict[str, int] = field(default_factory=_counts)
    sent_bytes: defaultdict[str, int] = field(default_factory=_counts)
    completed_events: defaultdict[str, int] = field(default_factory=_counts)
    batches: defaultdict[str, int] = field(default_factory=_counts)
    busy_s: defaultdict[str, float] = field(default_factory=_sums)
    batch_times: list[float] = field(default_factory=list)
    late_events: int = 0
    home: Histogram = field(default_factory=Histogram)
    cloud: Histogram = field(default_factory=Histogram)


class _QueryProfile:
    """Everything that is kept for one query; memory grows only with the number of its lanes."""

    def __init__(self, name: str, statistic: Statistic, slot_s: float) -> None:
        self.name = name
        self.statistic = statistic
        self.slot_s = slot_s
        self.slot = _Slot()
        self.open: Mapping[str, OpenRuns] = {}
        self.rates: dict[str, _Rate] = {}
        self.flows: dict[str, _Flow] = {}
        self.waiting_events = 0
        self.waiting_since_s: float | None = None
        self.highest_seq = -1
        self.last_due_s: float | None = None
        self.pause_s = self.heaviest_part = 0.0
        self.input_rate = 0.0
        self.input_bytes_per_s = 0.0
        self.gaps: TimesSeen | None = None
        self.batch_times = TimesSketch(seed=0)

    def end_slot(self, now_s: float, load1: float) -> QuerySlot:
        """Return the slot's measurements and start the next slot."""
        self._measure_input()
        slot, self.slot = self.slot, _Slot()
        open_events = {lane: runs.events for lane, runs in self.open.items()}
        for lane in {*self.flows, *open_events, *slot.completed_events}:
            flow = self.flows.setdefault(lane, _Flow())
            flow.add(open_events.get(lane, 0), slot.completed_events.get(lane, 0) / self.slot_s)
        completed = slot.home.weight + slot.cloud.weight
        measured = QuerySlot(
            query=self.name,
            latency_s=self._latency_s(slot, now_s, open_events),
            home_latency_s=slot.home.mean_s if slot.home.weight else None,
            cloud_latency_s=slot.cloud.mean_s if slot.cloud.weight else None,
            home_lane_s=_little_s(flow for lane, flow in self.flows.items() if lane == HOME),
            cloud_lane_s=_little_s(flow for lane, flow in self.flows.items() if lane != HOME),
            rates={lane: r.events / r.busy_s for lane, r in self.rates.items() if r.events > 0 and r.busy_s > 0},
            no_credit=frozenset(slot.no_credit),
            completed_events=dict(slot.completed_events),
            batches=dict(slot.batches),
            busy_s=dict(slot.busy_s),
            dispatched_events=dict(slot.dispatched_events),
            dispatched_runs=slot.dispatched_runs,
            raw_bytes=dict(slot.raw_bytes),
            sent_bytes=dict(slot.sent_bytes),
            open_events=open_events,
            open_runs=sum(runs.runs for runs in self.open.values()),
            backlog_events=self.waiting_events,
            input_rate=self.input_rate,
            input_bytes_per_s=self.input_bytes_per_s,
            out_of_order_share=slot.late_events / completed if completed else 0.0,
            load1=load1,
            pause_s=self.pause_s,
            heaviest_part=self.heaviest_part,
            gaps=self.gaps,
            batch_times=self._batch_times(slot),
        )
        for rate in self.rates.values():
            rate.fade()
        return measured

    def _batch_times(self, slot: _Slot) -> TimesSeen | None:
        if not slot.batch_times:
            return None
        self.batch_times.add(np.array(slot.batch_times))
        return self.batch_times.take()

    def _latency_s(self, slot: _Slot, now_s: float, open_events: Mapping[str, int]) -> float:
        """L_t: once switching is on, that of the private lane (4.1), at least the age of the oldest waiting event."""
        cloud_in_use = slot.cloud.weight > 0 or any(lane != HOME for lane in (*slot.dispatched_events, *open_events))
        home_in_use = slot.home.weight > 0 or HOME in open_events
        home_only = cloud_in_use and home_in_use
        seen = slot.home
        if not home_only and slot.cloud.weight:
            seen = Histogram()
            seen.merge(slot.home)
            seen.merge(slot.cloud)
        latency_s = seen.mean_s if self.statistic == "mean" else seen.quantile_s(0.95)
        open_since_s = [runs.oldest_arrival_s for lane, runs in self.open.items() if lane == HOME or not home_only]
        if self.waiting_since_s is not None:
            open_since_s.append(self.waiting_since_s)
        return max(latency_s, now_s - min(open_since_s, default=now_s))

    def _measure_input(self) -> None:
        """Measure the input rate by due times, so that a source slowed by back-pressure shows its true rate."""
        slot = self.slot
        if slot.first_due_s is None or slot.last_due_s is None:
            if self.waiting_since_s is None:
                self.input_rate = self.input_bytes_per_s = 0.0
            return  # nothing could be read while events wait: keep the last rate
        since_s = slot.first_due_s - self.slot_s
        if self.last_due_s is not None:
            since_s = max(since_s, self.last_due_s)
        span_s = slot.last_due_s - since_s
        if span_s <= 0:
            span_s = self.slot_s
        self.input_rate = slot.arrived_events / span_s
        self.input_bytes_per_s = slot.arrived_bytes / span_s
        self.last_due_s = slot.last_due_s


class Profiler:
    """Collects measurements and sums them up when a slot ends.

    Args:
        slot_s: nominal length of a slot.
        statistics: for each query, by name, what L_t is: ``mean`` or ``p95``, both weighted by events.
    """

    def __init__(self, slot_s: float, statistics: Mapping[str, Statistic]) -> None:
        if slot_s <= 0:
            raise ValueError(f"a slot must last longer than {slot_s!r} s")
        self._slot_s = slot_s
        self._queries: dict[str, _QueryProfile] = {}
        self.change(statistics)

    def change(self, statistics: Mapping[str, Statistic]) -> None:
        """Measure these queries from now on: new ones from the beginning, and none that is left out."""
        self._queries = {
            name: self._queries.get(name) or _QueryProfile(name, statistic, self._slot_s)
            for name, statistic in statistics.items()
        }
        for name, statistic in statistics.items():
            self._queries[name].statistic = statistic

    def arrived(self, query: str, *, events: int, raw_bytes: int, first_due_s: float, last_due_s: float) -> None:
        """Note events that were read from the source and were due from ``first_due_s`` to ``last_due_s``."""
        slot = self._queries[query].slot
        slot.arrived_events += events
        slot.arrived_bytes += raw_bytes
        slot.first_due_s = first_due_s if slot.first_due_s is None else min(slot.first_due_s, first_due_s)
        slot.last_due_s = last_due_s if slot.last_due_s is None else max(slot.last_due_s, last_due_s)

    def under_way(
        self,
        query: str,
        *,
        waiting_events: int,
        oldest_arrival_s: float | None,
        open_runs: Mapping[str, OpenRuns],
        gaps: TimesSeen | None = None,
    ) -> None:
        """Note, before each slot ends, everything that is not completed, and when events came.

        Args:
            query: its name.
            waiting_events: due events that are in no lane yet.
            oldest_arrival_s: when the oldest of them was due, even if it was not read yet; None if none waits.
            open_runs: the open runs of each lane. Runs in which a host looks for bad rows are left out: their latency
                is no reason to rent a VM.
            gaps: the times between the slot's events; None if they are not known.
        """
        profile = self._queries[query]
        profile.gaps = gaps
        profile.open = dict(open_runs)
        profile.waiting_events = waiting_events
        profile.waiting_since_s = oldest_arrival_s

    def moving(self, query: str, pause_s: float, heaviest_part: float = 0.0) -> None:
        """Note how long a query's events would be held if it moved with its state; 0 if it has none.

        ``heaviest_part``: the part of a keyed query with the most events has so much of them; 0 if it is not divided.
        """
        self._queries[query].pause_s, self._queries[query].heaviest_part = pause_s, heaviest_part

    def no_credit(self, query: str, lane: str) -> None:
        """Note that a run could not go to ``lane``, as its share required, because the lane had no credit."""
        self._queries[query].slot.no_credit.add(lane)

    def dispatched(
        self,
        query: str,
        *,
        lane: str,
        events: int,
        raw_bytes: int,
        sent_bytes: int,
    ) -> None:
        """Note that a run was dispatched to a lane.

        ``raw_bytes`` is the size before trimming and compression, ``sent_bytes`` crossed the WAN (0 for home).
        """
        profile = self._queries[query]
        profile.slot.dispatched_events[lane] += events
        profile.slot.dispatched_runs += 1
        if lane != HOME:
            profile.slot.raw_bytes[lane] += raw_bytes
            profile.slot.sent_bytes[lane] += sent_bytes

    def completed(
        self,
        query: str,
        *,
        last_seq: int,
        events: int,
        lane: str,
        mean_arrival_s: float,
        completed_s: float,
        batch_id: int,
        batch_s: float,
    ) -> None:
        """Note that a lane completed a run in its micro-batch ``batch_id``, which took ``batch_s`` for all its runs.

        The run ends with ``last_seq``. Of a keyed query each part of a run is reported, with its own events.
        Report only the first completion of a run, and none of a run in which the host looked for bad rows.
        """
        profile = self._queries[query]
        slot = profile.slot
        latency_s = max(0.0, completed_s - mean_arrival_s)
        (slot.home if lane == HOME else slot.cloud).add(latency_s, events)
        slot.completed_events[lane] += events
        slot.late_events += events if last_seq < profile.highest_seq else 0
        profile.highest_seq = max(profile.highest_seq, last_seq)
        rate = profile.rates.setdefault(lane, _Rate())
        before = rate.relative
        if rate.add(events, batch_id, batch_s):
            # The batch before is complete now: all of its runs are answered together.
            if before is not None:
                slot.batch_times.append(before)
            slot.batches[lane] += 1
            slot.busy_s[lane] += batch_s

    def query_closed(self, query: str) -> None:
        """Note that nothing of a query is open any more: it failed, and its open runs are read again later."""
        profile = self._queries[query]
        profile.open = {}
        profile.waiting_events = 0
        profile.waiting_since_s = None

    def lane_closed(self, lane: str, query: str | None = None) -> None:
        """Note that a lane is gone, for one query or for all; its runs are dispatched again, its rate is forgotten."""
        for profile in self._queries.values() if query is None else [self._queries[query]]:
            profile.rates.pop(lane, None)
            profile.flows.pop(lane, None)
            profile.slot.completed_events.pop(lane, None)
            profile.open = {name: runs for name, runs in profile.open.items() if name != lane}

    def end_slot(self, now_s: float, *, load1: float = 0.0) -> tuple[QuerySlot, ...]:
        """Return the measurements of each query in the slot that ends at ``now_s``, and start the next slot."""
        return tuple(profile.end_slot(now_s, load1) for profile in self._queries.values())
