"""The cost of VMs and their traffic, and when the next billing period begins."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

_BYTES_PER_GB = 1e9


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes over the links of a VM, in both directions."""

    sent_bytes: int = 0
    received_bytes: int = 0

    def __add__(self, other: Traffic) -> Traffic:
        """Return the sum in each direction."""
        return Traffic(self.sent_bytes + other.sent_bytes, self.received_bytes + other.received_bytes)

    def __sub__(self, other: Traffic) -> Traffic:
        """Return the difference in each direction."""
        return Traffic(self.sent_bytes - other.sent_bytes, self.received_bytes - other.received_bytes)


NO_TRAFFIC = Traffic()


@dataclass(frozen=True, slots=True)
class BillingTerms:
    """The cloud's prices and billing rules.

    A VM is billed in blocks from the start of its billing: first ``minimum_s`` (or a period, if that is longer), then
    one ``period_s`` after the other, each in full.

    Raises:
        ValueError: a period that is not positive, or a negative price.
    """

    period_s: float
    minimum_s: float
    usd_per_hour: float
    usd_per_gb_sent: float
    usd_per_gb_received: float = 0.0

    def __post_init__(self) -> None:
        if self.period_s <= 0:
            raise ValueError(f"a billing period must be longer than {self.period_s!r} s")
        if min(self.minimum_s, self.usd_per_hour, self.usd_per_gb_sent, self.usd_per_gb_received) < 0:
            raise ValueError(f"billing terms must not be negative: {self}")

    def at_price(self, usd_per_hour: float | None) -> BillingTerms:
        """Return these terms with another price of time; None changes nothing."""
        return self if usd_per_hour is None else replace(self, usd_per_hour=usd_per_hour)

    @property
    def first_block_s(self) -> float:
        """Return how long the first billed block lasts."""
        return max(self.minimum_s, self.period_s)

    def billed_s(self, from_s: float, to_s: float) -> float:
        """Return how many seconds are billed for a VM that was used from ``from_s`` to ``to_s``."""
        return self.boundary_s(from_s, to_s) - from_s

    def boundary_s(self, billing_since_s: float, used_until_s: float) -> float:
        """Return the end of the block that ``used_until_s`` falls into; a block's very end belongs to it."""
        beyond_s = used_until_s - billing_since_s - self.first_block_s
        periods = max(0, math.ceil(beyond_s / self.period_s - 1e-9))
        return billing_since_s + self.first_block_s + periods * self.period_s

    def time_usd(self, billed_s: float) -> float:
        """Return the price of a billed time."""
        return billed_s / 3600 * self.usd_per_hour

    def egress_usd(self, sent_bytes: float) -> float:
        """Return the price of bytes sent to the cloud."""
        return sent_bytes / _BYTES_PER_GB * self.usd_per_gb_sent

    def traffic_usd(self, traffic: Traffic) -> float:
        """Return the price of bytes in both directions."""
        return self.egress_usd(traffic.sent_bytes) + traffic.received_bytes / _BYTES_PER_GB * self.usd_per_gb_received


def decision_due_s(period_end_s: float, *, slot_s: float, drain_s: float, block_s: float) -> float:
    """Return the time from which keep or stop must be decided, so that a VM is terminated before the next period.

    It is at least two slots earlier: one because decisions happen only at slots, one for the termination. It is never
    before the middle of the block, so that a VM is not stopped before it could help.

    Args:
        period_end_s: when the next period begins.
        slot_s: length of a slot.
        drain_s: how long the open runs on the VM will take.
        block_s: length of the block that ends then.
    """
    return period_end_s - max(2 * slot_s, min(2 * slot_s + drain_s, block_s / 2))
