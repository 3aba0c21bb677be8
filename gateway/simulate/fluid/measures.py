"""The production Profiler's measurements of each slot, in arrays; a test compares the formulas with it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from gateway.core.decide.profiler import FLOW_WEIGHT, RATE_MEMORY
from policies.arrays import Array, BoolArray, IntArray
from policies.signals import HOME, QuerySlot

Index = slice | IntArray | tuple[slice, int]
"""Rows of arrays, or one column of some rows."""

_NO_LANES: frozenset[str] = frozenset()
_HOME_ONLY = frozenset({HOME})


class LaneMeasures:
    """Smoothed flows and service rates of lanes.

    Args:
        shape: of all arrays.
        slot_s: length of a slot.

    Attributes:
        open: events in each lane, smoothed.
        completed_per_s: events completed a second, smoothed.
    """

    def __init__(self, shape: tuple[int, ...], slot_s: float) -> None:
        self._slot_s = slot_s
        self.open: Array = np.zeros(shape)
        self.completed_per_s: Array = np.zeros(shape)
        self._events: Array = np.zeros(shape)
        self._busy_s: Array = np.zeros(shape)

    def end_slot(self, at: Index, open_events: Array, completed: Array, busy_s: Array) -> None:
        """Take in a slot of the lanes ``at``.

        Args:
            at: an index into the arrays.
            open_events: in the lanes now.
            completed: in the slot.
            busy_s: how long a host was busy with these.
        """
        was_open, flow = self.open[at], self.completed_per_s[at]
        self.open[at] = was_open + FLOW_WEIGHT * (open_events - was_open)
        self.completed_per_s[at] = flow + FLOW_WEIGHT * (completed / self._slot_s - flow)
        self._events[at] = RATE_MEMORY * self._events[at] + completed
        self._busy_s[at] = RATE_MEMORY * self._busy_s[at] + busy_s

    def end_slot_of_all(self, open_events: Array, completed: Array, busy_s: Array) -> None:
        """Take in a slot of all lanes; see ``end_slot``."""
        self.open += FLOW_WEIGHT * (open_events - self.open)
        self.completed_per_s += FLOW_WEIGHT * (completed / self._slot_s - self.completed_per_s)
        for sums, more in ((self._events, completed), (self._busy_s, busy_s)):
            sums *= RATE_MEMORY
            sums += more

    def rate(self, at: Index) -> Array:
        """Return the events per busy second of the lanes ``at``; 0 without a measurement."""
        events, busy_s = self._events[at], self._busy_s[at]
        return np.where((events > 0) & (busy_s > 0), events / np.maximum(busy_s, 1e-12), 0.0)

    def rates(self, at: Index) -> list[float]:
        """Return the same as ``rate``, faster if there are few lanes."""
        sums = zip(self._events[at].tolist(), self._busy_s[at].tolist(), strict=True)
        return [events / max(busy_s, 1e-12) if events > 0 and busy_s > 0 else 0.0 for events, busy_s in sums]

    def forget(self, at: Index) -> None:
        """Forget lanes that are gone."""
        for values in (self.open, self.completed_per_s, self._events, self._busy_s):
            values[at] = 0.0


class SlotArrays:
    """The measurements of the last slot: one value for each query, and one for each query and cloud lane.

    Args:
        queries: how many.
        vms: cloud lanes of each.
    """

    def __init__(self, queries: int, vms: int) -> None:
        self.latency_s: Array = np.zeros(queries)
        self.home_s: Array = np.zeros(queries)
        self.home_completed: Array = np.zeros(queries)
        self.home_dispatched: Array = np.zeros(queries)
        self.home_open: Array = np.zeros(queries)
        self.waiting: Array = np.zeros(queries)
        self.home_full: BoolArray = np.zeros(queries, dtype=np.bool_)
        self.input_rate: Array = np.zeros(queries)
        self.input_bytes_per_s: Array = np.zeros(queries)
        self.run_events: Array = np.ones(queries)
        self.event_s: Array = np.zeros(queries)
        self.vm_event_s: Array = np.zeros((queries, vms))
        self.cloud_s: Array = np.zeros((queries, vms))
        self.cloud_completed: Array = np.zeros((queries, vms))
        self.cloud_dispatched: Array = np.zeros((queries, vms))
        self.cloud_open: Array = np.zeros((queries, vms))
        self.raw_bytes: Array = np.zeros((queries, vms))
        self.sent_bytes: Array = np.zeros((queries, vms))
        self.cloud_full: BoolArray = np.zeros((queries, vms), dtype=np.bool_)


class _Lane(NamedTuple):
    """The measurements of one lane, a plain number for each query, since records are made one by one.

    ``raw_bytes`` and ``sent_bytes`` are for the cloud only.
    """

    name: str
    rate: list[float]
    smoothed_open: list[float]
    completed_per_s: list[float]
    latency_s: list[float]
    completed: list[float]
    completed_events: list[int]
    busy_s: list[float]
    dispatched: list[int]
    open: list[int]
    full: list[bool]
    raw_bytes: list[int]
    sent_bytes: list[int]


class _Queries(NamedTuple):
    """The measurements that do not depend on a lane."""

    latency_s: list[float]
    run_events: list[float]
    waiting: list[float]
    input_rate: list[float]
    input_bytes_per_s: list[float]


def query_slots(
    names: Sequence[str],
    rows: slice,
    arrays: SlotArrays,
    home: LaneMeasures,
    cloud: LaneMeasures,
    lanes: Sequence[tuple[int, str]],
) -> tuple[QuerySlot, ...]:
    """Return the production records of one gateway's queries.

    Args:
        names: the queries'.
        rows: theirs.
        arrays: the slot's.
        home: flows and rates at home.
        cloud: the same in the cloud.
        lanes: column and name of each existing cloud lane.
    """
    at_home = _home_lane(rows, arrays, home)
    in_cloud = [_cloud_lane(name, (rows, column), arrays, cloud) for column, name in lanes]
    queries = _Queries(
        arrays.latency_s[rows].tolist(),
        arrays.run_events[rows].tolist(),
        arrays.waiting[rows].tolist(),
        arrays.input_rate[rows].tolist(),
        arrays.input_bytes_per_s[rows].tolist(),
    )
    return tuple(
        _query_slot(name, q, queries, at_home, used)
        # A lane without any events so far has nothing to report.
        if (used := [one for one in in_cloud if one.smoothed_open[q] > 0 or one.rate[q] > 0])
        else _slot_at_home(name, q, queries, at_home)
        for q, name in enumerate(names)
    )


def _home_lane(rows: slice, arrays: SlotArrays, home: LaneMeasures) -> _Lane:
    completed = arrays.home_completed[rows]
    return _Lane(
        HOME,
        home.rate(rows).tolist(),
        home.open[rows].tolist(),
        home.completed_per_s[rows].tolist(),
        arrays.home_s[rows].tolist(),
        completed.tolist(),
        _whole(completed),
        (completed * arrays.event_s[rows]).tolist(),
        _whole(arrays.home_dispatched[rows]),
        _whole(arrays.home_open[rows]),
        arrays.home_full[rows].tolist(),
        [],
        [],
    )


def _cloud_lane(name: str, at: tuple[slice, int], arrays: SlotArrays, cloud: LaneMeasures) -> _Lane:
    completed = arrays.cloud_completed[at]
    return _Lane(
        name,
        cloud.rate(at).tolist(),
        cloud.open[at].tolist(),
        cloud.completed_per_s[at].tolist(),
        arrays.cloud_s[at].tolist(),
        completed.tolist(),
        _whole(completed),
        (completed * arrays.vm_event_s[at]).tolist(),
        _whole(arrays.cloud_dispatched[at]),
        _whole(arrays.cloud_open[at]),
        arrays.cloud_full[at].tolist(),
        _whole(arrays.raw_bytes[at]),
        _whole(arrays.sent_bytes[at]),
    )


def _whole(values: Array) -> list[int]:
    whole: list[int] = np.rint(values).astype(np.intp).tolist()
    return whole


def _query_slot(name: str, q: int, of: _Queries, home: _Lane, cloud: Sequence[_Lane]) -> QuerySlot:
    """Return one record. Values that round to zero are left out, as a Counter of the Profiler has no such key."""
    flow = smoothed_open = events = waited_s = 0.0
    for one in cloud:
        flow += one.completed_per_s[q]
        smoothed_open += one.smoothed_open[q]
        events += one.completed[q]
        waited_s += one.latency_s[q] * one.completed[q]
    lanes, run_events, home_flow = (home, *cloud), of.run_events[q], home.completed_per_s[q]
    done = [(one.name, count, one.busy_s[q]) for one in lanes if (count := one.completed_events[q])]
    open_events = {one.name: count for one in lanes if (count := one.open[q])}
    return QuerySlot(
        query=name,
        latency_s=of.latency_s[q],
        home_latency_s=home.latency_s[q] if home.completed[q] > 0 else None,
        cloud_latency_s=waited_s / events if events > 0 else None,
        home_lane_s=home.smoothed_open[q] / home_flow if home_flow > 0 else None,
        cloud_lane_s=smoothed_open / flow if flow > 0 else None,
        rates={one.name: rate for one in lanes if (rate := one.rate[q]) > 0},
        no_credit=frozenset([one.name for one in lanes if one.full[q]]) if of.waiting[q] > 0 else _NO_LANES,
        completed_events={lane: count for lane, count, _ in done},
        batches={lane: math.ceil(count / run_events) for lane, count, _ in done},
        busy_s={lane: busy_s for lane, _, busy_s in done},
        dispatched_events={one.name: count for one in lanes if (count := one.dispatched[q])},
        raw_bytes={one.name: count for one in cloud if (count := one.raw_bytes[q])},
        sent_bytes={one.name: count for one in cloud if (count := one.sent_bytes[q])},
        open_events=open_events,
        open_runs=len(open_events),
        backlog_events=round(of.waiting[q]),
        input_rate=of.input_rate[q],
        input_bytes_per_s=of.input_bytes_per_s[q],
    )


def _slot_at_home(name: str, q: int, of: _Queries, home: _Lane) -> QuerySlot:
    """Return the same record for a query with nothing in the cloud, as most are."""
    events, flow, open_events = home.completed_events[q], home.completed_per_s[q], home.open[q]
    rate, dispatched = home.rate[q], home.dispatched[q]
    return QuerySlot(
        query=name,
        latency_s=of.latency_s[q],
        home_latency_s=home.latency_s[q] if home.completed[q] > 0 else None,
        home_lane_s=home.smoothed_open[q] / flow if flow > 0 else None,
        rates={HOME: rate} if rate > 0 else {},
        no_credit=_HOME_ONLY if home.full[q] and of.waiting[q] > 0 else _NO_LANES,
        completed_events={HOME: events} if events else {},
        batches={HOME: math.ceil(events / of.run_events[q])} if events else {},
        busy_s={HOME: home.busy_s[q]} if events else {},
        dispatched_events={HOME: dispatched} if dispatched else {},
        open_events={HOME: open_events} if open_events else {},
        open_runs=1 if open_events else 0,
        backlog_events=round(of.waiting[q]),
        input_rate=of.input_rate[q],
        input_bytes_per_s=of.input_bytes_per_s[q],
    )
