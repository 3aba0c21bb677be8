"""When a gateway's scheduler has to be called: only if what it is told could make it do, or remember, anything.

A call is left out when nothing can come of it: the switching functions (ESM, eq. 1 and 2) and the ledger are asked
by thresholds and dates here, vectorised over all queries, and in doubt the scheduler itself is asked. In detail, at the
end of a slot it is called

* always, where a policy other than plain equation 1 was chosen, or events may be shed: these look at each slot;
* when anything but the end of a slot has happened to it, and in the slot after each call that had a reason: so every
  counter and every queue in it has come to rest before a call is left out;
* while a VM is anything but idle, any route leads to the cloud, or anything is in a VM's lane;
* without a VM: when a query that may be switched has L >= L_s, so that it asks for one;
* with an idle VM: when a query that may be switched has L >= L_d, so that it wants to go there; when a billing period
  is about to end; when a query could need a larger reservation of money than any that was made before.

What is left out is not lost: a call without a reason changes nothing in the scheduler but what it was shown last.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gateway.core.decide.scheduler import Scheduler, SchedulerSettings
from policies.arrays import Array, BoolArray, IntArray
from policies.vms.vm import VmState

_SLOTS_BEFORE_PERIOD = 4.0
_SLOTS_AFTER_PERIOD = 2.0


@dataclass(frozen=True, slots=True)
class GuardedSite:
    """What the guards know of a gateway: its rows, and what could limit its money."""

    rows: slice
    settings: SchedulerSettings

    @property
    def plans(self) -> bool:
        """Whether something else than thresholds decides here: a policy that looks at each slot, or shedding."""
        return self.settings.sheds or any(query.policy is not None for query in self.settings.queries)

    @property
    def money_matters(self) -> bool:
        """Whether a slot's forecast of egress can change what is reserved, and anything depends on that."""
        budget = self.settings.budget
        limited = (budget.usd_per_day, budget.usd_per_hour, budget.usd_per_query_day) != (None, None, None)
        return limited and self.settings.billing.usd_per_gb_sent > 0


class Guards:
    """Tells whose scheduler is to be called.

    Args:
        sites: the gateways.
        of_query: which gateway each query belongs to, shape (queries,).
        every_slot: call all, always.
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
        """Something that was not the end of a slot was told to this gateway's scheduler."""
        self._hot[site] = True

    def fired(self, at_s: float, latency_s: Array, input_bytes_per_s: Array) -> IntArray:
        """Return the gateways whose scheduler is to be called at the end of a slot.

        Args:
            at_s: the end of the slot.
            latency_s: L_t of each query.
            input_bytes_per_s: what its forecast of egress is made of.
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
        """Look at what a scheduler that was called just now stands by.

        Args:
            site: whose.
            scheduler: after the call.
            at_s: when it was called.
            input_bytes_per_s: as in ``fired``.
            lanes_empty: nothing is in a lane of its VMs.
        """
        known = self._sites[site]
        slot_s = known.settings.slot_s
        machines = scheduler.leases
        idle = bool(machines) and all(machine.state is VmState.IDLE for machine in machines)
        routed = any(len(route) > 1 for route in scheduler.routes.values())
        query_day = known.settings.budget.usd_per_query_day is not None
        # What is owed jumps when a period begins that was decided about before.
        begins = any(machine.block_since_s >= at_s - _SLOTS_AFTER_PERIOD * slot_s for machine in machines)
        self._always[site] = bool(machines) and (not idle or routed or not lanes_empty or query_day or begins)
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
