"""What VMs and their traffic cost, and when the next billing period begins."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

_BYTES_PER_GB = 1e9


@dataclass(frozen=True, slots=True)
class BillingTerms:
    """What the cloud charges.

    A VM is billed in blocks from the start of its billing: first ``minimum_s`` (or a period, if that is longer), then
    one ``period_s`` after the other, each in full.

    Raises:
        ValueError: a period that is not positive, or a negative price.
    """

    period_s: float
    minimum_s: float
    usd_per_hour: float
    usd_per_gb_sent: float

    def __post_init__(self) -> None:
        if self.period_s <= 0:
            raise ValueError(f"a billing period must be longer than {self.period_s!r} s")
        if min(self.minimum_s, self.usd_per_hour, self.usd_per_gb_sent) < 0:
            raise ValueError(f"billing terms must not be negative: {self}")

    def at_price(self, usd_per_hour: float | None) -> BillingTerms:
        """Return these terms at another price of time; None leaves it."""
        return self if usd_per_hour is None else replace(self, usd_per_hour=usd_per_hour)

    @property
    def first_block_s(self) -> float:
        """Return how long the first billed block lasts."""
        return max(self.minimum_s, self.period_s)

    def billed_s(self, from_s: float, to_s: float) -> float:
        """Return for how long a VM used from ``from_s`` to ``to_s`` is billed."""
        return self.boundary_s(from_s, to_s) - from_s

    def boundary_s(self, billing_since_s: float, used_until_s: float) -> float:
        """Return the end of the block that ``used_until_s`` falls into; a block's very end belongs to it."""
        beyond_s = used_until_s - billing_since_s - self.first_block_s
        periods = max(0, math.ceil(beyond_s / self.period_s - 1e-9))
        return billing_since_s + self.first_block_s + periods * self.period_s

    def time_usd(self, billed_s: float) -> float:
        """Return what a billed time costs."""
        return billed_s / 3600 * self.usd_per_hour

    def egress_usd(self, sent_bytes: float) -> float:
        """Return what bytes sent to the cloud cost."""
        return sent_bytes / _BYTES_PER_GB * self.usd_per_gb_sent


def decision_due_s(period_end_s: float, *, slot_s: float, drain_s: float, block_s: float) -> float:
    """Return from when on keep or stop is to be decided, so that a VM is given back before the next period.

    Two slots are the least: one because decisions fall on slots only, one to give the VM back in. Never earlier than
    the middle of the block, lest a VM be stopped before it could help.

    Args:
        period_end_s: when the next period begins.
        slot_s: length of a slot.
        drain_s: how long the runs that are open on the VM will take.
        block_s: length of the block that ends then.
    """
    return period_end_s - max(2 * slot_s, min(2 * slot_s + drain_s, block_s / 2))
