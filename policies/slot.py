"""The measurements of one query in one slot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from operator import attrgetter
from types import MappingProxyType
from typing import Any

from policies.queueing.sketch import TimesSeen

HOME = "home"
"""Name of the private lane; every other lane has the name of its VM."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuerySlot:
    """The profiler's measurements of one query in one slot.

    Attributes:
        query: name of the query.
        latency_s: L_t, the latency that switching looks at.
        home_latency_s: mean completion latency of the private lane in the slot; None without completions.
        cloud_latency_s: the same over all cloud lanes.
        home_lane_s: how long an event that is dispatched to the private lane now will be in it, by Little's law: open
            events over events completed per second, both smoothed. Unlike the completion latency it is up to date, and
            it leaves out the wait before the lanes, which is the same for all. None before the first completion.
        cloud_lane_s: the same over all cloud lanes.
        rates: service rate by lane in events per busy second; a lane that was never measured is absent.
        no_credit: lanes that had no credit for a run at some moment of the slot.
        completed_events: events that each lane completed in the slot.
        batches: micro-batches with these events.
        busy_s: how long those took.
        dispatched_events: events dispatched to each lane in the slot.
        dispatched_runs: runs dispatched in the slot; 0 if unknown.
        raw_bytes: bytes dispatched to each cloud lane in the slot before trimming and compression; D_t is their sum.
        sent_bytes: bytes that crossed the WAN to each cloud lane in the slot.
        open_events: events dispatched to each lane and not completed, now.
        open_runs: runs dispatched to any lane and not completed, now.
        backlog_events: events due and not yet dispatched, now.
        input_rate: events per second that became due in the slot.
        input_bytes_per_s: their raw bytes per second.
        out_of_order_share: share of the events completed in the slot whose run was completed after a later one.
        load1: load average of the gateway's machine over one minute.
        pause_s: how long the query's events would be held if it moved to another place with its state, as its last
            move and copy suggest; 0 if it is away or has no state.
        heaviest_part: the part of a keyed query with the most events has so much of them, in [0, 1]; 0 if the query is
            not divided.
        gaps: the times between the slot's events, in seconds; None if they are not known.
        batch_times: for each micro-batch that a lane completed in the slot, its time per event over the mean of that
            lane; None without one, or if micro-batches are not measured one by one.
    """

    query: str
    latency_s: float
    home_latency_s: float | None = None
    cloud_latency_s: float | None = None
    home_lane_s: float | None = None
    cloud_lane_s: float | None = None
    rates: Mapping[str, float] = field(default_factory=dict)
    no_credit: frozenset[str] = frozenset()
    completed_events: Mapping[str, int] = field(default_factory=dict)
    batches: Mapping[str, int] = field(default_factory=dict)
    busy_s: Mapping[str, float] = field(default_factory=dict)
    dispatched_events: Mapping[str, int] = field(default_factory=dict)
    raw_bytes: Mapping[str, int] = field(default_factory=dict)
    sent_bytes: Mapping[str, int] = field(default_factory=dict)
    open_events: Mapping[str, int] = field(default_factory=dict)
    open_runs: int = 0
    backlog_events: int = 0
    input_rate: float = 0.0
    input_bytes_per_s: float = 0.0
    out_of_order_share: float = 0.0
    load1: float = 0.0
    pause_s: float = 0.0
    heaviest_part: float = 0.0
    dispatched_runs: int = 0
    gaps: TimesSeen | None = None
    batch_times: TimesSeen | None = None


_NAMES = tuple(each.name for each in fields(QuerySlot))
_MAPPINGS = tuple(each.name for each in fields(QuerySlot) if each.default_factory is dict)
_values = attrgetter(*_NAMES)
_NOTHING: Mapping[str, Any] = MappingProxyType({})


def detached(slot: QuerySlot) -> QuerySlot:
    """Return an equal record whose mappings can be changed by nobody: for those who are only shown it."""
    values: dict[str, Any] = dict(zip(_NAMES, _values(slot), strict=True))
    for name in _MAPPINGS:
        values[name] = MappingProxyType(dict(values[name])) if values[name] else _NOTHING
    return QuerySlot(**values)
