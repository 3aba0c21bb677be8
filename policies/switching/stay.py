"""Whether a VM serves a query that was moved to it whole more slowly than home did: then it goes back."""

from __future__ import annotations

import math
from collections.abc import Collection

from policies.signals import HOME, QuerySlot

_LEARNS_S = 30.0
"""A new VM's Java compiles while it works: one that becomes faster is judged after so many seconds..."""

_STEADY_S = 5.0
"""...and one that did not, from one such time to the next, after these two."""

_GROWS = 1.1
"""By this factor it becomes faster; less is chance."""

_SLOWER = 0.8
"""A VM that completes less than this part of what home completed is slower; rates vary by a fifth anyway."""


class Stay:
    """How a query fares on the VM where all of its events are.

    Args:
        slot_s: length of a slot.
    """

    def __init__(self, slot_s: float) -> None:
        self._slot_s = slot_s
        self._vm = ""
        self._completed: list[int] = []
        self._slower: dict[str, str] = {}

    def observe(self, vm: str, slot: QuerySlot, latency_most_s: float) -> None:
        """Take the measurements of a slot.

        Args:
            vm: where the query is; empty: at home.
            slot: what was measured.
            latency_most_s: below this latency it may stay, however slow the VM is.
        """
        if vm != self._vm:
            self._vm, self._completed = vm, []
        completed = slot.completed_events.get(vm, 0)
        if (self._completed or completed) and not self._has_learned:
            self._completed.append(completed)
        home, there = slot.rates.get(HOME), slot.rates.get(vm)
        if not home or not there or slot.latency_s < latency_most_s or not (self._has_learned or self._is_steady):
            return
        if there < _SLOWER * home:
            self._slower[vm] = f"{vm} completes {there:,.0f} of its events/s, and home completed {home:,.0f}/s"

    @property
    def _has_learned(self) -> bool:
        return len(self._completed) * self._slot_s >= _LEARNS_S

    @property
    def _is_steady(self) -> bool:
        """Whether the VM has worked for a while, and does not become faster."""
        slots = math.ceil(_STEADY_S / self._slot_s)
        before, now = sum(self._completed[-2 * slots : -slots]), sum(self._completed[-slots:])
        return len(self._completed) >= 2 * slots and now < _GROWS * before

    def keep(self, vms: Collection[str]) -> None:
        """Forget all VMs but these: another one may be faster."""
        self._slower = {vm: why for vm, why in self._slower.items() if vm in vms}

    def why_slower(self, vm: str = "") -> str:
        """Return why it goes back from a VM, or from any; empty if it may stay."""
        return self._slower.get(vm, "") if vm else next(iter(self._slower.values()), "")
