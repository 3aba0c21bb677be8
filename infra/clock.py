"""Time as an argument: the daemon passes the system's clock; tests and the simulator pass their own."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """Where time comes from."""

    def now(self) -> float:
        """Return monotonic seconds; the only clock that measures latency."""
        ...

    def wall(self) -> float:
        """Return seconds since 1970; for logs, file names and billing records."""
        ...

    async def sleep_until(self, at_s: float) -> None:
        """Return once ``now() >= at_s``."""
        ...


class SystemClock:
    """The machine's own clock.

    ``now`` is CLOCK_MONOTONIC, which on Linux is the same for all processes of one boot.
    """

    def now(self) -> float:
        """Return monotonic seconds."""
        return time.monotonic()

    def wall(self) -> float:
        """Return seconds since 1970."""
        return time.time()

    async def sleep_until(self, at_s: float) -> None:
        """Return once ``now() >= at_s``; yields to the loop at least once."""
        await asyncio.sleep(max(0.0, at_s - time.monotonic()))
