"""The number of VMs for overtaking in a running gateway with real Spark lanes (Mayer et al., Figures 8a and 8b).

The same load and goal as in virtual time (see degree.py). VMs are processes of this machine with Spark, ready when
they are ordered, and handed over after the boot. Their work is waiting, so that two cores are enough for all of them.
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
from gateway.views.runrecord import GatewayRecord, read_record
from patterns.degree import BEGUN_S, BOOT_S, LIMIT_EVENTS, PROBABILITY, Replayed, replayed, steady
from tests.e2e.harness import Gateway, end_hosts
from tests.workloads.overtaking_oracle import overtakings

LASTS_S = 420.0
QUEUEING: Mapping[str, Any] = {
    "type": "queueing",
    "window": "40s",
    "buffer_limit": LIMIT_EVENTS,
    "probability": f"{PROBABILITY:.0%}",
}
POLICIES: tuple[tuple[str, Mapping[str, Any]], ...] = (
    ("1 VM always", {"type": "static", "vms": 1}),
    ("2 VMs always", {"type": "static", "vms": 2}),
    ("queueing, windows of 40 s", QUEUEING),
)
_HOURLY_USD = 0.36
_MOST_VMS = 4
"""Each is a Spark with memory of its own, started in advance."""


class Found(NamedTuple):
    """What a gateway did.

    Attributes:
        kept: the part of the time in which no more events waited or were processed than allowed.
        p95_events: of these events.
        vms: VMs that were paid for, on average.
        equal: whether the results are those of the oracle, in order.
    """

    kept: float
    p95_events: float
    vms: float
    equal: bool


def report(_data: Path | None) -> str:
    """Play the constant load with each policy; return the table."""
    load = replayed(steady, LASTS_S)
    rows = []
    for name, policy in POLICIES:
        found = play(load, LASTS_S, policy)
        rows.append((name, *shown(found)))
        print(rows[-1], flush=True)
    return table(HEAD, rows)


HEAD = ("policy", "limit kept", "95th percentile of events", "VMs on average", "results equal to the oracle's")


def shown(found: Found) -> tuple[str, str, str, str]:
    """Return the cells of a row."""
    return f"{found.kept:.1%}", f"{found.p95_events:.0f}", f"{found.vms:.2f}", "yes" if found.equal else "**no**"


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
        return _found(read_record(gateway.report), lasts_s, equal=rows == overtakings(load.passages))


def _found(record: GatewayRecord, lasts_s: float, *, equal: bool) -> Found:
    """Return what counts: events that were due and not completed, after the first boots and while the load lasts."""
    at_s = np.array([slot.at_s for slot in record.slots])
    lengths_s = np.diff(at_s, prepend=0.0)
    rates = np.array([(slot.input_rate, slot.completed_rate) for slot in record.slots])
    waiting = np.cumsum((rates[:, 0] - rates[:, 1]) * lengths_s)[(at_s >= BEGUN_S) & (at_s < lasts_s)]
    kept, p95_events = float(np.mean(waiting <= LIMIT_EVENTS)), float(np.quantile(waiting, 0.95))
    return Found(kept, p95_events, record.totals.vms.billed_s / lasts_s, equal)


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
