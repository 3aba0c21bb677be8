"""Looks for new content of a query's tables, and finds out at home whether the query can use it."""

from __future__ import annotations

import logging
from collections.abc import Callable

from gateway.hosts.connection import Connection, QueryRefusedError
from gateway.hosts.shipping import TableVersions
from gateway.query.opening import Opener
from infra.clock import Clock
from infra.link.channel import LinkLost

_LOG = logging.getLogger(__name__)


class TableRefresh:
    """Looks for new content from time to time, until it finds some that the query can use.

    Args:
        name: the query's.
        opener: opens it; it has the present versions.
        clock: time.

    Attributes:
        found: the new versions; None as long as there are none.
    """

    def __init__(self, name: str, opener: Opener, clock: Clock) -> None:
        self._name = name
        self._opener = opener
        self._clock = clock
        self._refused = ""
        self.found: TableVersions | None = None

    async def run(self, every_s: float, home: Callable[[], Connection | None]) -> None:
        """Look every so many seconds while a host at home is there, and return when ``found`` is set."""
        while self.found is None:
            await self._clock.sleep_until(self._clock.now() + every_s)
            connection = home()
            if connection is None or not connection.alive:
                continue
            try:
                self.found = await self._opener.newer_tables(connection)
                self._refused = ""
            except QueryRefusedError as error:
                self._note(str(error))
            except (LinkLost, TimeoutError) as error:
                _LOG.info("query %s: its tables are looked at again later: %s", self._name, error)

    def _note(self, refused: str) -> None:
        if refused != self._refused:
            self._refused = refused
            _LOG.error("%s: the query continues with the content that its tables had before", refused)
