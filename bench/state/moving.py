"""SNB2016's query 1 goes to a VM with its state and returns, while its events keep coming; its results are checked.

The query wants a VM all the time, but the budget is spent after one billing period. So it goes to the VM when that is
ready, and returns when the period ends.
"""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from itertools import islice
from pathlib import Path

from planning.document import table

from engines.snb import events as snb
from engines.snb.generator import generate_events
from gateway.views.runrecord import GatewayRecord
from policies.signals import HOME
from state.workloads import is_equal, play, posts
from tests.e2e.harness import EAGER, end_hosts

EVENTS, RATE_PER_S = 40_000, 200
PERIOD_S, USD_PER_HOUR = 80, 0.1
# One period and its traffic, but no second one.
BUDGET_USD = 1.8 * USD_PER_HOUR * PERIOD_S / 3600
CLOUD = {
    "max_vms": 1,
    "billing": {
        "period": f"{PERIOD_S}s",
        "minimum": f"{PERIOD_S}s",
        "usd_per_hour": USD_PER_HOUR,
        "usd_per_gb_sent": 0.09,
    },
    "budget": {"usd_per_day": BUDGET_USD},
}
MOVED = re.compile(r"moved from (\S+) to (\S+) with its state: ([\d.]+) MB copied, events held for ([\d.]+) s")


def report(data: Path | None) -> str:
    """Run the query, and return a table of its moves and a line about its results.

    Raises:
        RuntimeError: it did not go to the VM and return.
    """
    found = snb.read_events(data / "debs2016") if data else generate_events(EVENTS, seed=1)
    workload = posts("moved", islice(found, EVENTS))
    options = {"switching": {**EAGER, "mode": "query"}, "policy": {"type": "static", "vms": 1}}
    with tempfile.TemporaryDirectory(prefix="spillway-bench-") as name:
        folder = Path(name) / "moved"
        try:
            record, results = play(workload, folder, Path(name) / "state", CLOUD, rate_per_s=RATE_PER_S, **options)
        finally:
            end_hosts(Path(name) / "state")
        moves = MOVED.findall((folder / "gateway.log").read_text())
    if [left == HOME for left, *_ in moves] != [True, False]:
        raise RuntimeError(f"the query did not go to a VM and return: {moves}")
    wanted = list(workload.oracle(workload.events))
    rows = [(f"{left} to {place}", f"{copied} MB", f"{held} s") for left, place, copied, held in moves]
    equal = "equal to" if is_equal(workload, results, wanted) else "**different from**"
    at_home, away = _places(record)
    return (
        f"{table(('SNB2016 query 1', 'state copied', 'events held for'), rows)}\n\n"
        f"{len(workload.events):,} events at {RATE_PER_S} per second, {at_home:,} answered at home and {away:,} on the "
        f"VM. Mean latency {record.totals.latency_ms.mean / 1e3:.1f} s, 95th percentile "
        f"{record.totals.latency_ms.p95 / 1e3:.1f} s. The {len(results):,} results are {equal} those of the oracle."
    )


def _places(record: GatewayRecord) -> tuple[int, int]:
    """Return how many events were answered at home and on the VM."""
    counts: Counter[bool] = Counter()
    for slot in record.slots:
        for lane, events in slot.completed.items():
            counts[lane == HOME] += events
    return counts[True], counts[False]
