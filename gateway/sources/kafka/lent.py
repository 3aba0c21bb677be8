"""Partitions of a source that somebody else reads and delivers."""

from __future__ import annotations

import asyncio

from aiokafka import TopicPartition


class Lent:
    """What is lent of a source; it outlives a client that is replaced.

    Attributes:
        partitions: none of their records is read.
        wanted_back: set while the consumer group waits for them.
        changed: set when some are taken back; who waits for it clears it.
    """

    def __init__(self) -> None:
        self.partitions: set[TopicPartition] = set()
        self.wanted_back = asyncio.Event()
        self.changed = asyncio.Event()

    async def change_within(self, limit_s: float) -> None:
        """Return when some are taken back, or after so long."""
        self.changed.clear()
        try:
            async with asyncio.timeout(limit_s):
                await self.changed.wait()
        except TimeoutError:
            return
