"""Real queries go to VMs with their state and return, while their events keep coming; their results are checked.

SNB2016's query 1 moves as a whole. It wants a VM all the time, but the budget is spent after one billing period. So it
goes to the VM when that is ready, and returns when the period ends. The query about bus delays is divided by its areas.
Two VMs are launched one after another, and parts of the areas move to each of them.
"""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from planning.document import table

from engines.buses import traces
from engines.buses.generator import generate_reports
from engines.snb import events as snb
from engines.snb.generator import generate_events
from gateway.views.runrecord import GatewayRecord
from policies.signals import HOME
from state.workloads import Workload, buses, is_equal, play, posts
from tests.e2e.harness import EAGER, end_hosts

EVENTS, RATE_PER_S = 40_000, 200
REPORTS, REPORTS_PER_S = 12_000, 80
PARTS = 3
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
# They stay until the end.
TWO_VMS = {
    "max_vms": 2,
    "billing": {"period": "10m", "minimum": "10m", "usd_per_hour": USD_PER_HOUR, "usd_per_gb_sent": 0.09},
}
MOVED = re.compile(
    r"query (\S+) moved from (\S+) to (\S+) with its state: ([\d.]+) MB copied, events held for ([\d.]+) s"
)


def report(data: Path | None) -> str:
    """Run both queries, and return tables of their moves and lines about their results.

    Raises:
        RuntimeError: one of them did not move as it should have.
    """
    return f"{_whole(data)}\n\n{_in_parts(data)}"


def _whole(data: Path | None) -> str:
    found = snb.read_events(data / "debs2016") if data else generate_events(EVENTS, seed=1)
    workload = posts("moved", islice(found, EVENTS))
    options = {"switching": {**EAGER, "mode": "query"}, "policy": {"type": "static", "vms": 1}}
    moves, text = _moved(workload, CLOUD, RATE_PER_S, options)
    if [left == HOME for _, left, *_ in moves] != [True, False]:
        raise RuntimeError(f"the query did not go to a VM and return: {moves}")
    rows = [(f"{left} to {place}", f"{copied} MB", f"{held} s") for _, left, place, copied, held in moves]
    return f"{table(('SNB2016 query 1', 'state copied', 'events held for'), rows)}\n\n{text}"


def _in_parts(data: Path | None) -> str:
    dublin = None if data is None else data / "dublin_bus" / "siri.20130131.csv.gz"
    found = generate_reports(REPORTS, seed=1) if dublin is None else traces.read_dublin(dublin)
    workload = buses("parts", islice(found, REPORTS))
    keyed = {**EAGER, "mode": "keys", "key": "area", "parts": PARTS}
    options = {"switching": keyed, "policy": {"type": "static", "vms": 2}}
    moves, text = _moved(workload, TWO_VMS, REPORTS_PER_S, options)
    if len({place for *_, place, _, _ in moves} - {HOME}) != 2:
        raise RuntimeError(f"parts did not go to both VMs: {moves}")
    rows = [(name, f"{left} to {place}", f"{copied} MB", f"{held} s") for name, left, place, copied, held in moves]
    head = ("bus delays, part", "move", "state copied", "events held for")
    return f"{table(head, rows)}\n\n{text}"


def _moved(
    workload: Workload, cloud: Mapping[str, Any], rate_per_s: int, options: Mapping[str, Any]
) -> tuple[list[tuple[str, ...]], str]:
    """Run a query; return its moves (query, from, to, MB, s), and a line about its results."""
    with tempfile.TemporaryDirectory(prefix="spillway-bench-") as name:
        folder = Path(name) / workload.title
        try:
            record, results = play(workload, folder, Path(name) / "state", cloud, rate_per_s=rate_per_s, **options)
        finally:
            end_hosts(Path(name) / "state")
        moves = MOVED.findall((folder / "gateway.log").read_text())
    equal = "equal to" if is_equal(workload, results, list(workload.oracle(workload.events))) else "**different from**"
    at_home, away = _places(record)
    return moves, (
        f"{len(workload.events):,} events at {rate_per_s} per second, {at_home:,} answered at home and {away:,} on "
        f"VMs. Mean latency {record.totals.latency_ms.mean / 1e3:.1f} s, 95th percentile "
        f"{record.totals.latency_ms.p95 / 1e3:.1f} s. The {len(results):,} results are {equal} those of the oracle."
    )


def _places(record: GatewayRecord) -> tuple[int, int]:
    """Return how many events were answered at home and on the VM."""
    counts: Counter[bool] = Counter()
    for slot in record.slots:
        for lane, events in slot.completed.items():
            counts[lane == HOME] += events
    return counts[True], counts[False]
