"""What VMs and their traffic cost, when the next billing period begins, and a budget that is never passed."""

from __future__ import annotations

import math
from dataclasses import dataclass

DAY_S = 86_400.0
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


@dataclass(frozen=True, slots=True)
class Budget:
    """What may be spent in a day; days are counted on the clock of ``at_s``. None is without a limit."""

    usd_per_day: float | None = None

    def __post_init__(self) -> None:
        if self.usd_per_day is not None and self.usd_per_day < 0:
            raise ValueError(f"a budget must not be negative: {self.usd_per_day!r}")


class Ledger:
    """Money spent today and money reserved, which together never pass the budget when each expense was reserved.

    Args:
        budget: the limit.
        spent_usd: what was spent today before the ledger was opened.
    """

    def __init__(self, budget: Budget, spent_usd: float = 0.0) -> None:
        self._limit_usd = math.inf if budget.usd_per_day is None else budget.usd_per_day
        self._day: float | None = None
        self._spent_usd = spent_usd
        self._reserved: dict[str, float] = {}

    @property
    def reserved_usd(self) -> float:
        """Return the sum of all reservations."""
        return math.fsum(self._reserved.values())

    @property
    def spent_usd(self) -> float:
        """Return what was spent on the day of the last entry."""
        return self._spent_usd

    def left_usd(self, at_s: float) -> float:
        """Return what is neither spent today nor reserved."""
        self._turn_page(at_s)
        return self._limit_usd - self._spent_usd - self.reserved_usd

    def reserved_for(self, name: str) -> float:
        """Return the reservation under ``name``; 0 when there is none."""
        return self._reserved.get(name, 0.0)

    def reserve(self, name: str, usd: float, at_s: float) -> bool:
        """Reserve ``usd`` in place of what ``name`` had reserved; return False, changing nothing, if it is too much."""
        if usd - self.reserved_for(name) > self.left_usd(at_s):
            return False
        self._reserved[name] = usd
        return True

    def settle(self, name: str, usd: float, at_s: float) -> None:
        """Book what was really spent and release the reservation under ``name``."""
        if usd < 0:
            raise ValueError(f"{name} cannot have cost {usd!r} USD")
        self._turn_page(at_s)
        self._reserved.pop(name, None)
        self._spent_usd += usd

    def _turn_page(self, at_s: float) -> None:
        day = at_s // DAY_S
        if self._day is not None and day > self._day:
            self._spent_usd = 0.0
        self._day = day if self._day is None else max(day, self._day)
