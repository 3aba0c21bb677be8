"""Whether a VM serves a query that was moved to it whole more slowly than home did: then it goes back."""

from __future__ import annotations

from collections.abc import Collection

from policies.signals import HOME, QuerySlot

_LEARNS_S = 30.0
"""A new VM's Java compiles while it works, so it is judged after so many seconds."""

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
        self._there_s = 0.0
        self._slower: dict[str, str] = {}

    def observe(self, vm: str, slot: QuerySlot, latency_most_s: float) -> None:
        """Take the measurements of a slot.

        Args:
            vm: where the query is; empty: at home.
            slot: what was measured.
            latency_most_s: below this latency it may stay, however slow the VM is.
        """
        if vm != self._vm:
            self._vm, self._there_s = vm, 0.0
        if self._there_s or slot.completed_events.get(vm):
            self._there_s += self._slot_s
        home, there = slot.rates.get(HOME), slot.rates.get(vm)
        if self._there_s < _LEARNS_S or not home or not there or slot.latency_s < latency_most_s:
            return
        if there < _SLOWER * home:
            self._slower[vm] = f"{vm} completes {there:,.0f} of its events/s, and home completed {home:,.0f}/s"

    def keep(self, vms: Collection[str]) -> None:
        """Forget all VMs but these: another one may be faster."""
        self._slower = {vm: why for vm, why in self._slower.items() if vm in vms}

    def why_slower(self, vm: str = "") -> str:
        """Return why it goes back from a VM, or from any; empty if it may stay."""
        return self._slower.get(vm, "") if vm else next(iter(self._slower.values()), "")
