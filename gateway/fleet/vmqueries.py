"""Which queries are open on which VM. A query that cannot run on a VM is kept off it; the others use the VM."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from gateway.hosts.connection import Connection, QueryRefusedError
from gateway.query.flow.dispatcher import Loss
from gateway.query.running import RunningQuery
from infra.link.channel import LinkLost
from infra.together import all_or_none
from policies.signals import Event, QueryKeptOff

_LOG = logging.getLogger(__name__)


class VmQueries:
    """Opens queries on the VMs.

    Args:
        queries: the running queries, by name.
        emit: receives events.
    """

    def __init__(
        self, queries: Mapping[str, RunningQuery], emit: Callable[[Callable[[str, float], Event]], None]
    ) -> None:
        self._queries = queries
        self._emit = emit
        self._open: dict[str, set[str]] = {}
        self._refused: dict[str, set[str]] = {}
        self._opening: set[str] = set()

    async def open_all(self, vm: str, connection: Connection) -> None:
        """Open each query that may be switched.

        Raises:
            LinkLost: the link to the VM was lost.
            QueryRefusedError: the VM refuses all of them; or
            TimeoutError: it did not answer for any of them.
        """
        self._open[vm], self._refused[vm] = set(), set()
        refusals: dict[str, Exception] = {}

        async def open_one(query: str) -> None:
            try:
                if query in self._queries and await self._queries[query].attach(connection):
                    self._open[vm].add(query)
            except (QueryRefusedError, TimeoutError) as error:
                refusals[query] = error

        self._opening.add(vm)
        try:
            await all_or_none(*(open_one(query) for query in self._switchable))
        finally:
            self._opening.discard(vm)
        if refusals and not self._open[vm]:
            raise next(iter(refusals.values()))
        for query, error in refusals.items():
            self._refused[vm].add(query)
            self._tell(query, vm, str(error))

    async def open_missing(self, vm: str, connection: Connection, query: str | None = None) -> None:
        """Open queries that were not open at home when the VM got the others; or ``query``, which was opened again."""
        if query is not None:
            self._refused[vm].discard(query)
            self._open[vm].discard(query)
        for name in self._switchable:
            if name not in self._queries:
                continue  # it was removed meanwhile
            if vm in self._queries[name].lanes:
                # It continued there while its home was replaced.
                self._open[vm].add(name)
            if name in self._open[vm] or name in self._refused[vm]:
                continue
            try:
                if await self._queries[name].attach(connection):
                    self._open[vm].add(name)
            except LinkLost:
                return  # the task that watches the link handles that
            except (QueryRefusedError, TimeoutError) as error:
                self._refused[vm].add(name)
                self._tell(name, vm, str(error))

    async def keep_off(self, query: str, vm: str, reason: str) -> bool:
        """Close a query on a VM on which it cannot continue; return whether the VM serves any other."""
        others = self._open.setdefault(vm, set())
        others.discard(query)
        self._refused.setdefault(vm, set()).add(query)
        if not others and vm not in self._opening:
            return False
        if query in self._queries:
            self._tell(query, vm, reason)
            await self._queries[query].detach(vm)
        return True

    def forget(self, query: str) -> None:
        """Note that a query, which is closed, is gone."""
        for names in (*self._open.values(), *self._refused.values()):
            names.discard(query)

    def drain(self, vm: str) -> None:
        """Send a VM no further run; it answers the runs that it has."""
        for query in self._queries.values():
            query.drain_lane(vm)

    async def take_out(self, vm: str, loss: Loss | None = None) -> None:
        """Remove the lanes of a VM from all queries."""
        for query in list(self._queries.values()):
            await query.detach(vm, loss)

    def idle(self, vm: str) -> bool:
        """Whether nothing of any query is open on a VM."""
        return all(query.lane_idle(vm) for query in self._queries.values())

    @property
    def _switchable(self) -> list[str]:
        return [name for name, query in self._queries.items() if query.started and query.switchable]

    def _tell(self, query: str, vm: str, reason: str) -> None:
        if query not in self._queries:
            return  # it was removed while it was being opened
        _LOG.warning("query %s is kept off %s, which serves the others: %s", query, vm, reason)
        self._emit(lambda event_id, at_s: QueryKeptOff(event_id=event_id, at_s=at_s, query=query, vm=vm, reason=reason))
