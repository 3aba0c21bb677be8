"""More VMs give less latency (ESM, section 7.5 and Figure 11), if waiting limits the rate of an engine.

Engine hosts run without Spark, so that five of them fit on two cores; ``bench/reproduce_esm.py vms`` uses Spark.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import pytest

from infra.wan import Wan, WanSettings
from tests.wan.far_site import EAGER, far_gateway, gone

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(900)]
FULL = os.environ.get("SPILLWAY_FAULTS") == "full"
SERVED_PER_S = 100
RATE_PER_S = 450
LOADED_S = 20 if FULL else 10
VMS = range(5) if FULL else (0, 2)
# What is left at the end is not spread evenly any more.
TAIL_S = 2.0
IDEAL_GOAL = 0.9


@dataclass
class Outcome:
    """Mean latency above that of the fastest event, and events served a second while all lanes are in use."""

    latency_s: float
    capacity_per_s: float


async def played(wan: Wan, folder: Path, vms: int) -> Outcome:
    """Offer more than five engines serve, and wait until all of it is done."""
    folder.mkdir()
    events = RATE_PER_S * LOADED_S
    gateway = await far_gateway(
        wan,
        folder,
        events=events,
        rate_per_s=RATE_PER_S,
        environment={"ECHO_EVENTS_PER_S": str(SERVED_PER_S)},
        vms=vms,
        warm=True,
        switching={**EAGER, "share": f"{100 * vms / (vms + 1):.1f}%"} if vms else {"mode": "off"},
    )
    try:
        await gateway.drained()
    finally:
        await gone(gateway)
        for number in range(max(1, vms)):
            await wan.remove(f"vm-{number + 1}")
    rows = gateway.rows
    assert sorted(row["id"] for row in rows) == list(range(events))
    made = [(row["id"], *row["lane"].rsplit("@", 1)) for row in rows]
    first_s: dict[str, float] = {}
    last_s: dict[str, float] = {}
    for _, host, at in made:
        first_s[host] = min(first_s.get(host, float("inf")), float(at))
        last_s[host] = max(last_s.get(host, 0.0), float(at))
    assert len(first_s) == vms + 1, gateway.tail()
    since_s, until_s = max(first_s.values()), min(last_s.values()) - TAIL_S
    assert until_s - since_s > TAIL_S, "the load did not outlast the start of the VMs"
    served = sum(since_s < float(at) <= until_s for _, _, at in made)
    late_s = [float(at) - number / RATE_PER_S for number, _, at in made]
    return Outcome(fmean(late_s) - min(late_s), served / (until_s - since_s))


async def test_latency_falls_and_capacity_grows_with_each_vm(wan: Wan, tmp_path: Path) -> None:
    await wan.set(WanSettings(delay_s=0.035, rate_bits_per_s=50e6))
    alone = await played(wan, tmp_path / "with-0", 0)
    outcomes = {0: alone}
    for vms in VMS:
        outcomes[vms] = outcome = alone if vms == 0 else await played(wan, tmp_path / f"with-{vms}", vms)
        ideal = outcome.capacity_per_s / ((vms + 1) * alone.capacity_per_s)
        below = 100 * (1 - outcome.latency_s / alone.latency_s)
        print(f"{vms} VMs: {outcome.latency_s:.2f} s, {below:.1f} % below none, {outcome.capacity_per_s:.0f} events/s,")
        print(f"  {ideal:.2f} of the ideal (goal {IDEAL_GOAL})", flush=True)
    latencies_s = [outcome.latency_s for outcome in outcomes.values()]
    assert latencies_s == sorted(latencies_s, reverse=True)
    assert outcomes[max(VMS)].capacity_per_s > 1.5 * alone.capacity_per_s
