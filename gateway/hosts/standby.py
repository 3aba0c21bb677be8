"""A second private engine host that is kept ready, so that queries continue at once when the first one dies."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from gateway.hosts.connection import Connection, QueryRefusedError
from gateway.hosts.enrol import HomeHost, InService, NotSettledError
from infra.clock import Clock
from infra.clouds.base import CloudError
from infra.link.channel import LinkLost
from infra.retries import FailedTry, Retries
from infra.together import end_tasks

_LOG = logging.getLogger(__name__)
_STARTS = Retries(first_s=5.0, most_s=300.0)
_FAILURES = (CloudError, LinkLost, QueryRefusedError, TimeoutError)

KeptHost = tuple[HomeHost, Connection]


class Standby:
    """Launches a host in the background, lets queries warm it up, and replaces it when it is lost.

    Args:
        make_host: creates the object for one more host.
        tags: what the host must have been launched with.
        warm: lets every query run once on a new host.
        clock: time.
    """

    def __init__(
        self,
        make_host: Callable[[], HomeHost],
        tags: Mapping[str, str],
        warm: Callable[[Connection], Awaitable[None]],
        clock: Clock,
    ) -> None:
        self._make_host = make_host
        self._tags = dict(tags)
        self._warm = warm
        self._clock = clock
        self._keeper: asyncio.Task[None] | None = None
        self._retired: KeptHost | None = None
        self._held: tuple[HomeHost, Connection | None] | None = None
        self._ready: KeptHost | None = None
        self._starting = False
        self._changed = asyncio.Event()

    def begin(self, retired: KeptHost | None) -> None:
        """Keep a host ready from now on; first end ``retired``, the host before the present one."""
        self._starting = True
        self._retired = retired
        self._keeper = asyncio.create_task(self._keep(), name="keep a standby host")

    @property
    def mistake(self) -> BaseException | None:
        """The internal error that ended this task; None if nothing is wrong."""
        keeper = self._keeper
        return keeper.exception() if keeper is not None and keeper.done() and not keeper.cancelled() else None

    def in_service(self) -> list[InService]:
        """Return the host if there is one.

        Raises:
            NotSettledError: it is being launched.
        """
        if self._ready is None and self._held is None:
            return []
        if self._ready is None:
            raise NotSettledError("the standby host is being started")
        return [self._ready[0].in_service(self._ready[1])]

    async def take(self) -> KeptHost | None:
        """Return the host and stop keeping it; wait for one that is being launched. None if there is none."""
        while self._ready is None and self._starting and self.mistake is None:
            self._changed.clear()
            await self._changed.wait()
        taken = self._ready
        if taken is None or not taken[1].alive:
            await self._stop()
            return None
        self._held = None
        await self._stop()
        return taken

    async def end(self, *, keep: bool) -> None:
        """End the host, or with ``keep`` leave it to the next gateway if it is ready."""
        kept = self._ready if keep else None
        if kept is not None:
            self._held = None
        await self._stop()
        if kept is not None:  # only now: its keeper would treat the closed link as a loss, and launch another host
            await kept[1].close("the gateway stops")

    async def _stop(self) -> None:
        """Stop keeping a host, and end the one that is held."""
        await end_tasks(self._keeper)
        self._keeper = self._ready = None
        self._starting = False
        await self._end_retired()  # it may have been cancelled
        if self._held is not None:
            await self._let_go()

    async def _let_go(self) -> None:
        if self._held is not None:
            await self._held[0].end(self._held[1])
            self._held = None

    async def _keep(self) -> None:
        try:
            await self._end_retired()
            while True:
                await _STARTS.retry(self._hold_one, self._clock, _FAILURES, heard=self._note_failure)
        finally:
            self._starting = False
            self._changed.set()

    def _note_failure(self, failed: FailedTry) -> None:
        self._starting = False
        self._changed.set()
        if failed.is_news:
            _LOG.warning("no standby host: %s; next try in %.0f s", failed.error, failed.pause_s)

    async def _hold_one(self) -> None:
        """Launch a host and keep it until it is lost; raise one of ``_FAILURES`` if there is none."""
        self._starting = True
        await self._let_go()  # of the one before, if it could not be ended
        host = self._make_host()
        self._held = (host, None)
        try:
            connection = await host.connect(self._tags)
            self._held = (host, connection)
            await host.wait_ready(connection)
            await self._warm(connection)
        except _FAILURES:
            await self._let_go()
            raise
        self._ready = (host, connection)
        self._changed.set()
        _LOG.info("a standby of the private engine host is ready")
        why = await connection.lost()
        self._ready, self._starting = None, True
        _LOG.warning("the standby host is lost (%s): starting another", why)
        await self._let_go()

    async def _end_retired(self) -> None:
        if self._retired is None:
            return
        host, connection = self._retired
        try:
            await host.end(connection)
        except CloudError as error:
            _LOG.error("the private engine host that was lost cannot be terminated: %s", error)
        self._retired = None
