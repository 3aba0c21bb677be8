"""One slot of all lanes: how many events each gets, what hosts complete of them, and how long that took.

The model, for each query of a gateway:

* Events wait in the gateway until a lane has room (``waiting``). Lanes hold little, as in the daemon: what they
complete in ``HORIZON_S``, but at least two runs.
* Dispatch follows ``gateway.core.exchange.routing``: a cloud lane never gets more than its share; home takes what cloud
lanes cannot, unless its share is 0.
* A host serves the runs of its queries in turn (``hosts.divided``). A micro-batch costs a fixed time, a time for each
  further run and a time for each event; it takes one run, or of some queries what waits in the lane.
* A link carries a fixed number of bytes per second to each VM.
* Runs are cut when they arrive (``cutting``), keep their size while they wait, and are served in this order.
* The latency of an event is: half the time that a run is open, the wait for a lane, the time in it, the rest of the run
of another query that the host is serving, and the service of its own run; in the cloud also the link's delay there and
back and the transfer of its run. Nothing else varies: below saturation a fluid does not queue.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gateway.simulate.fluid.cutting import FluidCutting
from gateway.simulate.fluid.hosts import (
    Lanes,
    QueryCosts,
    RunCosts,
    Served,
    ServiceRates,
    divided,
    rest_of_others_s,
    served_in_turn,
)
from gateway.simulate.fluid.measures import LaneMeasures, SlotArrays
from gateway.simulate.fluid.options import FluidSite
from gateway.simulate.fluid.waiting import WaitingEvents
from policies.arrays import Array, IntArray

_NOTHING = 1e-9
_ALMOST_ALL = 0.999
_NO_ROWS: IntArray = np.zeros(0, dtype=np.intp)
_P95 = 0.45
"""Distance of the 95th percentile of uniform arrivals from their mean, as a part of the whole span."""


def _of(sites: Sequence[FluidSite], get: object, of_query: IntArray) -> Array:
    return np.array([get(site.machines) for site in sites])[of_query]  # type: ignore[operator]


class Flow:
    """All lanes of all queries.

    Args:
        sites: the gateways.
        of_query: the gateway of each query, shape (queries,).

    Attributes:
        waiting: events that are in no lane yet.
        home: the content of lanes at home, shape (queries,).
        cloud: the content of lanes of VMs, shape (queries, VMs).
        shares: of the cloud lanes, shape (queries, VMs); home has the rest.
        slot: the last measurements.
        sent_bytes: all bytes over the WAN, shape (queries,).
        shed: the part of the events that is shed, shape (queries,).
        shed_events: all events that were shed, shape (queries,).
    """

    def __init__(self, sites: Sequence[FluidSite], of_query: IntArray) -> None:
        queries = [query for site in sites for query in site.queries]
        count, vms = len(queries), max(1, max(site.scheduler.max_vms for site in sites))
        self._of_query = of_query
        self._slot_s = slot_s = sites[0].scheduler.slot_s
        self._vms = vms
        self._event_bytes: Array = np.array([query.event_bytes for query in queries])
        self._sent_event_bytes: Array = self._event_bytes * [query.sent_part for query in queries]
        self._p95: Array = np.array([_P95 if query.statistic == "p95" else 0.0 for query in queries])
        self._some_p95 = bool(np.count_nonzero(self._p95))
        self._costs = QueryCosts(queries, [sites[site].machines for site in of_query])
        self._disordered: Array = np.array([query.disordered for query in queries])
        self._some_disordered = bool(np.count_nonzero(self._disordered))
        self._there_and_back_s: Array = 2.0 * _of(sites, lambda m: m.link_delay_s, of_query)
        self._link_bytes_per_s: Array = _of(sites, lambda m: m.link_bytes_per_s, of_query)
        self._host_s: Array = np.array([site.machines.cores * slot_s for site in sites])
        self._vm_speed: Array = _of(sites, lambda m: m.vm_speed, of_query)
        # The VMs of a gateway are separate hosts, with separate links. Their work counts as the time that the private
        # host would need for it.
        self._vms_s: Array = np.repeat(self._host_s * [site.machines.vm_speed for site in sites], vms)
        self._links_bytes: Array = np.repeat([site.machines.link_bytes_per_s * slot_s for site in sites], vms)
        self._columns: IntArray = np.arange(vms)
        self._each: Array = np.ones(vms)
        self.waiting = WaitingEvents(count, slot_s)
        self.home = Lanes((count,))
        self.cloud = Lanes((count, vms))
        self.shares: Array = np.zeros((count, vms))
        self._further_runs: Array = np.array([query.batch_runs - 1.0 for query in queries])
        self._home_rates = ServiceRates((count,))
        self._cloud_rates = ServiceRates((count, vms))
        self._cutting = FluidCutting(queries, slot_s, self._home_rates, self._cloud_rates)
        self.home_measures = LaneMeasures((count,), slot_s)
        self.cloud_measures = LaneMeasures((count, vms), slot_s)
        self.slot = SlotArrays(count, vms)
        self.sent_bytes: Array = np.zeros(count)
        self.again_events: Array = np.zeros(count)
        self.shed: Array = np.zeros(count)
        self.shed_events: Array = np.zeros(count)
        self._runs_each: Array = np.ones(count)
        self._taken: Array = np.zeros(count)
        self._owed: Array = np.zeros(count)
        self._cores: IntArray = np.array([site.machines.cores for site in sites])
        self._vm_cores: IntArray = np.repeat(self._cores, vms)
        self._home_rest_s: Array = np.zeros(count)
        self._cloud_rest_s: Array = np.zeros((count, vms))
        self._no_bound: Array = np.full(count, np.inf)
        self._service_s: Array = np.zeros(count)
        self._now = -1

    # ------------------------------------------------------------------------------------------------------- a slot

    def serve(self, home_per_s: float, vm_per_s: float) -> None:
        """Use these rates for an event's cost from now on, however large a micro-batch is."""
        self._costs.serve(home_per_s)
        self._vm_speed.fill(vm_per_s / home_per_s)
        self._vms_s = np.repeat(self._host_s * (vm_per_s / home_per_s), self._vms)

    def step(self, due: Array, in_cloud: IntArray) -> None:
        """Simulate a slot.

        Args:
            due: events of each query, shape (queries,).
            in_cloud: rows of the queries whose gateway has a VM that can serve, ascending.
        """
        self._now += 1
        came = due
        if np.count_nonzero(self.shed):
            came = due * (1.0 - self.shed)
            self.shed_events += due - came
        self.waiting.add(self._now, came, self._cutting.cut(came, self._queued_runs()))
        runs_each = self._seen_runs_each()
        coming_h = self.slot.home_dispatched / self._slot_s
        at_home = self._costs.in_lanes(slice(None), self.home, runs_each, self._home_rates, coming_h)
        waiting = self.waiting.events.copy()
        apart = self._apart(in_cloud, waiting, runs_each)
        shares = self._cloud_shares(in_cloud, apart)
        coming_c = self.slot.cloud_dispatched[in_cloud] / (self._vm_speed[in_cloud, None] * self._slot_s)
        of_vms = self._costs.in_lanes(in_cloud, self.cloud, runs_each[in_cloud, None], self._cloud_rates, coming_c)
        lane_c = self._cloud_lane_s(in_cloud, of_vms)
        granted_c, room_c = self._cloud_takes(in_cloud, waiting[in_cloud], shares, of_vms, lane_c)
        offered = waiting.copy()
        home_share = np.ones(len(came))
        if len(in_cloud):
            home_share[in_cloud] = share = np.maximum(0.0, 1.0 - np.add.reduce(self.shares[in_cloud], axis=1))
            offered[in_cloud] -= np.add.reduce(np.minimum(room_c, shares * waiting[in_cloud, None]), axis=1)
            none = in_cloud[share < _NOTHING]
            offered[none] = apart[share < _NOTHING] * waiting[none]
        busy, granted_h, room_h = self._home_takes(offered, at_home)
        put_h, put_c = self._dispatched(waiting, home_share, apart, in_cloud, shares, room_h, room_c)
        taken = put_h.copy()
        taken[in_cloud] += np.add.reduce(put_c, axis=1)
        self._owed[in_cloud] += self._disordered[in_cloud] * taken[in_cloud] - put_h[in_cloud]
        self._taken = np.minimum(taken, self.waiting.events)
        mean_s, first_s, runs = self.waiting.take(self._taken)
        runs_each = np.where(self._taken > _NOTHING, runs / np.maximum(self._taken, _NOTHING), runs_each)
        most_h = self._no_bound
        if len(busy):
            most_h = most_h.copy()
            most_h[busy] = at_home.served_at(busy, granted_h, self.home.kept, runs_each)
        home = self.home.pass_through(put_h, put_h * runs_each, mean_s, first_s, most_h)
        self._measure_home(put_h, home, at_home)
        if len(in_cloud):
            came_s = mean_s[in_cloud], first_s[in_cloud]
            self._serve_cloud(in_cloud, put_c, runs_each[in_cloud, None], came_s, granted_c, of_vms, lane_c)
        self._measure(due, home, in_cloud)

    def _queued_runs(self) -> Array:
        """Return how many runs wait for a lane or, at home, behind the micro-batch; a fluid has no run in service."""
        return self.waiting.runs + np.maximum(0.0, self.home.runs - self._further_runs)

    def _seen_runs_each(self) -> Array:
        """Return the runs per event of the events that are dispatched next: as in the last slot, or of all."""
        ahead = self.waiting.events
        if np.minimum.reduce(self.waiting.oldest) < self._now:
            ahead = np.where(self._taken > _NOTHING, np.minimum(self._taken, ahead), ahead)
        runs = self.waiting.ahead(ahead)
        self._runs_each = np.where(ahead > _NOTHING, runs / np.maximum(ahead, _NOTHING), self._runs_each)
        return self._runs_each

    def _apart(self, rows: IntArray, waiting: Array, runs_each: Array) -> Array:
        """Return the part of the waiting events that is out of order and goes home, for rows with VMs.

        If home gets nothing else, that is a whole run now and then. In most slots it is nothing, so L_t is that of the
        VMs.
        """
        apart, whole = self._disordered[rows], np.add.reduce(self.shares[rows], axis=1) > 1.0 - _NOTHING
        if np.count_nonzero(whole & (apart > 0)):
            owed = np.where(self._owed[rows] * runs_each[rows] >= 1.0, self._owed[rows], 0.0)
            apart = np.where(whole, np.minimum(_ALMOST_ALL, owed / np.maximum(waiting[rows], _NOTHING)), apart)
        self._owed[rows[~whole]] = 0.0
        return apart

    def _cloud_shares(self, rows: IntArray, apart: Array) -> Array:
        """Return the shares of cloud lanes, less where more than the rest is out of order and goes home."""
        shares = self.shares[rows]
        if not self._some_disordered:
            return shares
        most, total = 1.0 - apart, np.add.reduce(shares, axis=1)
        kept: Array = shares * np.minimum(1.0, most / np.maximum(total, _NOTHING))[:, None]
        return kept

    def _home_takes(self, offered: Array, costs: RunCosts) -> tuple[IntArray, Array, Array]:
        """Return the rows whose host has too much to do, how long it works for each, and what all lanes can take.

        The lengths of time are of these rows, and what lanes at home can take is of all queries.
        """
        kept_s, offered_s = self.home.kept * costs.kept_s, offered * costs.offered_s
        over = np.bincount(self._of_query, kept_s + offered_s, len(self._host_s)) > self._host_s
        if not np.count_nonzero(over):
            return _NO_ROWS, self._no_bound, self._no_bound
        rows = over[self._of_query].nonzero()[0]
        # What is served now is open, too: the queue before it is so much shorter.
        served_s = costs.run_s[rows] + self._home_rest_s[rows]
        queue = self._home_rates.hold(rows, costs.run[rows]) - self._home_rates.per_s(rows) * served_s
        hold = np.maximum(0.0, queue)
        hold_s = hold * costs.offered_s[rows]
        granted_s = served_in_turn(kept_s[rows], offered_s[rows], hold_s, self._of_query[rows], self._host_s)
        most = costs.served_at(rows, granted_s, self.home.kept, costs.offered_runs)
        room = self._no_bound.copy()
        room[rows] = np.maximum(0.0, most + hold - self.home.kept[rows])
        return rows, granted_s, room

    def _cloud_lane_s(self, rows: IntArray, costs: RunCosts) -> Array:
        """Return how long a run is in an empty lane of a VM, shape (rows, VMs)."""
        carried_s = costs.run * (self._sent_event_bytes[rows] / self._link_bytes_per_s[rows])[:, None]
        served_s = costs.run_s / self._vm_speed[rows, None] + self._cloud_rest_s[rows]
        lane_s: Array = served_s + self._there_and_back_s[rows, None] + carried_s
        return lane_s

    def _cloud_takes(
        self, rows: IntArray, waiting: Array, shares: Array, costs: RunCosts, lane_s: Array
    ) -> tuple[Array, Array]:
        """Return the same for the lanes of VMs, shapes (rows, VMs), limited by their links."""
        if not len(rows):
            none = np.zeros((0, self._vms))
            return none, none
        kept, run = self.cloud.kept[rows], costs.run
        hosts = self._vm_hosts(rows)
        offered = shares * waiting[:, None]
        size = self._sent_event_bytes[rows, None]
        carried = divided((offered * size).ravel(), (run * size).ravel(), hosts, self._links_bytes)
        put_most = np.minimum(offered, carried.reshape(offered.shape) / np.maximum(size, _NOTHING))
        most_open = self._cloud_rates.hold(rows, run)
        hold = np.maximum(0.0, most_open - self._cloud_rates.per_s(rows) * lane_s)
        works_s = kept * costs.kept_s, put_most * costs.offered_s, hold * costs.offered_s
        kept_s, put_s, hold_s = (of.ravel() for of in works_s)
        granted_s = served_in_turn(kept_s, put_s, hold_s, hosts, self._vms_s).reshape(kept.shape)
        most = costs.served(granted_s, kept, costs.offered_runs)
        # Open events leave the lane only as fast as its link and its host allow.
        put_most = np.minimum(put_most, most_open * np.maximum(1.0, self._slot_s / lane_s))
        return granted_s, np.minimum(put_most, np.maximum(0.0, most + hold - kept))

    def _vm_hosts(self, rows: IntArray) -> IntArray:
        hosts: IntArray = (self._of_query[rows, None] * self._vms + self._columns).ravel()
        return hosts

    def _dispatched(
        self,
        waiting: Array,
        home_share: Array,
        apart: Array,
        rows: IntArray,
        shares: Array,
        room_h: Array,
        room_c: Array,
    ) -> tuple[Array, Array]:
        """Return what is dispatched to each lane, like ``gateway.core.exchange.routing`` in the long run."""
        if not len(rows):
            return np.minimum(waiting, room_h), room_c
        here = waiting[rows]
        some = home_share[rows] >= _NOTHING
        # All wait behind a run that finds no room at home.
        share = np.maximum(home_share[rows], apart)
        whole = np.minimum(here, room_h[rows] / np.maximum(share, _NOTHING))
        put_c = np.minimum(room_c, shares * whole[:, None])
        in_cloud = np.add.reduce(put_c, axis=1)
        rest = waiting.copy()
        rest[rows] = np.where(some, here - in_cloud, np.minimum(here - in_cloud, in_cloud * apart / (1.0 - apart)))
        return np.maximum(0.0, np.minimum(rest, room_h)), put_c

    # ------------------------------------------------------------------------------------------------------ measuring

    def _latency_s(self, served: Served, base_s: Array) -> Array:
        return np.maximum(0.0, (self._now + 0.5) * self._slot_s - served.came_s) + base_s

    def _measure_home(self, put: Array, served: Served, costs: RunCosts) -> None:
        slot, kept, busy_s = self.slot, self.home.kept, costs.work_s(served)
        self._home_rest_s = rest_of_others_s(busy_s, costs.one_run_s, self._of_query, self._host_s, self._cores)
        self._service_s = run_s = costs.run_s + self._home_rest_s
        slot.home_s = self._latency_s(served, 0.5 * self._cutting.open_s + run_s)
        slot.home_completed = served.events
        slot.home_dispatched = put
        slot.home_open = kept + served.events / self._slot_s * run_s
        slot.home_full = self.waiting.events > 0
        slot.run_events = costs.run
        slot.event_s = busy_s / np.maximum(served.events, _NOTHING)
        self.home_measures.end_slot_of_all(slot.home_open, served.events, busy_s)
        had_work_s = np.where(kept > 0, self._slot_s, np.minimum(busy_s, self._slot_s))
        self._home_rates.end_slot_of_all(served.events, had_work_s)

    def _serve_cloud(
        self,
        rows: IntArray,
        put: Array,
        runs_each: Array,
        came_s: tuple[Array, Array],
        granted_s: Array,
        costs: RunCosts,
        lane_s: Array,
    ) -> None:
        """Serve the lanes of VMs; all arguments but ``rows`` are of these rows; ``came_s``: mean and first arrival."""
        part = self.cloud.of(rows)
        mean_s, first_s = (of[:, None] * self._each for of in came_s)
        most = costs.served(granted_s, part.kept, runs_each)
        served = part.pass_through(put, put * runs_each, mean_s, first_s, most)
        self.cloud.put(rows, part)
        work_s, run_s = costs.work_s(served), costs.one_run_s / self._vm_speed[rows, None]
        rest_s = rest_of_others_s(work_s.ravel(), run_s.ravel(), self._vm_hosts(rows), self._vms_s, self._vm_cores)
        self._cloud_rest_s[rows] = rest_s.reshape(work_s.shape)
        busy_s = work_s / self._vm_speed[rows, None]
        event_s = costs.kept_s / self._vm_speed[rows, None]
        self.slot.vm_event_s[rows] = np.where(served.events > 0, busy_s / np.maximum(served.events, _NOTHING), event_s)
        slot = self.slot
        slot.cloud_s[rows] = self._latency_s(served, 0.5 * self._cutting.open_s[rows, None] + lane_s)
        slot.cloud_completed[rows] = served.events
        slot.cloud_dispatched[rows] = put
        slot.cloud_open[rows] = now_open = part.kept + served.events / self._slot_s * lane_s
        slot.raw_bytes[rows] = put * self._event_bytes[rows, None]
        slot.sent_bytes[rows] = sent = put * self._sent_event_bytes[rows, None]
        slot.cloud_full[rows] = (part.kept > 0) & (self.waiting.events[rows, None] > 0)
        self.sent_bytes[rows] += np.add.reduce(sent, axis=1)
        self.cloud_measures.end_slot(rows, now_open, served.events, busy_s)
        had_work_s = np.minimum(served.runs * lane_s, self._slot_s)
        self._cloud_rates.end_slot(rows, served.events, np.where(part.kept > 0, self._slot_s, had_work_s))

    def _measure(self, due: Array, home: Served, rows: IntArray) -> None:
        """L_t as the Profiler measures it: of the private lane once both are in use, and not below what is open."""
        slot, ends_s = self.slot, (self._now + 1) * self._slot_s
        slot.waiting = self.waiting.events
        slot.input_rate = due / self._slot_s
        slot.input_bytes_per_s = slot.input_rate * self._event_bytes
        seen_s = slot.home_s
        if self._some_p95:
            seen_s = seen_s + self._p95 * (2.0 * np.maximum(0.0, home.came_s - home.first_s))
        slot.latency_s = seen_s = np.where(home.events > 0, seen_s, 0.0)
        if len(rows):
            home_in_use = (home.events > 0) | (self.home.kept > 0)
            some = ~home_in_use[rows]
            events = slot.cloud_completed[rows]
            total = np.add.reduce(events, axis=1)
            mean_s = np.add.reduce(slot.cloud_s[rows] * events, axis=1) / np.maximum(total, _NOTHING)
            seen_s[rows] = np.where(some & (total > 0), mean_s, seen_s[rows])
            of_cloud_s = np.where(some, np.minimum.reduce(self.cloud.since_s(rows), axis=1), np.inf)
            seen_s[rows] = np.maximum(seen_s[rows], ends_s - of_cloud_s)
        at = ((self.waiting.events > 0) | (self.home.kept > 0)).nonzero()[0]
        if len(at):
            oldest_s = np.minimum(self.waiting.since_s(at), self.home.since_s(at))
            seen_s[at] = np.maximum(seen_s[at], ends_s - oldest_s)

    @property
    def run_s(self) -> float:
        """The longest time that a private host works for a run."""
        return float(self._service_s.max())

    def cpu(self, rows: slice, column: int | None) -> float:
        """Return the part of the slot in which a host was busy: home, or a VM."""
        slot, site = self.slot, int(self._of_query[rows.start])
        if column is None:
            busy_s = slot.home_completed[rows] * slot.event_s[rows]
        else:
            busy_s = slot.cloud_completed[rows, column] * slot.vm_event_s[rows, column]
        return min(1.0, float(busy_s.sum()) / float(self._host_s[site]))

    # ---------------------------------------------------------------------------------------------------------- lanes

    def close(self, rows: slice, column: int) -> None:
        """Remove a VM's lane from some queries; its content waits again."""
        at = (rows, column)
        ids = np.arange(rows.start, rows.stop)
        kept, runs, mean_s = (of[at].copy() for of in (self.cloud.kept, self.cloud.runs, self.cloud.mean_s))
        self.waiting.put_back(ids, kept, runs, mean_s)
        self.again_events[ids] += kept
        self.cloud.forget(at)
        self.shares[at] = 0.0
        self.cloud_measures.forget(at)
        self._cloud_rates.forget(at)
        self._cloud_rest_s[at] = 0.0
        for values in (self.slot.cloud_s, self.slot.cloud_completed, self.slot.cloud_dispatched):
            values[at] = 0.0
        for values in (self.slot.cloud_open, self.slot.raw_bytes, self.slot.sent_bytes):
            values[at] = 0.0
        self.slot.cloud_full[at] = False
