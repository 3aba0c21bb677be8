"""How engine hosts divide their time, and the content of their lanes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gateway.core.exchange.lanes.lane import HORIZON_S, LEAST_RUNS
from gateway.core.exchange.lanes.rate import RATE_MEMORY
from gateway.simulate.fluid.options import FluidQuery
from gateway.simulate.options import WAITING_PART, Machines
from policies.arrays import Array, IntArray

_ROUNDS_MOST = 32
_NOTHING = 1e-9


def divided(demand: Array, weight: Array, host: IntArray, capacity: Array) -> Array:
    """Divide each host's capacity among its lanes: no lane gets more than its demand, the rest goes by weight.

    This is weighted max-min fairness, computed by filling: a lane that demands less than its part gets all of it, and
    the rest is divided again among the others.

    Args:
        demand: of each lane, shape (lanes,).
        weight: the lane's part in a turn, shape (lanes,), positive.
        host: its host, shape (lanes,).
        capacity: shape (hosts,).

    Returns:
        What each lane gets, shape (lanes,).
    """
    hosts = len(capacity)
    short = np.bincount(host, demand, hosts) > capacity
    granted = demand.copy()
    if not np.count_nonzero(short):
        return granted
    active = short[host].nonzero()[0]
    left = capacity.copy()
    for _ in range(_ROUNDS_MOST):
        in_host, parts, asked = host[active], weight[active], demand[active]
        level = left / np.maximum(np.bincount(in_host, parts, hosts), _NOTHING)
        part = parts * level[in_host]
        content = asked <= part
        granted[active] = np.minimum(asked, part)
        if not np.count_nonzero(content):
            break
        left -= np.bincount(in_host[content], asked[content], hosts)
        active = active[~content]
    return granted


def served_in_turn(kept_s: Array, offered_s: Array, hold_s: Array, host: IntArray, capacity_s: Array) -> Array:
    """Return how long hosts work for each lane: first on what is there in order of arrival, then on what arrives.

    The content of the lanes arrived mixed, so a host that cannot serve all of it serves the same part of each lane. Of
    the arriving work, each lane then has there the most that it holds, or everything that is offered to it.

    Args:
        kept_s: work in each lane, shape (lanes,).
        offered_s: additional work that could arrive.
        hold_s: the most that it holds.
        host: its host.
        capacity_s: of the hosts, shape (hosts,).
    """
    hosts = len(capacity_s)
    queue_s = np.bincount(host, kept_s, hosts)
    part = np.minimum(1.0, capacity_s / np.maximum(queue_s, _NOTHING))
    left_s = np.maximum(0.0, capacity_s - queue_s)
    weight = np.maximum(np.minimum(hold_s, offered_s), _NOTHING)
    return kept_s * part[host] + divided(offered_s, weight, host, left_s)


def rest_of_others_s(work_s: Array, run_s: Array, host: IntArray, capacity_s: Array, cores: IntArray) -> Array:
    """Return how long a run waits on average for runs of other lanes that its host serves on its arrival.

    A host is busy with a lane for a part of the time, and then half of a run is left on average. A run waits only if
    all cores are busy, and the first of several is free sooner. A lane's own runs arrive during the service of one of
    them only if they queue, and the fluid models that queue.

    Args:
        work_s: how long the host worked for each lane in a slot, shape (lanes,).
        run_s: its work for one run.
        host: its host.
        capacity_s: of the hosts in a slot, shape (hosts,).
        cores: of the hosts.
    """
    hosts = len(capacity_s)
    part = work_s / capacity_s[host]
    served_s = part * run_s
    waits: Array = 1.0 / (cores + 1)
    if np.count_nonzero(cores > 1):
        waits *= np.minimum(1.0, np.bincount(host, part, hosts)) ** (cores - 1)
    rest_s: Array = (np.bincount(host, served_s, hosts)[host] - served_s) * waits[host]
    return rest_s


class ServiceRates:
    """``ServiceRate`` of many lanes: events per second while they have work, and how many they hold because of it.

    Args:
        shape: of all arrays.
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._served: Array = np.zeros(shape)
        self._busy_s: Array = np.zeros(shape)

    def end_slot(self, at: slice | IntArray, served: Array, busy_s: Array) -> None:
        """Note what the lanes ``at`` served in a slot, and for how long they had work."""
        self._served[at] = RATE_MEMORY * (self._served[at] + served)
        self._busy_s[at] = RATE_MEMORY * (self._busy_s[at] + busy_s)

    def end_slot_of_all(self, served: Array, busy_s: Array) -> None:
        """Do the same for all lanes."""
        for sums, more in ((self._served, served), (self._busy_s, busy_s)):
            sums += more
            sums *= RATE_MEMORY

    def per_s(self, at: slice | IntArray) -> Array:
        """Return events a second; 0 before the first."""
        served: Array = self._served[at] / np.maximum(self._busy_s[at], _NOTHING)
        return served

    def hold(self, at: slice | IntArray, run: Array) -> Array:
        """Return how many events are open in the lanes ``at`` while more wait.

        A run is taken whole while less than the horizon is open, so on average half a run more than that is open.
        """
        return np.maximum(HORIZON_S * self.per_s(at) + 0.5 * run, LEAST_RUNS * run)

    def forget(self, at: tuple[slice, int]) -> None:
        """Forget lanes that are gone."""
        self._served[at] = self._busy_s[at] = 0.0


@dataclass(slots=True)
class Served:
    """The events that lanes completed in a slot, and when these had arrived; all of one shape.

    Attributes:
        events: how many.
        runs: in how many runs.
        came_s: their mean arrival.
        first_s: the first arrival.
    """

    events: Array
    runs: Array
    came_s: Array
    first_s: Array


class RunCosts:
    """The cost of the runs of some lanes on a private host; all arrays can be broadcast to one shape.

    Args:
        event_s: for an event.
        batch_s: for a run, be it small.
        runs_each: how many runs an event is, in the lanes.
        offered_runs: the same of what comes into them.
        batch_runs: how many runs a micro-batch takes; None: one.

    Attributes:
        offered_runs: see above.
        kept_s: the cost of an event in the lanes.
        offered_s: the cost of an event that enters them.
        run: events per run in the lanes.
        one_run_s: how long a run is served.
        run_s: how long an event is in service.
    """

    def __init__(
        self, event_s: Array, batch_s: Array, runs_each: Array, offered_runs: Array, batch_runs: Array | None = None
    ) -> None:
        self._event_s = event_s
        self._batch_s = batch_s
        self.offered_runs = offered_runs
        self.kept_s: Array = event_s + batch_s * runs_each
        self.offered_s: Array = self.kept_s if offered_runs is runs_each else event_s + batch_s * offered_runs
        self.run: Array = 1.0 / runs_each
        self.one_run_s: Array = self.run * self.kept_s
        # A micro-batch is done as one, and a fluid passes through it: an event waits for the service of so many runs.
        self.run_s: Array = self.one_run_s if batch_runs is None else self.one_run_s * 0.5 * (batch_runs + 1.0)

    def served(self, granted_s: Array, kept: Array, put_runs: Array) -> Array:
        """Return how many events are served in this time: first those in the lane, then those that enter it."""
        old = np.minimum(kept, granted_s / self.kept_s)
        most: Array = old + np.maximum(0.0, granted_s - kept * self.kept_s) / (self._event_s + self._batch_s * put_runs)
        return most

    def served_at(self, rows: IntArray, granted_s: Array, kept: Array, put_runs: Array) -> Array:
        """Return the same of some rows of lanes at home; ``granted_s`` is of these, all else of all queries."""
        kept, kept_s = kept[rows], self.kept_s[rows]
        put_s = self._event_s[rows] + self._batch_s[rows] * put_runs[rows]
        old = np.minimum(kept, granted_s / kept_s)
        most: Array = old + np.maximum(0.0, granted_s - kept * kept_s) / put_s
        return most

    def work_s(self, served: Served) -> Array:
        """Return how long a host works for the served events."""
        work_s: Array = served.events * self._event_s + served.runs * self._batch_s
        return work_s


class QueryCosts:
    """The cost of events and runs of each query on a private host.

    Args:
        queries: the parameters of each.
        machines: of its gateway, for parameters that a query does not have.
    """

    def __init__(self, queries: Sequence[FluidQuery], machines: Sequence[Machines]) -> None:
        both = list(zip(queries, machines, strict=True))
        self._event_s: Array = np.array([1.0 / m.events_per_s if q.event_s is None else q.event_s for q, m in both])
        self._batch_s: Array = np.array([m.batch_s if q.batch_s is None else q.batch_s for q, m in both])
        self._further_run_s: Array = np.array([query.further_run_s for query in queries])
        self._batch_runs: Array = np.array([float(query.batch_runs) for query in queries])
        self._one_run = all(query.batch_runs == 1 for query in queries)

    def serve(self, per_s: float) -> None:
        """Use this rate for an event's cost from now on, however large a micro-batch is."""
        self._event_s.fill(1.0 / per_s)
        self._batch_s.fill(0.0)
        self._further_run_s.fill(0.0)

    def in_lanes(
        self, rows: slice | IntArray, lanes: Lanes, offered_runs: Array, rates: ServiceRates, coming_per_s: Array
    ) -> RunCosts:
        """Return what runs cost in some lanes.

        Args:
            rows: of the lanes.
            lanes: all lanes.
            offered_runs: what comes into these lanes is so many runs an event.
            rates: how fast they are.
            coming_per_s: events that came into them in the last slot per second, as home would see them: on a host of
                half the speed, twice as many.
        """
        shape = (-1, *(1,) * (lanes.kept.ndim - 1))
        event_s, batch_s = self._event_s[rows].reshape(shape), self._batch_s[rows].reshape(shape)
        runs_each = lanes.runs_each(rows, offered_runs)
        if self._one_run:
            return RunCosts(event_s, batch_s, runs_each, offered_runs)
        further_s, most = self._further_run_s[rows].reshape(shape), self._batch_runs[rows].reshape(shape)
        # A micro-batch takes the runs that came during the one before it.
        coming_runs = coming_per_s * runs_each
        idle = 1.0 - coming_runs * further_s - coming_per_s * event_s
        even = np.where(idle > 0, coming_runs * (batch_s - further_s) / np.maximum(idle, _NOTHING), np.inf)
        kept_runs = lanes.runs[rows]
        # While more runs wait than a lane holds, half of what it holds is in its micro-batch.
        held = WAITING_PART * rates.hold(rows, 1.0 / runs_each) * runs_each
        runs = np.clip(np.minimum(np.maximum(even, kept_runs + 0.5), held), 1.0, most)
        costs = RunCosts(event_s, (batch_s + (runs - 1.0) * further_s) / runs, runs_each, offered_runs, runs)
        # They waited half as long as it takes; the fluid keeps some of them.
        costs.run_s += costs.one_run_s * np.maximum(0.0, np.minimum(1.5 * (runs - 1.0), runs - 0.5) - kept_runs)
        return costs


class Lanes:
    """The content of some lanes between two slots: a fluid that arrived evenly between its first and last event.

    Args:
        shape: of all arrays.

    Attributes:
        kept: events.
        runs: in how many runs.
        mean_s: their mean arrival.
        first_s: the first arrival.
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.kept: Array = np.zeros(shape)
        self.runs: Array = np.zeros(shape)
        self.mean_s: Array = np.zeros(shape)
        self.first_s: Array = np.zeros(shape)

    def of(self, rows: IntArray) -> Lanes:
        """Return a copy of some of the lanes."""
        part = Lanes.__new__(Lanes)
        part.kept, part.runs = self.kept[rows], self.runs[rows]
        part.mean_s, part.first_s = self.mean_s[rows], self.first_s[rows]
        return part

    def put(self, rows: IntArray, part: Lanes) -> None:
        """Put such a copy back."""
        self.kept[rows], self.runs[rows] = part.kept, part.runs
        self.mean_s[rows], self.first_s[rows] = part.mean_s, part.first_s

    def forget(self, at: tuple[slice, int]) -> None:
        """Forget what is in some of the lanes."""
        self.kept[at] = self.runs[at] = 0.0

    def runs_each(self, at: slice | IntArray, otherwise: Array) -> Array:
        """Return the runs per event in the lanes ``at``, ``otherwise`` where there is none."""
        kept = self.kept[at]
        if kept.shape == otherwise.shape and not np.count_nonzero(kept):
            return otherwise
        return np.where(kept > 0, self.runs[at] / np.maximum(kept, _NOTHING), otherwise)

    def pass_through(self, put: Array, put_runs: Array, put_mean_s: Array, put_first_s: Array, most: Array) -> Served:
        """Put events into the lanes and take at most ``most`` out, first in, first out.

        Args:
            put: events that enter the lanes.
            put_runs: in how many runs these are.
            put_mean_s: their mean arrival at the gateway.
            put_first_s: their first arrival.
            most: what the hosts can serve.
        """
        served = Served(put.copy(), put_runs.copy(), put_mean_s.copy(), put_first_s.copy())
        busy = ((self.kept > 0) | (put > most)).nonzero()
        if len(busy[0]):
            self._queue(busy, put[busy], put_runs[busy], put_mean_s[busy], put_first_s[busy], most[busy], served)
        return served

    def _queue(
        self,
        at: tuple[IntArray, ...],
        put: Array,
        put_runs: Array,
        put_mean_s: Array,
        put_first_s: Array,
        most: Array,
        served: Served,
    ) -> None:
        """Do that for the lanes ``at``, in which something is or remains."""
        kept, mean_s, first_s = self.kept[at], self.mean_s[at], self.first_s[at]
        old = np.minimum(kept, most)
        new = np.minimum(put, most - old)
        span_s, put_span_s = 2.0 * (mean_s - first_s), 2.0 * (put_mean_s - put_first_s)
        part, put_part = old / np.maximum(kept, _NOTHING), new / np.maximum(put, _NOTHING)
        until_s, put_until_s = first_s + part * span_s, put_first_s + put_part * put_span_s
        events = old + new
        came_s = 0.5 * (old * (first_s + until_s) + new * (put_first_s + put_until_s)) / np.maximum(events, _NOTHING)
        served.events[at] = events
        all_runs = self.runs[at] + put_runs
        served.runs[at] = runs = part * self.runs[at] + put_part * put_runs
        served.came_s[at] = came_s
        served.first_s[at] = np.where(old > _NOTHING, first_s, put_first_s)
        old_left, new_left = kept - old, put - new
        left = old_left + new_left
        left[left <= _NOTHING] = 0.0
        old_sum_s = old_left * 0.5 * (until_s + first_s + span_s)
        new_sum_s = new_left * 0.5 * (put_until_s + put_first_s + put_span_s)
        self.mean_s[at] = (old_sum_s + new_sum_s) / np.maximum(left, _NOTHING)
        self.first_s[at] = np.where(old_left > _NOTHING, until_s, put_until_s)
        self.kept[at] = left
        self.runs[at] = np.where(left > 0, all_runs - runs, 0.0)

    def since_s(self, rows: IntArray) -> Array:
        """Return when the oldest event in each lane of some queries came; infinity where there is none."""
        return np.where(self.kept[rows] > 0, self.first_s[rows], np.inf)
