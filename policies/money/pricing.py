"""What VMs and late events cost where the bill does not say it: the prices by which numbers of VMs are compared."""

from __future__ import annotations

from dataclasses import replace

from policies.money.billing import BillingTerms

_LEAST_USD_PER_HOUR = 1e-3
"""Free VMs are treated as if they cost this much. Otherwise all of them would be kept for ever."""

MISS_FACTOR = 20.0
"""A late event costs as much as processing this many in the cloud: a VM pays off at a twentieth of its capacity."""


def priced(terms: BillingTerms) -> BillingTerms:
    """Return the prices that count, whatever the bill says: free VMs have a small one."""
    return replace(terms, usd_per_hour=max(terms.usd_per_hour, _LEAST_USD_PER_HOUR))


def late_usd(miss_usd: float | None, terms: BillingTerms, event_s: float, sent_bytes: float) -> float:
    """Return MC, the price of a late event.

    Args:
        miss_usd: the user's price; None: that of 20 events in the cloud, with their traffic.
        terms: the prices that count.
        event_s: how long a VM is busy with an event.
        sent_bytes: bytes of an event over the WAN.
    """
    if miss_usd is not None:
        return miss_usd
    return MISS_FACTOR * (terms.time_usd(event_s) + terms.egress_usd(sent_bytes))
