"""The gateway's report about money: spent, reserved, left, when it will be spent, and the cost of each VM."""

from __future__ import annotations

import logging
import math
from dataclasses import asdict
from typing import Any

from gateway.core.decide.scheduler import Scheduler
from policies.money.ledger import Ledger, day_of
from policies.quota.requests import Allowance
from policies.signals import Event, VmGone

_LOG = logging.getLogger(__name__)
_MB = 1e6


def money(scheduler: Scheduler, at_s: float, wall_s: float) -> dict[str, object]:
    """Return it ready for JSON; None means no limit.

    Args:
        scheduler: with the ledger.
        at_s: now, on the gateway's clock.
        wall_s: now, in seconds since 1970.
    """
    said, totals = scheduler.money(at_s), scheduler.totals(at_s)
    ledger, forecast = Ledger(said.budget, said.ledger), said.limit_reached
    left_usd = ledger.left_usd(wall_s)
    return {
        "limits": asdict(said.budget),
        "spent_today_usd": ledger.spent_usd(wall_s),
        "spent_today_by_query_usd": ledger.spent_by_query(wall_s),
        "reserved_usd": ledger.reserved_usd,
        "left_usd": None if left_usd == math.inf else left_usd,
        "not_reserved_before_usd": said.overrun_usd,
        "limit_reached": None if forecast is None else asdict(forecast),
        "trouble": said.frozen,
        "quota": None if said.quota is None else quota_view(said.quota, wall_s),
        "billed_s": totals.billed_s,
        "used_s": totals.used_s,
        "unused_s": totals.billed_s - totals.used_s,
        "sent_bytes": totals.sent_bytes,
        "received_bytes": totals.received_bytes,
        "usd": totals.usd,
        "vms": [asdict(bill) for bill in totals.bills],
    }


def log_bill(scheduler: Scheduler, event: Event) -> None:
    """Log the cost of a VM that is gone, and of all VMs so far: ``/status`` shows them only while the gateway runs."""
    if not isinstance(event, VmGone):
        return
    totals = scheduler.totals(event.at_s)
    bill = next((bill for bill in reversed(totals.bills) if bill.vm == event.vm), None)
    if bill is not None:
        _LOG.info(
            "%s was billed for %.0f s (%.0f s used, %.0f s unused); %.1f MB were sent to it, and %.1f MB came back: "
            "%.4f USD. All VMs so far: %.0f s billed, %.0f s used, %.1f MB sent, %.1f MB received, %.4f USD",
            bill.vm,
            bill.billed_s,
            bill.used_s,
            bill.unused_s,
            bill.sent_bytes / _MB,
            bill.received_bytes / _MB,
            bill.usd,
            totals.billed_s,
            totals.used_s,
            totals.sent_bytes / _MB,
            totals.received_bytes / _MB,
            totals.usd,
        )


def quota_view(allowance: Allowance, wall_s: float) -> dict[str, Any]:
    """Return what may be used of the quota, as plain values; ``wall_s``: now, in seconds since 1970."""
    usd_by_day = None if allowance.usd_by_day is None else dict(allowance.usd_by_day)
    usd_today = None if usd_by_day is None else usd_by_day.get(day_of(wall_s), 0.0)
    return {"vms": allowance.vms, "usd_today": usd_today, "why": allowance.why}
