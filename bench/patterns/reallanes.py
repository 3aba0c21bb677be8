"""The number of VMs for overtaking in a running gateway with real Spark lanes (Mayer et al., Figures 8a to 8d).

The same loads and goal as in virtual time (see degree.py), for a shorter time. VMs are processes of this machine with
Spark, ready when they are ordered, and handed over after the boot. Their work is waiting, so that two cores are enough
for all of them.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from planning.document import table

from engines.traffic.overtaking import SELECTIONS
from engines.traffic.vehicles import SCHEMA_DDL
from gateway.views.why.eventlog import read_log
from patterns import degree
from patterns.degree import BOOT_S, LIMIT_EVENTS, PROBABILITY, Replayed, least_on_average, replayed, rush, steady
from policies.signals import SlotEnded, VmGone, VmReady
from tests.e2e.harness import Gateway, end_hosts
from tests.workloads.overtaking_oracle import overtakings

STEADY_S, RUSH_S = 600.0, 1_200.0
BEGUN_S = 240.0
"""Until then the first VMs boot and process what waited for them."""
QUEUEING: Mapping[str, Any] = {
    "type": "queueing",
    "window": "40s",
    "buffer_limit": LIMIT_EVENTS,
    "probability": f"{PROBABILITY:.0%}",
}
_HOURLY_USD = 0.36
_MOST_VMS = 4
"""Each is a Spark with memory of its own, started in advance."""


class Found(NamedTuple):
    """What a gateway did.

    Attributes:
        kept: the part of the time in which no more events waited or were processed than allowed.
        p95_events: of these events.
        vms: VMs that were launched and not terminated, on average.
        equal: whether the results are those of the oracle, in order.
    """

    kept: float
    p95_events: float
    vms: float
    equal: bool


def report(_data: Path | None) -> str:
    """Play both loads; return the table."""
    rows = []
    for title, lasts_s, rate in (
        ("static (8a, 8b)", STEADY_S, steady),
        ("dynamic (8c, 8d)", RUSH_S, lambda at_s: rush(at_s * degree.RUSH_S / RUSH_S)),
    ):
        outcome = play(replayed(rate, lasts_s), lasts_s, QUEUEING)
        rows.append((title, *shown(outcome, least_on_average(rate, BEGUN_S, lasts_s))))
        print(rows[-1], flush=True)
    return table(HEAD, rows)


HEAD = (
    "load",
    "limit kept",
    "95th percentile of events",
    "VMs on average",
    "times the minimum",
    "results equal to the oracle's",
)


def shown(outcome: Found, least_vms: float) -> tuple[str, ...]:
    """Return the cells of a row."""
    equal = "yes" if outcome.equal else "**no**"
    times = f"{outcome.vms / least_vms:.2f}"
    return f"{outcome.kept:.1%}", f"{outcome.p95_events:.0f}", f"{outcome.vms:.2f}", times, equal


def play(load: Replayed, lasts_s: float, policy: Mapping[str, Any]) -> Found:
    """Run a gateway over a load.

    Raises:
        RuntimeError: the gateway did not end well.
    """
    with tempfile.TemporaryDirectory(prefix="spillway-bench-") as name:
        folder = Path(name)
        (folder / "in.jsonl").write_bytes(msgspec.json.Encoder().encode_lines(load.passages))
        shutil.copy(Path(__file__).with_name("waiting.py"), folder)
        gateway = Gateway(
            folder, folder / "state", {"overtaking": _query(folder, policy)}, _cloud(), more={"slot": "1s"}
        )
        try:
            gateway.start("--until-drained")
            if (code := gateway.wait(3 * lasts_s)) != 0:
                raise RuntimeError(f"the gateway ended with {code}: {gateway.tail()}")
        finally:
            end_hosts(folder / "state")
        rows = [(row["slow"], row["fast"], datetime.fromisoformat(row["at"])) for row in gateway.rows("overtaking")]
        (log,) = (folder / "state" / "events").iterdir()
        return found(log, lasts_s, equal=rows == overtakings(load.passages))


def found(log: Path, lasts_s: float, *, equal: bool) -> Found:
    """Return what counts: events that wait or are processed, after the first boots and while the load lasts."""
    events = [step.event for step in read_log(log)[1]]
    slots = [event for event in events if isinstance(event, SlotEnded)]
    queries = [slot.queries[0] for slot in slots]
    due = next(at for at, query in enumerate(queries) if query.input_rate)
    at_s = np.array([slot.at_s for slot in slots]) - slots[due].at_s
    waiting = np.array([query.backlog_events + sum(query.open_events.values()) for query in queries])
    waiting = waiting[(at_s >= BEGUN_S) & (at_s < lasts_s)]
    from_s, until_s = (slots[due].at_s + each for each in (BEGUN_S, lasts_s))
    launched_s = {event.vm: event.billing_since_s for event in events if isinstance(event, VmReady)}
    gone_s = {event.vm: event.at_s for event in events if isinstance(event, VmGone)}
    vm_s = sum(
        max(0.0, min(until_s, gone_s.get(vm, until_s)) - max(from_s, since_s)) for vm, since_s in launched_s.items()
    )
    return Found(
        float(np.mean(waiting <= LIMIT_EVENTS)), float(np.quantile(waiting, 0.95)), vm_s / (until_s - from_s), equal
    )


def _query(folder: Path, policy: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "source": {"type": "file", "path": str(folder / "in.jsonl"), "replay": {"times": "at"}},
        "schema": SCHEMA_DDL,
        "selections": SELECTIONS,
        "function": "waiting:overtakings",
        "runs": {"linger": "1s"},
        "policy": dict(policy),
        "sink": {"type": "file", "path": str(folder / "out" / "overtaking")},
        "qos": {"latency": "10s"},
        # Only the policy launches VMs, and they are used whenever there are any.
        "switching": {
            "start_vm_above": "10m",
            "send_above": "200ms",
            "keep_vm_above": "100ms",
            "keep_vm_bytes": "0B",
            "tolerance": "0s",
        },
    }


def _cloud() -> dict[str, Any]:
    return {
        "max_vms": _MOST_VMS,
        "boot": f"{BOOT_S:g}s",
        "billing": {"period": "60s", "minimum": "60s", "usd_per_hour": _HOURLY_USD, "usd_per_gb_sent": 0.09},
    }
