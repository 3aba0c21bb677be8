"""A whole gateway with a query, and its VM behind a WAN that is cut: 0 lost, 0 twice, and how soon it reconnects.

With ``SPILLWAY_FAULTS=full`` the cuts are as long as in docs/results/wan.md.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from infra.wan import Direction, Wan, WanSettings
from tests.faults.figures import FULL, WAN, Figures, Measure
from tests.wan.far_site import FarGateway, far_gateway, gone
from tests.wan.wan_site import DEADLINE_S

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(900)]
RATE_PER_S = 200
SHORT_CUT_S = 1.0
LONG_CUT_S = 30.0 if FULL else 5.0
AROUND_S = 9.0  # beside the VM's start, which a busy machine takes long for: its host is warm
SENDING = "query q: 50% to home, 50% to vm-1"
NOTICED_GOAL_S, HEALED_GOAL_S = 3.0, 5.0


def settled(gateway: FarGateway, events: int) -> None:
    """Check that each event was answered once, and in order unless it was marked as late."""
    rows = gateway.rows
    assert sorted(row["id"] for row in rows) == list(range(events))
    assert all(row["lane"] == f"event {row['id']}" for row in rows)
    assert [row["id"] for row in rows] == list(range(events)), "nothing was late: the cut is shorter than flush"


def exact(events: int) -> str:
    return f"{events:,} events: 0 lost, 0 twice, 0 out of order"


async def sends(gateway: FarGateway) -> None:
    await gateway.until(SENDING)
    await asyncio.sleep(1.0)  # not a wait for a state: the cut shall meet runs on their way


async def test_a_short_cut_costs_nothing(wan: Wan, tmp_path: Path, figures: Figures) -> None:
    await wan.set(WanSettings(delay_s=0.035))
    events = int((AROUND_S + SHORT_CUT_S) * RATE_PER_S)
    gateway = await far_gateway(wan, tmp_path, events=events, rate_per_s=RATE_PER_S, warm=True)
    try:
        await sends(gateway)
        await wan.cut()
        await asyncio.sleep(SHORT_CUT_S)  # how long the cut is
        await wan.heal()
        await gateway.drained()
    finally:
        await gone(gateway)
    settled(gateway, events)
    assert gateway.events_by_lane["vm-1"] > events / 10
    figures.add(f"cut for {SHORT_CUT_S:g} s", times=1, outcome=exact(events), page=WAN)


@pytest.mark.parametrize("directions", [(), (Direction.UP,), (Direction.DOWN,)], ids=["both ways", "up", "down"])
async def test_a_cut_is_noticed_and_healed(
    wan: Wan, tmp_path: Path, directions: tuple[Direction, ...], figures: Figures
) -> None:
    await cut_and_heal(wan, tmp_path, directions, figures, spark=False)


@pytest.mark.spark
async def test_a_cut_with_spark_on_both_sides_is_noticed_and_healed(wan: Wan, tmp_path: Path, figures: Figures) -> None:
    await cut_and_heal(wan, tmp_path, (), figures, spark=True)


async def cut_and_heal(
    wan: Wan, tmp_path: Path, directions: tuple[Direction, ...], figures: Figures, *, spark: bool
) -> None:
    """Cut a WAN that is in use; see how soon that is noticed and mended, and that nothing is lost or twice."""
    await wan.set(WanSettings(delay_s=0.035))
    events = int((AROUND_S + LONG_CUT_S) * RATE_PER_S)
    gateway = await far_gateway(wan, tmp_path, events=events, rate_per_s=RATE_PER_S, spark=spark, warm=True)
    try:
        await sends(gateway)
        cut_s = time.monotonic()
        await wan.cut(*directions)
        noticed_s = await gateway.until("lane vm-1 lost (no heartbeat from") - cut_s
        await asyncio.sleep(max(0.0, cut_s + LONG_CUT_S - time.monotonic()))  # how long the cut is
        healed_s = time.monotonic()
        await wan.heal()
        linked_s = await gateway.until("reconnected to vm-1 after") - healed_s
        await gateway.drained()
    finally:
        await gone(gateway)
    assert max(noticed_s, linked_s) < DEADLINE_S
    settled(gateway, events)
    starts = [line for _, line in gateway.said if "launch vm-" in line and "failed" not in line]
    assert len(starts) == 1, "the VM outlived the cut"
    ways = " and ".join(each.value for each in directions) or "both ways"
    figures.add(
        f"cut for {LONG_CUT_S:g} s, {ways}{', Spark at both ends' if spark else ''}",
        Measure("noticed after", noticed_s, NOTICED_GOAL_S, "s"),
        Measure("linked again after", linked_s, HEALED_GOAL_S, "s"),
        times=1,
        outcome=exact(events),
        page=WAN,
    )
