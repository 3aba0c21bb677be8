"""What VMs need of a quota: it is claimed ahead of time, so that no VM ends because a claim takes a moment."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping

from policies.money.billing import BillingTerms
from policies.money.ledger import day_of
from policies.quota.requests import Needs
from policies.vms.fleet import Fleet


def quota_needs(
    fleet: Fleet, terms: BillingTerms, slot_s: float, at_s: float, another: Mapping[str, float] | None
) -> Needs:
    """Return what is needed: what is spent and reserved, the next block of each VM, and the first one of another VM.

    Args:
        fleet: the VMs.
        terms: the price of VMs.
        slot_s: length of a slot.
        at_s: now.
        another: what the queries that want one more VM will send to it, in bytes per second; None: none does.
    """
    today = day_of(fleet.wall_s(at_s))
    ahead_usd: defaultdict[int, float] = defaultdict(float, {today: 0.0})
    for name in fleet.wanted:
        machine = fleet.live[name]
        traffic_usd = math.fsum(machine.slot_traffic_usd.values()) / slot_s * terms.period_s
        ahead_usd[today] += traffic_usd
        ahead_usd[day_of(fleet.wall_s(machine.block_end_s))] += machine.terms.time_usd(terms.period_s) + traffic_usd
    usd_by_day = {day: usd + fleet.ledger.committed_usd(day) for day, usd in ahead_usd.items()}
    if another is None:
        return Needs(len(fleet.live), usd_by_day)
    block_s = terms.first_block_s
    block_usd = terms.time_usd(block_s) + terms.egress_usd(math.fsum(another.values()) * block_s)
    return Needs(len(fleet.live), usd_by_day, (today, block_usd))
