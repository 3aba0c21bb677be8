"""Runs queries that are suspected of ending their engine host alone, one after another, on a host of their own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence

from gateway.hosts.connection import Connection
from gateway.hosts.enrol import HomeHost
from infra.clock import Clock
from infra.clouds.base import CloudError
from infra.link.channel import LinkLost

_LOG = logging.getLogger(__name__)
TRIAL = "trial"
"""The role of the suspects' host."""


class Trial:
    """A queue of suspects, and the engine host on which the first of them runs.

    One loss of a shared host has one cause. So when a suspect ends the trial's host too, the others are cleared.

    Args:
        make_host: creates the object for one host process.
        tags: what the host is launched with.
        clock: time.
    """

    def __init__(self, make_host: Callable[[], HomeHost], tags: Mapping[str, str], clock: Clock) -> None:
        self._make_host = make_host
        self._tags = dict(tags)
        self._clock = clock
        self._suspects: list[str] = []
        self._changed = asyncio.Condition()
        self._host: HomeHost | None = None
        self._connection: Connection | None = None

    @property
    def suspects(self) -> Sequence[str]:
        """The queries that run alone or wait for that, in order."""
        return tuple(self._suspects)

    def enqueue(self, names: Sequence[str]) -> None:
        """Queue suspects, the most suspicious first."""
        self._suspects += [name for name in names if name not in self._suspects]

    async def turn(self, name: str) -> Connection | None:
        """Wait until a suspect may run alone; return the link to its host, or None if it was cleared meanwhile.

        Raises:
            CloudError: the host cannot be launched.
            LinkLost: its link was lost again.
            TimeoutError: it did not become ready.
        """
        async with self._changed:
            await self._changed.wait_for(lambda: name not in self._suspects or self._suspects[0] == name)
        if name not in self._suspects:
            return None
        if self._connection is None or not self._connection.alive:
            await self._end_host()
            self._host = self._make_host()
            connection = await self._host.connect(self._tags)
            await self._host.wait_ready(connection)
            self._connection = connection
        return self._connection

    async def clear(self, name: str) -> None:
        """Remove a suspect that did no harm from the queue."""
        await self._leave([name])

    async def confirm(self, name: str) -> None:
        """Remove the suspect that ended the host alone from the queue, and clear all others."""
        cleared = [other for other in self._suspects if other != name]
        if cleared:
            _LOG.info(
                "query %s crashed an engine host while it ran alone: cleared of suspicion: %s", name, ", ".join(cleared)
            )
        await self._leave([name, *cleared])

    async def end(self) -> None:
        """End the host."""
        self._suspects.clear()
        await self._end_host()

    async def _leave(self, names: Sequence[str]) -> None:
        self._suspects = [name for name in self._suspects if name not in names]
        if not self._suspects:
            await self._end_host()
        async with self._changed:
            self._changed.notify_all()

    async def _end_host(self) -> None:
        host, self._host = self._host, None
        connection, self._connection = self._connection, None
        if host is not None:
            try:
                await host.end(connection)
            except (CloudError, LinkLost) as error:
                _LOG.error("the engine host of a suspected query cannot be terminated: %s", error)
