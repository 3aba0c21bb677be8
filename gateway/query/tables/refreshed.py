"""A query whose tables get new content while it runs."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from typing import Final

from gateway.hosts.connection import Connection
from gateway.query.flow.runlog import RunLog
from gateway.query.moving.placed import PlacedQuery
from gateway.query.opening import Opener
from gateway.query.tables.refresh import TableRefresh
from infra.together import end_tasks
from policies.signals import HOME

FINAL_S: Final = 30.0
"""How long events wait for the last results of the old content."""
_LOOK_S: Final = 0.05


class RefreshedQuery(PlacedQuery):
    """Looks for new content of its tables, and is opened again with it."""

    _started: bool
    _log: RunLog
    _reading: asyncio.Task[None] | None
    _refresh: TableRefresh | None = None

    @abstractmethod
    def failure(self) -> BaseException | None:
        """Return why the query has failed, if it has."""

    def _refresh_tables(self, opener: Opener, every_s: float) -> asyncio.Task[None]:
        self._refresh = TableRefresh(self.name, opener, self._clock)
        looking_on = self._refresh.run(every_s, self._home_connection)
        return asyncio.create_task(looking_on, name=f"refresh tables of {self.name}")

    def _home_connection(self) -> Connection | None:
        lane = self.lanes.get(HOME)
        return None if lane is None else lane.connection

    @property
    def renewal_due(self) -> bool:
        """Whether there is new content of its tables and `renew` is to be called; one with state must be at home."""
        found = self._started and self._refresh is not None and self._refresh.found is not None
        return found and (not self.stateful or set(self.places) == {HOME})

    async def renew(self) -> bool:
        """Stop the query; its next start uses the new content of its tables, at all places.

        Returns:
            Whether it does. If events of a query with state do not become final in time, it keeps the old content.
        """
        assert self._refresh is not None
        assert self._refresh.found is not None
        found, self._refresh = self._refresh.found, None
        complete = not self.stateful or await self._all_final()
        await self.close_on_hosts()
        await self.stop()
        if complete:
            self._opener.tables = found
        return complete

    async def _all_final(self) -> bool:
        """Read no more, and return whether the sink and the checkpoint get everything that was read, within a time.

        Then no micro-batch of before is repeated, which would meet rows of the new content.
        """
        await self._rest()
        await end_tasks(self._reading)
        ends_s = self._clock.now() + FINAL_S
        while self._clock.now() < ends_s and self.failure() is None:
            all_there = [await mover.has_all_before(self._log.next_seq) for mover in self.movers]
            if self.pipeline.idle and all(all_there):
                return True
            await self._clock.sleep_until(self._clock.now() + _LOOK_S)
        return False
