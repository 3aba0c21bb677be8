"""The bytes that all queries hold in memory: one pool with one limit, shared fairly while it runs short.

A query may hold more while it holds fewer bytes than are free (dynamic thresholds of shared buffers: Choudhury and
Hahne, 1998). So one busy query may use half of the pool, n equally busy ones use 1/(n + 1) each, and a query that was
idle always finds room. A query that holds nothing may take one run: no query can stop another one for good.
"""

from __future__ import annotations

import asyncio
from typing import Final

_RESULTS_PART: Final = 4


class MemoryPool:
    """Bytes for all queries of a gateway.

    Held bytes exceed the limit by at most one run for each query, and by what runs that were dispatched before it was
    reached are answered with.

    Args:
        limit_bytes: how many bytes all queries may hold together.

    Attributes:
        held_bytes: how many they hold now.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.held_bytes = 0
        self._given = asyncio.Event()

    def share(self) -> MemoryShare:
        """Return the share of one query; it holds nothing yet."""
        return MemoryShare(self)

    def change(self, count_bytes: int) -> None:
        """Count bytes that a share takes, or gives if they are negative."""
        self.held_bytes += count_bytes
        if count_bytes < 0:
            self._given.set()

    async def changed(self) -> None:
        """Return once a share has given bytes back."""
        self._given.clear()
        await self._given.wait()


class MemoryShare:
    """What one query holds of the pool: the events of its runs that are not answered, and its uncommitted results."""

    def __init__(self, pool: MemoryPool) -> None:
        self._pool = pool
        self._closed = False
        self._input_bytes = 0
        self._result_bytes = 0

    @property
    def held_bytes(self) -> int:
        """Events and results together."""
        return self._input_bytes + self._result_bytes

    @property
    def bound_bytes(self) -> int:
        """With fewer bytes than this the query holds less than is free; with at least so many it takes no more."""
        others_bytes = self._pool.held_bytes - self.held_bytes
        return max(1, (self._pool.limit_bytes - others_bytes) // 2)

    @property
    def results_bound_bytes(self) -> int:
        """With at least so many bytes of results, only runs are dispatched that results wait for; at least 1.

        A long backlog takes all of the bound. Its results then may use a quarter of what is free: otherwise all lanes
        would wait for one another's results just when most events wait for them.
        """
        free_bytes = self._pool.limit_bytes - (self._pool.held_bytes - self._result_bytes)
        return max(1, self.bound_bytes - self._input_bytes, free_bytes // _RESULTS_PART)

    async def wait(self) -> None:
        """Return once the query may take another run."""
        while self.held_bytes >= self.bound_bytes:
            await self._pool.changed()

    def take(self, count_bytes: int) -> None:
        """Count the events of a run."""
        self._change(self._input_bytes + count_bytes, self._result_bytes)

    def give(self, count_bytes: int) -> None:
        """Count the events of a run no more: it is answered."""
        self._change(self._input_bytes - count_bytes, self._result_bytes)

    def hold_results(self, held_bytes: int) -> None:
        """Count so many bytes of results, instead of those counted before."""
        self._change(self._input_bytes, held_bytes)

    def close(self) -> None:
        """Give back all that is held, for good: the query's pipeline has ended, and its runs with it."""
        self._change(0, 0)
        self._closed = True

    def renewed(self) -> MemoryShare:
        """Close it, and return one that holds nothing: the query is opened again."""
        self.close()
        return self._pool.share()

    def _change(self, input_bytes: int, result_bytes: int) -> None:
        if not self._closed:
            self._pool.change(input_bytes + result_bytes - self.held_bytes)
            self._input_bytes, self._result_bytes = input_bytes, result_bytes
