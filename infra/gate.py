"""A bound on the bytes that a query holds in memory. Readers wait until there is room."""

from __future__ import annotations

import asyncio


class ByteGate:
    """Counts bytes between ``take`` and ``give``. One more item may pass while the count is below the limit."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._changed = asyncio.Event()
        self.held_bytes = 0

    async def wait(self) -> None:
        """Return once fewer than the limit are held."""
        while self.held_bytes >= self._limit_bytes:
            self._changed.clear()
            await self._changed.wait()

    def take(self, count_bytes: int) -> None:
        """Count bytes that are held from now on."""
        self.held_bytes += count_bytes

    def give(self, count_bytes: int) -> None:
        """Count bytes that are no longer held."""
        self.held_bytes -= count_bytes
        self._changed.set()
