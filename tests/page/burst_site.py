"""A daemon whose query is a double with a load that the test sets: VMs are launched by the daemon's own scheduler."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gateway.views.http.access import read_token
from policies.signals import HOME, QuerySlot
from tests.gateway import daemon_site
from tests.support.fleet_doubles import Dialler, MemoryCloud
from tests.support.waiting import until

PERIOD_S = 4
RATE_PER_S = 800.0


class BurstSite:
    """A daemon with one query, ``words``.

    Args:
        folder: with its config and its state.
        port: of its API.

    Attributes:
        latency_s: L in the next slots.
        slots: how many have ended.
    """

    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder
        self.url = f"http://127.0.0.1:{port}"
        self.cloud = MemoryCloud()
        self.site = daemon_site.Site(folder, dial=Dialler(), cloud=self.cloud, port=port)
        self.site.profiler.end_slot = self._end_slot
        self.latency_s, self.slots = 0.4, 0

    @property
    def token(self) -> str:
        return read_token(self.folder / "state" / "api-token")

    def _end_slot(self, *_: object, **__: object) -> tuple[QuerySlot, ...]:
        query = self.site.query
        self.slots += 1
        shares = query.shares or {HOME: 1.0}
        query.cloud_share = sum(share for lane, share in shares.items() if lane != HOME)
        events = RATE_PER_S * 0.1
        away = {lane: int(100 * events * share) for lane, share in shares.items() if lane != HOME}
        slot = QuerySlot(
            query="words",
            latency_s=self.latency_s,
            rates=dict.fromkeys(shares, 1000.0),
            completed_events={lane: int(events * share) for lane, share in shares.items()},
            raw_bytes=away,
            sent_bytes={lane: number // 4 for lane, number in away.items()},
            input_rate=RATE_PER_S,
            input_bytes_per_s=100 * RATE_PER_S,
            open_runs=2,
            out_of_order_share=0.05,
        )
        return (slot,)


@asynccontextmanager
async def running(folder: Path, monkeypatch: pytest.MonkeyPatch, port: int) -> AsyncIterator[BurstSite]:
    """Run such a daemon; drain it at the end."""
    with monkeypatch.context() as patch:
        config = daemon_site.CONFIG.replace("period: 60s, minimum: 60s", f"period: {PERIOD_S}s, minimum: {PERIOD_S}s")
        switching = "    switching: {{tolerance: 200ms, keep_vm_bytes: 1GB}}\n"
        patch.setattr(daemon_site, "CONFIG", config + switching)
        burst = BurstSite(folder, port)
    task = asyncio.create_task(burst.site.daemon.run(False, None))
    try:
        await until(lambda: task.done() or burst.site.daemon.phase == "running")
        yield burst
    finally:
        burst.site.query.idle = True
        if not task.done():
            burst.site.daemon.parts.drain()
        assert await task == 0
        assert burst.cloud.nodes == {}
