"""Records of a slot with only the values that equations 1 and 2, the ranking, the shares and the ledger use.

Making records is a large part of the cost of a scheduler call here. Where no policy plans and nothing is shed, nothing
uses the Profiler's other values: micro-batches, what home completes and how long that takes. The property test that
compares worlds with and without guards compares these records with complete ones, too: without guards all are
complete.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gateway.simulate.fluid.measures import LaneMeasures, SlotArrays
from policies.signals import HOME, QuerySlot

_NO_LANES: frozenset[str] = frozenset()
_HOME_ONLY = frozenset({HOME})
_NO_COUNTS: Mapping[str, int] = {}
_NO_TIMES: Mapping[str, float] = {}


class _Lane(NamedTuple):
    """One lane, plain numbers for each query: the queries of one gateway are too few for arrays.

    ``open`` and all from ``raw_bytes`` on are for the cloud only.
    """

    name: str
    smoothed_open: list[float]
    completed_per_s: list[float]
    rate: list[float]
    dispatched: list[float]
    full: list[bool]
    open: list[float]
    raw_bytes: list[float]
    sent_bytes: list[float]
    completed: list[float]
    latency_s: list[float]


class _Seen(NamedTuple):
    """The values of one query that do not depend on a lane."""

    query: str
    latency_s: float
    waits: bool
    input_rate: float
    input_bytes_per_s: float


def brief_slots(
    names: Sequence[str],
    rows: slice,
    arrays: SlotArrays,
    home: LaneMeasures,
    cloud: LaneMeasures,
    lanes: Sequence[tuple[int, str]],
) -> tuple[QuerySlot, ...]:
    """Return the same as ``measures.query_slots``, without unused values; see there."""
    at_home = _home_lane(rows, arrays, home)
    in_cloud = [_cloud_lane(name, (rows, column), arrays, cloud) for column, name in lanes]
    latency_s, waits = arrays.latency_s[rows].tolist(), (arrays.waiting[rows] > 0).tolist()
    rate, bytes_per_s = arrays.input_rate[rows].tolist(), arrays.input_bytes_per_s[rows].tolist()
    return tuple(
        _slot_in_cloud(seen, q, at_home, used)
        # A lane without any events so far has nothing to report.
        if (used := [one for one in in_cloud if one.smoothed_open[q] > 0 or one.rate[q] > 0])
        else _slot_at_home(seen, q, at_home)
        for q, seen in enumerate(map(_Seen, names, latency_s, waits, rate, bytes_per_s))
    )


def _home_lane(rows: slice, arrays: SlotArrays, home: LaneMeasures) -> _Lane:
    return _Lane(
        HOME,
        home.open[rows].tolist(),
        home.completed_per_s[rows].tolist(),
        home.rates(rows),
        arrays.home_dispatched[rows].tolist(),
        arrays.home_full[rows].tolist(),
        [],
        [],
        [],
        [],
        [],
    )


def _cloud_lane(name: str, at: tuple[slice, int], arrays: SlotArrays, cloud: LaneMeasures) -> _Lane:
    return _Lane(
        name,
        cloud.open[at].tolist(),
        cloud.completed_per_s[at].tolist(),
        cloud.rates(at),
        arrays.cloud_dispatched[at].tolist(),
        arrays.cloud_full[at].tolist(),
        arrays.cloud_open[at].tolist(),
        arrays.raw_bytes[at].tolist(),
        arrays.sent_bytes[at].tolist(),
        arrays.cloud_completed[at].tolist(),
        arrays.cloud_s[at].tolist(),
    )


def _slot_at_home(seen: _Seen, q: int, home: _Lane) -> QuerySlot:
    flow, rate, dispatched = home.completed_per_s[q], home.rate[q], round(home.dispatched[q])
    return QuerySlot(
        query=seen.query,
        latency_s=seen.latency_s,
        home_lane_s=home.smoothed_open[q] / flow if flow > 0 else None,
        rates={HOME: rate} if rate > 0 else _NO_TIMES,
        no_credit=_HOME_ONLY if home.full[q] and seen.waits else _NO_LANES,
        completed_events=_NO_COUNTS,
        batches=_NO_COUNTS,
        busy_s=_NO_TIMES,
        dispatched_events={HOME: dispatched} if dispatched else _NO_COUNTS,
        raw_bytes=_NO_COUNTS,
        sent_bytes=_NO_COUNTS,
        open_events=_NO_COUNTS,
        input_rate=seen.input_rate,
        input_bytes_per_s=seen.input_bytes_per_s,
    )


def _slot_in_cloud(seen: _Seen, q: int, home: _Lane, cloud: Sequence[_Lane]) -> QuerySlot:
    """Return one record; values that round to zero are left out, as in complete ones."""
    flow = smoothed_open = events = waited_s = 0.0
    for one in cloud:
        flow += one.completed_per_s[q]
        smoothed_open += one.smoothed_open[q]
        events += one.completed[q]
        waited_s += one.latency_s[q] * one.completed[q]
    lanes, home_flow = (home, *cloud), home.completed_per_s[q]
    return QuerySlot(
        query=seen.query,
        latency_s=seen.latency_s,
        home_lane_s=home.smoothed_open[q] / home_flow if home_flow > 0 else None,
        cloud_latency_s=waited_s / events if events > 0 else None,
        cloud_lane_s=smoothed_open / flow if flow > 0 else None,
        rates={one.name: rate for one in lanes if (rate := one.rate[q]) > 0},
        no_credit=frozenset([one.name for one in lanes if one.full[q]]) if seen.waits else _NO_LANES,
        completed_events={one.name: count for one in cloud if (count := round(one.completed[q]))},
        batches=_NO_COUNTS,
        busy_s=_NO_TIMES,
        dispatched_events={one.name: count for one in lanes if (count := round(one.dispatched[q]))},
        raw_bytes={one.name: count for one in cloud if (count := round(one.raw_bytes[q]))},
        sent_bytes={one.name: count for one in cloud if (count := round(one.sent_bytes[q]))},
        open_events={one.name: count for one in cloud if (count := round(one.open[q]))},
        input_rate=seen.input_rate,
        input_bytes_per_s=seen.input_bytes_per_s,
    )
