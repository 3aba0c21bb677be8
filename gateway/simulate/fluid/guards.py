"""When a gateway's scheduler must be called: only if the call could make it do or remember anything.

A call is left out if it can have no effect. Thresholds and dates, vectorised over all queries, decide this for the
switching functions (ESM, eq. 1 and 2) and the ledger; in doubt the scheduler itself is called. In detail, it is called
at the end of a slot

* always, if a policy other than plain equation 1 was chosen, or events may be shed: these look at each slot;
* when anything but the end of a slot has happened to it, and in the slot after each call that had a reason: so every
counter and every queue in it is at rest before a call is left out;
* while a VM is anything but idle, any route leads to the cloud, or anything is in a VM's lane;
* without a VM: when a query that may be switched has L >= L_s, so that it asks for one;
* with an idle VM: when a query that may be switched has L >= L_d, so that it wants to go there; when a billing period
is about to end; when a query could need a larger reservation of money than any before.

Nothing is lost: a call without a reason changes nothing in the scheduler except the last slot that it was shown.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gateway.core.decide.scheduler import Scheduler, SchedulerSettings
from policies.arrays import Array, BoolArray, IntArray
from policies.choose import choice
from policies.vms.vm import VmState

_SLOTS_BEFORE_PERIOD = 4.0
_SLOTS_AFTER_PERIOD = 2.0


@dataclass(frozen=True, slots=True)
class GuardedSite:
    """The guards' data of a gateway: its rows, and what could limit its money."""

    rows: slice
    settings: SchedulerSettings

    @property
    def plans(self) -> bool:
        """Whether something other than thresholds decides here: a policy that looks at each slot, or shedding."""
        return self.settings.sheds or any(choice(query).is_asked for query in self.settings.queries)

    @property
    def money_matters(self) -> bool:
        """Whether a slot's forecast of egress can change a reservation, and anything depends on that."""
        budget = self.settings.budget
        limited = (budget.usd_per_day, budget.usd_per_hour, budget.usd_per_query_day) != (None, None, None)
        return limited and self.settings.billing.usd_per_gb_sent > 0


class Guards:
    """Decides which schedulers must be called.

    Args:
        sites: the gateways.
        of_query: which gateway each query belongs to, shape (queries,).
        every_slot: always call all.
    """

    def __init__(self, sites: list[GuardedSite], of_query: IntArray, *, every_slot: bool) -> None:
        self._sites = sites
        self._of_query = of_query
        self._every: BoolArray = np.array([every_slot or site.plans for site in sites], dtype=np.bool_)
        settings = [query for site in sites for query in site.settings.queries]
        # A query that never moves is never above.
        movable = np.array([q.switchable and q.mode != "off" for q in settings], dtype=np.bool_)
        self._start_s: Array = np.where(movable, [q.switching.start_vm_above_s for q in settings], np.inf)
        self._send_s: Array = np.where(movable, [q.switching.send_above_s for q in settings], np.inf)
        count = len(sites)
        self._hot: BoolArray = np.ones(count, dtype=np.bool_)
        self._always: BoolArray = np.zeros(count, dtype=np.bool_)
        self._may_start: BoolArray = np.zeros(count, dtype=np.bool_)
        self._idle: BoolArray = np.zeros(count, dtype=np.bool_)
        self._due_s: Array = np.full(count, np.inf)
        self._money: BoolArray = np.zeros(count, dtype=np.bool_)
        self._forecast: Array = np.zeros(len(settings))

    def happened(self, site: int) -> None:
        """Note that this gateway's scheduler got an event that is not the end of a slot."""
        self._hot[site] = True

    def fired(self, at_s: float, latency_s: Array, input_bytes_per_s: Array) -> IntArray:
        """Return the gateways whose scheduler must be called at the end of a slot.

        Args:
            at_s: the end of the slot.
            latency_s: L_t of each query.
            input_bytes_per_s: the basis of its forecast of egress.
        """
        reason = self._every | self._always | (at_s >= self._due_s)
        for idle, above_s in ((self._may_start, self._start_s), (self._idle, self._send_s)):
            crossed = latency_s >= above_s
            if np.count_nonzero(crossed):
                sites = self._of_query[crossed]
                reason[sites[idle[sites]]] = True
        if np.count_nonzero(self._money):
            grown = self._money[self._of_query] & (input_bytes_per_s > self._forecast)
            reason[self._of_query[grown]] = True
        called = reason | self._hot
        self._hot = reason
        return np.flatnonzero(called)

    def called(
        self, site: int, scheduler: Scheduler, at_s: float, input_bytes_per_s: Array, *, lanes_empty: bool
    ) -> None:
        """Read the state of a scheduler that was called just now.

        Args:
            site: its gateway.
            scheduler: after the call.
            at_s: when it was called.
            input_bytes_per_s: as for ``fired``.
            lanes_empty: whether nothing is in a lane of its VMs.
        """
        known = self._sites[site]
        slot_s = known.settings.slot_s
        machines = scheduler.leases
        idle = bool(machines) and all(machine.state is VmState.IDLE for machine in machines)
        routed = any(len(route) > 1 for route in scheduler.routes.values())
        # What is needed of a quota, and of a query's money, changes with each slot.
        by_slot = known.settings.budget.usd_per_query_day is not None or known.settings.quota
        # The debt jumps when a period begins that was decided before.
        begins = any(machine.block_since_s >= at_s - _SLOTS_AFTER_PERIOD * slot_s for machine in machines)
        self._always[site] = bool(machines) and (not idle or routed or not lanes_empty or by_slot or begins)
        self._may_start[site] = not machines and known.settings.max_vms > 0
        self._idle[site] = idle
        ends_s = [min(machine.block_end_s, machine.ends_s) for machine in machines]
        due_s = min(ends_s, default=np.inf) - _SLOTS_BEFORE_PERIOD * slot_s
        self._money[site] = idle and known.money_matters
        rows, now = known.rows, input_bytes_per_s[known.rows]
        if self._always[site] or due_s != self._due_s[site]:
            self._forecast[rows] = -1.0
        else:
            self._forecast[rows] = np.maximum(now, self._forecast[rows])
        self._due_s[site] = due_s
