"""A hot key in the running gateway: five places, a running aggregate by key, and a load whose hot keys change.

The load is that of ``balancing``, slower: keys drawn from a Zipf distribution, whose exponent alternates between 0.2
and 1.5 each minute, with other hot keys in each phase. The query counts the events of each key. It is divided into
parts, four fifths of which may be on four VMs (processes of this machine). RSTD is imbScore (equation 2) of the events
that the five places complete in windows of 10 s. The last count of each key is compared with that of a plain loop.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from planning.document import table

from gateway.views.runrecord import GatewayRecord, read_record
from policies.keys.imbalance import imb_score
from state.balancing import least_possible
from state.divisions import KEYS
from tests.e2e.harness import EAGER, Gateway, end_hosts

SEED = 1
PARTS, VMS = 15, 4
EVENTS_PER_S = 50
WINDOW_S = 10
PHASES = ((0.2, 180), (1.5, 60), (0.2, 60), (1.5, 60), (0.2, 60))
"""Exponent and seconds; the first phase is not counted: VMs boot, and parts move to them."""
DEADLINE_S = 1_800.0
MOVED = re.compile(r"query hot~(\d+) moved from (\S+) to (\S+) with its state")
QUERY: dict[str, Any] = {
    "schema": "key INT",
    "sql": "SELECT key, count(*) AS n FROM events GROUP BY key",
    "output": {"mode": "update", "key": ["key"]},
    "qos": {"latency": "5s"},
    "runs": {"linger": "2s", "max_events": 1000},
    "policy": {"type": "static", "vms": VMS},
    "switching": {**EAGER, "mode": "keys", "key": "key", "parts": PARTS, "share": "80%"},
}
CLOUD = {
    "max_vms": VMS,
    "billing": {"period": "30m", "minimum": "30m", "usd_per_hour": 0.1, "usd_per_gb_sent": 0.09},
}


def draw() -> Iterator[tuple[float, list[int]]]:
    """Yield the exponent and the keys of each phase."""
    rng = np.random.default_rng(SEED)
    for exponent, seconds in PHASES:
        chances = np.arange(1, KEYS + 1) ** -exponent
        ranks = rng.choice(KEYS, EVENTS_PER_S * seconds, p=chances / chances.sum())
        yield exponent, rng.permutation(KEYS)[ranks].tolist()


def report() -> str:
    """Run it, and return a table and a line about the results."""
    phases = list(draw())
    keys = [key for _, some in phases for key in some]
    with tempfile.TemporaryDirectory(prefix="spillway-bench-") as name:
        folder = Path(name)
        (folder / "in.jsonl").write_text("".join(json.dumps({"key": key}) + "\n" for key in keys))
        source = {"type": "file", "path": str(folder / "in.jsonl"), "replay": {"rate": f"{EVENTS_PER_S}/s"}}
        sink = {"type": "file", "path": str(folder / "out" / "hot")}
        gateway = Gateway(folder, folder / "state", {"hot": {**QUERY, "source": source, "sink": sink}}, CLOUD)
        try:
            gateway.start("--until-drained")
            code = gateway.wait(DEADLINE_S)
            if code != 0:
                raise RuntimeError(f"the gateway ended with {code}: {gateway.tail()}")
        finally:
            end_hosts(folder / "state")
        last = {row["key"]: row["n"] for row in gateway.rows("hot") if row["_op"] == "U"}
        record, moves = read_record(gateway.report), len(MOVED.findall(gateway.log.read_text()))
    equal = "equal to" if last == Counter(keys) else "**different from**"
    scores = windows(record)
    rows = [(name, *cells) for name, cells in rows_of(phases, scores)]
    return (
        f"{table(('exponent', 'RSTD (mean of windows of 10 s)', 'least possible with whole keys'), rows)}\n\n"
        f"{len(keys):,} events at {EVENTS_PER_S} per second, {PARTS} parts in {VMS + 1} places; parts moved {moves} "
        f"times. Mean latency {record.totals.latency_ms.mean / 1e3:.1f} s, 95th percentile "
        f"{record.totals.latency_ms.p95 / 1e3:.1f} s. The counts are {equal} those of a plain loop."
    )


def windows(record: GatewayRecord) -> dict[int, float]:
    """Return the RSTD of the places' events in each window, by its number."""
    completed: defaultdict[int, Counter[str]] = defaultdict(Counter)
    for slot in record.slots:
        completed[int(slot.at_s // WINDOW_S)].update(slot.completed)
    return {
        number: imb_score(np.array([*places.values()] + [0.0] * (VMS + 1 - len(places))))
        for number, places in completed.items()
        if sum(places.values())
    }


def rows_of(phases: list[tuple[float, list[int]]], scores: dict[int, float]) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield the rows of the phases that count."""
    begun_s = PHASES[0][1]
    for (exponent, seconds), (_, keys) in zip(PHASES[1:], phases[1:], strict=True):
        within = [scores[n] for n in range(begun_s // WINDOW_S, (begun_s + seconds) // WINDOW_S) if n in scores]
        loads = np.bincount(keys, minlength=KEYS).astype(np.float64)
        yield f"{exponent}", (f"{fmean(within):.1f} %", f"{least_possible(loads):.1f} %")
        begun_s += seconds
