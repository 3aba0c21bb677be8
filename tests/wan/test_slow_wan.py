"""A WAN becomes slow: the share falls, and events that stay home are not affected."""

from __future__ import annotations

import asyncio
import hashlib
import re
import time
from pathlib import Path
from statistics import quantiles

import pytest

from infra.wan import Wan, WanSettings
from tests.faults.figures import FULL, WAN, Figures, Measure
from tests.wan.far_site import EAGER, FarGateway, far_gateway, gone
from tests.wan.wan_site import DEADLINE_S

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(600)]
FAST = WanSettings(delay_s=0.035, rate_bits_per_s=50e6)
SLOW = WanSettings(delay_s=0.15, rate_bits_per_s=1e6)
SERVED_PER_S, RATE_PER_S = 400, 240
SLOT_S = 1.0
CALM_S, AFTER_S = 8.0, (40.0 if FULL else 12.0)
ROUTE = re.compile(r"query q: (?:all events stay home|[\d.]+% to home(?:, ([\d.]+)% to vm-1)?)")
SLOTS_GOAL, P99_GOAL = 3, 1.1


def incompressible(number: int) -> str:
    return "".join(hashlib.sha256(f"{number}.{part}".encode()).hexdigest() for part in range(16))


def shares(gateway: FarGateway) -> list[tuple[float, float]]:
    """(time, the cloud's share) as the scheduler commanded them."""
    found = [(at_s, match) for at_s, line in gateway.said if (match := ROUTE.search(line))]
    return [(at_s, float(match[1] or 0.0) / 100) for at_s, match in found]


async def played(wan: Wan, folder: Path, switching: dict[str, str]) -> tuple[FarGateway, float, list[float]]:
    """Run one load, with a WAN that becomes slow after a while; return also when, and home's latencies from then on.

    The shortest latency is subtracted, since the start of the load is not known to the microsecond.
    """
    folder.mkdir()
    await wan.set(FAST)
    events = int((CALM_S + AFTER_S) * RATE_PER_S)
    gateway = await far_gateway(
        wan,
        folder,
        events=events,
        rate_per_s=RATE_PER_S,
        text=incompressible,
        slot=f"{SLOT_S:g}s",
        environment={"ECHO_EVENTS_PER_S": str(SERVED_PER_S)},
        switching=switching,
    )
    try:
        ready_s = await gateway.until("ready: ")
        if "mode" not in switching:
            await gateway.until("% to vm-1")
        await asyncio.sleep(max(0.0, ready_s + CALM_S - time.monotonic()))  # how long it is calm
        changed_s = time.monotonic()
        await wan.set(SLOW)
        await gateway.drained()
    finally:
        await gone(gateway)
        await wan.remove("vm-1")
    rows = gateway.rows
    assert sorted(row["id"] for row in rows) == list(range(events))
    made = [(row["id"], *row["lane"].rsplit("@", 1)) for row in rows]
    home = [(float(at) - number / RATE_PER_S, float(at)) for number, host, at in made if host.startswith("home")]
    quickest_s = min(late_s for late_s, _ in home)
    return gateway, changed_s, [late_s - quickest_s for late_s, at_s in home if at_s > changed_s]


async def test_the_share_falls_and_home_notices_nothing(wan: Wan, tmp_path: Path, figures: Figures) -> None:
    _, _, alone = await played(wan, tmp_path / "alone", {"mode": "off"})
    gateway, changed_s, beside = await played(wan, tmp_path / "slow", {**EAGER, "share": "auto"})
    p99_s, slow_p99_s = (quantiles(late_s, n=100)[-1] for late_s in (alone, beside))
    before = min([share for at_s, share in shares(gateway) if at_s <= changed_s][-3:])
    after = [(at_s, share) for at_s, share in shares(gateway) if at_s > changed_s]
    fell_s = next(at_s for at_s, share in after if share < before)
    slots = (fell_s - changed_s) / SLOT_S
    assert fell_s - changed_s < DEADLINE_S
    figures.add(
        "50 Mbit/s and 70 ms become 1 Mbit/s and 300 ms",
        Measure("the share falls within", slots, SLOTS_GOAL, "slots"),
        Measure("home's 99th percentile, of that without a WAN", slow_p99_s / p99_s, P99_GOAL, "x"),
        Measure("the lowest share, of the one before", min(share for _, share in after) / before, 0.5),
        times=1,
        outcome=f"{len(gateway.rows):,} events: 0 lost, 0 twice",
        page=WAN,
    )
