"""A clock for tests that must not wait."""

from __future__ import annotations

import asyncio

from infra.clock import SystemClock


class LeapingClock(SystemClock):
    """Real time, but a sleep ends at once and moves time on."""

    def __init__(self) -> None:
        self._leapt_s = 0.0

    def now(self) -> float:
        return super().now() + self._leapt_s

    async def sleep_until(self, at_s: float) -> None:
        self._leapt_s += max(0.0, at_s - self.now())
        await asyncio.sleep(0)
