"""What a gateway may use of its quota, where VMs are launched and kept."""

from __future__ import annotations

from policies.money.ledger import Ledger
from policies.quota.requests import Allowance


class QuotaPart:
    """The gateway's part of the quota. Without a quota it limits nothing.

    Args:
        ledger: gets the part of the money.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._allowance: Allowance | None = None

    @property
    def allowance(self) -> Allowance | None:
        """Return what may be used; None: there is no quota."""
        return self._allowance

    def grant(self, allowance: Allowance) -> None:
        """Use this part from now on."""
        self._allowance = allowance
        self._ledger.granted_usd = None if allowance.usd_by_day is None else dict(allowance.usd_by_day)

    @property
    def is_spent(self) -> bool:
        """Return whether no more money is granted: a claim does not change that."""
        return self._allowance is not None and self._allowance.spent

    def why_no_permit(self, live: int) -> str:
        """Return why there is no permit for one more VM than those that live; empty if there is one."""
        if self._allowance is None or live < self._allowance.vms:
            return ""
        return f"the quota: {self._allowance.why or 'a VM is being claimed'}"

    def lacks(self, wanted: int) -> bool:
        """Return whether there are fewer permits than VMs that are wanted."""
        return self._allowance is not None and wanted > self._allowance.vms

    def why_no_money(self, wall_s: float) -> str:
        """Return why the first block of a VM does not fit: into the budget, or into what is granted so far."""
        if self._allowance is None or self._ledger.granted_left_usd(wall_s) > self._ledger.left_usd(wall_s):
            return "the budget has no room for a VM"
        return f"the quota: {self._allowance.why or 'money for a VM is being claimed'}"
