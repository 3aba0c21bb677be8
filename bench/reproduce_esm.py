"""The experiments of ESM (Ravindra et al., ICPE 2017) over 70 ms, for the tables of docs/results/esm.md. As root.

``python bench/reproduce_esm.py [demo] [vms] [cold]``: ``demo`` is sections 7.1, 7.2 and 7.4 (some 6 minutes), ``vms``
is section 7.5 (some 12 minutes); without an argument both. ``cold`` is ``demo`` three times, with VMs that really
start their Spark and spikes of 60 s. Times are scaled to about a quarter of the paper's.
"""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import STDOUT, Process
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from cpushares import CpuShares
from ruamel.yaml import YAML

from gateway.demo.across import play
from gateway.demo.behind import parse_wan
from gateway.demo.repeated import read_reports, repeated_rows
from gateway.demo.stage import MAX_VMS
from gateway.views.runrecord import GatewayRecord, read_record
from infra.clouds.cpus import available_cpus
from infra.wan import Wan

OUT = Path("build/esm")
WAN = "70ms,50mbit"

MODES = ("private_only", "elastic", "elastic_compressed")
COLD_RUNS = 3
VMS_MOST = 4
WAIT_S = 0.004
RATE_PER_S, LOADED_S = 1300, 20
WARM_UP = (600, 15)
DEADLINE_S = 400.0
# Capacity is measured from 2 s after the last VM was ready, without the last slots, in which lanes run empty.
FULL_AFTER_S, LAST_SLOTS, LEAST_SLOTS = 2, 4, 4
FUNCTION = f"""\
import time

from pyspark.sql import functions as F


@F.udf("bigint")
def waited(number):
    time.sleep({WAIT_S})  # as for an answer from elsewhere
    return number


def ask(events):
    return events.select(waited("id").alias("id"), "text")
"""


def demo() -> None:
    """Run the demo across the WAN and print the results of sections 7.1, 7.2 and 7.4."""
    with CpuShares() as shares:
        code = play(None, OUT / "demo", WAN, MAX_VMS)
    if code:
        sys.exit(code)
    report = json.loads((OUT / "demo" / "report.json").read_text())
    modes = [report[name] for name in MODES]
    private = modes[0]["latency_ms"]["mean"]
    rows = [
        ("mean latency", [f"{m['latency_ms']['mean'] / 1e3:.2f} s" for m in modes]),
        ("below private only", [f"{100 * (1 - m['latency_ms']['mean'] / private):.1f} %" for m in modes]),
        ("completed out of order", [f"{100 * m['out_of_order'] / m['events']:.1f} %" for m in modes]),
        (
            "mean wait to be put in order",
            [f"{(m['delivery_ms']['mean'] - m['latency_ms']['mean']) / 1e3:.2f} s" for m in modes],
        ),
        ("mean delivery", [f"{m['delivery_ms']['mean'] / 1e3:.2f} s" for m in modes]),
        ("bytes sent", [f"{m['wan_bytes']['sent'] / 1e6:.1f} MB" for m in modes]),
        ("bytes before trimming", [f"{m['wan_bytes']['raw'] / 1e6:.1f} MB" for m in modes]),
        ("VMs, time billed", [f"{m['vms']['started']}, {m['vms']['billed_s']:.0f} s" for m in modes]),
        *(
            (f"CPU of {part}", [f"{shares.used_s[mode][part]:.0f} s" for mode in MODES])
            for part in ("gateway", "home", "VM", "kernel")
        ),
        ("lost / twice / out of order", [f"{m['lost']} / {m['duplicated']} / {m['order_violations']}" for m in modes]),
    ]
    table(("sections 7.1, 7.2, 7.4", "private only", "elastic", "elastic, trimmed and compressed"), rows)


def cold() -> None:
    """Run the demo with cold VMs across the WAN, and print the median and range of mean latencies."""
    code = play(None, OUT / "cold", WAN, MAX_VMS, "cold", COLD_RUNS)
    if code:
        sys.exit(code)
    rows = repeated_rows(read_reports(OUT / "cold" / "runs.json"))
    table(("cold, median (range)", "mean latency", "against private only"), [(name, cells) for name, *cells in rows])


class Fleet:
    """Runs gateways one after another over the same engine hosts: one at home, four in the cloud.

    Args:
        wan: with four sites besides home.
        folder: new.
    """

    def __init__(self, wan: Wan, folder: Path) -> None:
        self._wan = wan
        self._folder = folder
        folder.mkdir(parents=True)
        (folder / "waiting.py").write_text(FUNCTION)

    async def play(self, name: str, vms: int, rate_per_s: int, loaded_s: int) -> GatewayRecord:
        """Offer a load until all of it is processed; up to ``vms`` VMs share it evenly with home."""
        events = rate_per_s * loaded_s
        lines = (json.dumps({"id": number, "text": f"{number:099}"}) for number in range(events))
        (self._folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
        # One file for all plays: a state_dir refuses another config, and the hosts in it stay warm.
        config, report = self._folder / "config.yaml", self._folder / f"{name}-record.json"
        with config.open("w") as file:
            YAML(typ="safe").dump(self._config(name, vms, rate_per_s), file)
        command = [sys.executable, "-m", "gateway", "run", str(config.absolute()), "--until-drained", "--keep-hosts"]
        with (self._folder / f"{name}.log").open("wb") as log:
            process: Process = await self._wan.home.run(
                *command, "--report", str(report.absolute()), stdout=log.fileno(), stderr=STDOUT
            )
            async with asyncio.timeout(DEADLINE_S):
                code = await process.wait()
        if code:
            raise RuntimeError(f"the gateway of {name} ended with {code}; see {self._folder / name}.log")
        self._check(name, events)
        return read_record(report)

    def _config(self, name: str, vms: int, rate_per_s: int) -> dict[str, Any]:
        sites = [site for key, site in self._wan.sites.items() if key != self._wan.home.name]
        switching: dict[str, Any] = {"mode": "off"}
        if vms:
            switching = {
                "share": f"{100 * vms / (vms + 1):.2f}%",
                "start_vm_above": "500ms",
                "send_above": "400ms",
                "keep_vm_above": "300ms",
                "keep_vm_bytes": "0B",
                "tolerance": "0s",
            }
        query = {
            "source": {"type": "file", "path": f"{name}.jsonl", "replay": {"rate": f"{rate_per_s}/s"}},
            "schema": "id BIGINT, text STRING",
            "function": "waiting:ask",
            # Runs of 1.3 s of work: Spark's own cost is CPU time, and five engines share two CPUs.
            "runs": {"linger": "250ms"},
            "sink": {"type": "file", "path": f"out/{name}"},
            "qos": {"latency": "1s"},
            "switching": switching,
        }
        return {
            "gateway": {"state_dir": "state", "slot": "1s", "api": {"listen": "127.0.0.1:0"}, "orphan_after": "300s"},
            # All engines share all CPUs: the waiting limits them.
            "private": {"cpus": ",".join(map(str, available_cpus()))},
            "cloud": {
                "provider": "process",
                "max_vms": max(1, vms),
                "boot": "1s",
                "warm": True,
                "namespaces": {site.namespace: site.address for site in sites},
                "billing": {"period": "120s", "minimum": "120s", "usd_per_hour": 0.1, "usd_per_gb_sent": 0.09},
                "budget": {"usd_per_day": 5},
            },
            "queries": {name: query},
        }

    def _check(self, name: str, events: int) -> None:
        parts = sorted((self._folder / "out" / name).glob("*.jsonl"))
        ids = [json.loads(line)["id"] for part in parts for line in part.read_bytes().splitlines()]
        if sorted(ids) != list(range(events)):
            raise RuntimeError(f"{name}: {len(ids)} results, {len(set(ids))} different ones, of {events}")


def capacity(record: GatewayRecord, vms: int) -> float:
    """Return the events per second of all lanes while all were in use; the offered load is larger."""
    ready_s = max((mark.at_s for mark in record.marks if mark.kind == "vm_ready"), default=0.0)
    # A micro-batch may last longer than a slot: in some slots nothing was completed.
    rates = [slot.completed_rate or 0.0 for slot in record.slots[:-LAST_SLOTS] if slot.at_s > ready_s + FULL_AFTER_S]
    if len(rates) < LEAST_SLOTS or sum(mark.kind == "vm_ready" for mark in record.marks) < vms:
        raise RuntimeError(f"with {vms} VMs there were {len(rates)} slots in which all were full: too few")
    return fmean(rates)


async def four_vms() -> None:
    """Measure latency and capacity with 0 to 4 VMs, and print the results of section 7.5."""
    async with Wan(parse_wan(WAN)) as wan:
        for number in range(VMS_MOST):
            await wan.add(f"vm-{number + 1}")
        fleet = Fleet(wan, OUT / "vms")
        await fleet.play("warm-up", VMS_MOST, *WARM_UP)
        rows = []
        alone_s = alone_per_s = 0.0
        for vms in range(VMS_MOST + 1):
            record = await fleet.play(f"with-{vms}", vms, RATE_PER_S, LOADED_S)
            latency_s, per_s = record.totals.latency_ms.mean / 1e3, capacity(record, vms)
            if not vms:
                alone_s, alone_per_s = latency_s, per_s
            ideal = per_s / (alone_per_s * (vms + 1))
            below = 100 * (1 - latency_s / alone_s)
            disordered = 100 * record.totals.out_of_order / record.totals.events
            row = [f"{latency_s:.2f} s", f"{below:.1f} %", f"{per_s:.0f}/s", f"{ideal:.2f}", f"{disordered:.1f} %"]
            rows.append((str(vms), row))
            print(rows[-1], flush=True)
        table(("VMs", "mean latency", "below private only", "capacity", "of the ideal", "out of order"), rows)


def table(head: Sequence[str], rows: Sequence[tuple[str, Sequence[str]]]) -> None:
    """Print a table as Markdown."""
    lines = [list(head), ["---"] + ["---:"] * (len(head) - 1), *([name, *cells] for name, cells in rows)]
    print("\n".join("| " + " | ".join(line) + " |" for line in lines), flush=True)


if __name__ == "__main__":
    wanted = sys.argv[1:] or ["demo", "vms"]
    if "demo" in wanted:
        demo()
    if "cold" in wanted:
        cold()
    if "vms" in wanted:
        asyncio.run(four_vms())
