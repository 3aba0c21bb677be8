"""Overtaking (Mayer et al., section VI-B) through a gateway with real Spark at home and on up to four VMs."""

from __future__ import annotations

import tempfile
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
from planning.document import table

from engines.traffic.overtaking import SELECTIONS, SQL
from engines.traffic.vehicles import SCHEMA_DDL, Passage, generate_passages
from gateway.views.runrecord import GatewayRecord, read_record
from policies.signals import HOME
from tests.e2e.harness import EAGER, Gateway, end_hosts
from tests.workloads.overtaking_oracle import overtakings

VEHICLES, SEED = 2_000, 1
RATE_PER_S, WAY_S = 0.5, 300.0
"""Of the vehicles; events come faster than they did."""
EVENTS_PER_S = 50
MOST_VMS = 4
DEADLINE_S = 1_200.0


def report(_data: Path | None) -> str:
    """Run it over one to five lanes; return the table."""
    passages = list(generate_passages(VEHICLES, SEED, RATE_PER_S, WAY_S))
    wanted = overtakings(passages)
    rows = []
    for vms in range(MOST_VMS + 1):
        record, found = play(passages, vms)
        lanes = {lane for slot in record.slots for lane, events in slot.completed.items() if events}
        events = sum(sum(slot.completed.values()) for slot in record.slots)
        at_home = sum(slot.completed.get(HOME, 0) for slot in record.slots)
        rows.append(
            (
                len(lanes),
                f"{1 - at_home / events:.0%}",
                f"{record.totals.latency_ms.mean / 1e3:.1f} s",
                f"{len(found):,}",
                "yes" if found == wanted else "**no**",
            )
        )
        print(rows[-1], flush=True)
    head = ("lanes", "events on VMs", "mean latency", "overtakings", "equal to the oracle's, in order")
    said = f"{len(passages):,} events of {VEHICLES:,} vehicles, {EVENTS_PER_S} per second."
    return f"{table(head, rows)}\n\n{said}"


def play(passages: list[Passage], vms: int) -> tuple[GatewayRecord, list[tuple[str, str, datetime]]]:
    """Run a gateway with so many VMs; return its record and the results in order.

    Raises:
        RuntimeError: the gateway did not end well.
    """
    with tempfile.TemporaryDirectory(prefix="spillway-bench-") as name:
        folder = Path(name)
        (folder / "in.jsonl").write_bytes(msgspec.json.Encoder().encode_lines(passages))
        gateway = Gateway(folder, folder / "state", {"overtaking": _query(folder, vms)}, _cloud(vms))
        try:
            gateway.start("--until-drained")
            if (code := gateway.wait(DEADLINE_S)) != 0:
                raise RuntimeError(f"the gateway ended with {code}: {gateway.tail()}")
        finally:
            end_hosts(folder / "state")
        rows = gateway.rows("overtaking")
        return read_record(gateway.report), [
            (row["slow"], row["fast"], datetime.fromisoformat(row["at"])) for row in rows
        ]


def _query(folder: Path, vms: int) -> dict[str, Any]:
    return {
        "source": {"type": "file", "path": str(folder / "in.jsonl"), "replay": {"rate": f"{EVENTS_PER_S}/s"}},
        "schema": SCHEMA_DDL,
        "selections": SELECTIONS,
        "sql": SQL,
        "runs": {"linger": "1s"},
        "policy": {"type": "static", "vms": vms},
        "sink": {"type": "file", "path": str(folder / "out" / "overtaking")},
        "qos": {"latency": "2s"},
        "switching": EAGER,
    }


def _cloud(vms: int) -> dict[str, Any]:
    return {
        "max_vms": vms,
        "billing": {"period": "30m", "minimum": "30m", "usd_per_hour": 0.1, "usd_per_gb_sent": 0.09},
    }
