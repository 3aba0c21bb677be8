"""``policy: auto`` as it runs in the gateway, beside each single rule, on random bursts that nobody knows before.

The production scheduler and policies in a fluid of one query: home and VMs process 1,000 events/s each, VMs boot in 6 s
and are billed in periods of 20 s, at most three at a time. A load has bursts of a random height, length and distance
for an hour, and its low rate between them. The cost is that of the VMs, and of the events of slots whose latency is
above 2 s, priced as the planner prices late events.
"""

from __future__ import annotations

import itertools
import random
from typing import TYPE_CHECKING

from planning.document import table
from policies.lookahead.policy import LookaheadOptions
from policies.money.billing import BillingTerms
from policies.money.pricing import late_usd
from policies.planning.plain import StaticOptions
from tests.policies.auto_site import AUTO
from tests.policies.policy_play import HOME_PER_S, Play, bursts

if TYPE_CHECKING:
    from policies.choose import PolicyOptions

LOADS = 6
LASTS_S = 3_600.0
TARGET_S = 2.0
MOST_VMS = 3
LATE_USD = late_usd(None, BillingTerms(20.0, 20.0, 0.36, 0.0), 1.0 / HOME_PER_S, 0.0)
RULES: dict[str, PolicyOptions | None] = {
    "reactive": None,
    "lookahead": LookaheadOptions(),
    "planner": AUTO.planner,
    "queueing": AUTO.queueing,
    "cpu": AUTO.cpu,
    "home": StaticOptions(0),
    "static: 1": StaticOptions(1),
    "static: 3": StaticOptions(MOST_VMS),
}


def report() -> str:
    """Play each load with each rule; return the table."""
    rows: list[tuple[object, ...]] = []
    for seed in range(LOADS):
        draw = random.Random(seed)
        every_s, for_s = draw.choice([60, 120, 240]), draw.choice([10, 20, 40])
        low, high = draw.uniform(200, 900), draw.uniform(1100, 3500)
        load = {"every_s": float(every_s), "for_s": float(for_s), "low": low, "high": high}
        usd = {name: cost(options, load) for name, options in RULES.items()}
        best, auto = min(usd, key=lambda name: usd[name]), cost(AUTO, load)
        named = f"{for_s} s of {high:,.0f}/s every {every_s} s, else {low:,.0f}/s"
        costs = (usd[best], usd["lookahead"], auto)
        rows.append((named, best, *(f"{each:.4f}" for each in costs), f"{auto / usd[best]:.2f}"))
        print(rows[-1], flush=True)
    header = ("load", "best rule", "its cost, USD", "`lookahead`, USD", "`auto`, USD", "`auto` / best")
    return table(header, rows, text_columns=2)


def cost(options: PolicyOptions | None, load: dict[str, float]) -> float:
    """Return what the VMs and the late events of a load cost with a policy."""
    rate = bursts(**load)
    played = Play(options, rate, max_vms=MOST_VMS).until(LASTS_S)
    ends = [(0.0, 0.0), *played.latencies]
    slots = ((to_s - from_s, to_s) for (from_s, _), (to_s, wait_s) in itertools.pairwise(ends) if wait_s > TARGET_S)
    return played.usd + LATE_USD * sum(slot_s * rate(to_s) for slot_s, to_s in slots)
