"""Keeps one private engine host connected: launches it, watches its link, and launches another when it is lost."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType

from gateway.hosts.connection import Connection
from gateway.hosts.enrol import HomeHost, InService, NotSettledError
from gateway.hosts.standby import KeptHost, Standby
from infra.clock import Clock
from infra.clouds.base import CloudError
from infra.link.channel import LinkLost
from infra.retries import FailedTry, Outage, Retries
from infra.threads import run_to_end
from infra.together import end_tasks
from policies.failures.restarts import Restarts, RestartTerms

_LOG = logging.getLogger(__name__)
# After this many losses in this time, during which some query completed nothing, the next launch waits, longer each
# time.
_LOSSES_MAX = 5
_LOSSES_S = 900.0
_PAUSES = RestartTerms(first_s=1.0, most_s=60.0)
_LAUNCHES = Retries(first_s=1.0, most_s=60.0)
_FAILURES = (CloudError, LinkLost, TimeoutError, OSError)


class HostKeeper:
    """Keeps a host connected from ``connect`` to ``end``.

    Args:
        name: of the host, for people.
        make_host: creates the object for one host process.
        tags: what the host must have been launched with; a host with other tags is replaced.
        clock: time.
        standby: keeps a second host ready, which takes over; or None.
        probes: checks of what a host needs, by name: each blocks, and raises OSError while it is missing. A lost host
            is launched again only when all succeed.
        all_progressed: returns whether each query completed something since the last call, or has nothing to do.

    Attributes:
        failed_launches: how many launches failed in a row.
    """

    def __init__(
        self,
        name: str,
        make_host: Callable[[], HomeHost],
        tags: Mapping[str, str],
        clock: Clock,
        *,
        standby: Standby | None = None,
        probes: Mapping[str, Callable[[], None]] = MappingProxyType({}),
        all_progressed: Callable[[], bool] = lambda: True,
    ) -> None:
        self._name = name
        self._host = make_host()
        self._standby = standby
        self._tags = dict(tags)
        self._clock = clock
        self._probes = dict(probes)
        self._all_progressed = all_progressed
        self._outage = Outage(clock, (OSError,))
        self._outage_seen = False
        self._launch_trouble = ""
        self._connection: Connection | None = None
        self._available = asyncio.Event()
        self._watcher: asyncio.Task[None] | None = None
        self.failed_launches = 0

    @property
    def connection(self) -> Connection:
        """The link to the host.

        Raises:
            LinkLost: there is none yet.
        """
        if self._connection is None:
            raise LinkLost(f"the gateway is not linked to {self._name}")
        return self._connection

    @property
    def available(self) -> bool:
        """Whether there is a host that is ready, as far as is known."""
        return self._available.is_set()

    async def ready(self) -> Connection:
        """Return the link to a host that is ready; wait if necessary. The link may be lost at any moment."""
        await self._available.wait()
        return self.connection

    def in_service(self) -> list[InService]:
        """Return the host and its standby.

        Raises:
            NotSettledError: one is being launched or replaced.
        """
        if not self.available:
            raise NotSettledError(f"{self._name} is being replaced")
        held = [] if self._standby is None else self._standby.in_service()
        return [self._host.in_service(self._connection), *held]

    @property
    def trouble(self) -> str:
        """Why a lost host is not launched again yet; empty if nothing is wrong."""
        return self._outage.why or self._launch_trouble

    @property
    def mistake(self) -> BaseException | None:
        """The internal error that ended this task; None if nothing is wrong."""
        task = self._watcher
        if task is not None and task.done() and not task.cancelled() and (error := task.exception()):
            return error
        return None if self._standby is None else self._standby.mistake

    async def connect(self) -> None:
        """Connect to a host that is ready.

        Raises:
            CloudError: it cannot be launched.
            LinkLost: its link was lost again.
            TimeoutError: it did not become ready.
        """
        connection = self._connection = await self._host.connect(self._tags)
        if self._standby is None:
            await self._host.end_others()
        await self._host.wait_ready(connection)
        self._use(connection)

    def _use(self, connection: Connection) -> None:
        self._available.set()
        connection.when_lost(self._available.clear)

    def watch(self) -> None:
        """Begin to replace the host whenever it is lost."""
        if self._standby is not None:
            self._standby.begin(None)
        self._watcher = asyncio.create_task(self._watch(), name=f"watch {self._name}")

    async def stop_watching(self) -> None:
        """Stop replacing a host that is lost."""
        await end_tasks(self._watcher)

    def lose(self, reason: str) -> None:
        """Abandon the host, because it is stuck; another replaces it."""
        if self._connection is not None:
            self._connection.link.lose(reason)

    async def end(self, *, keep: bool) -> None:
        """End the host, or with ``keep`` leave it to the next gateway."""
        try:
            if self._standby is not None:
                await self._standby.end(keep=keep)
        finally:
            if not keep:
                await self._host.end(self._connection)
            elif self._connection is not None:
                await self._connection.close("the gateway stops")

    async def _watch(self) -> None:
        losses: deque[float] = deque(maxlen=_LOSSES_MAX)
        pauses = Restarts(_PAUSES)
        while True:
            reason = await self.connection.lost()
            _LOG.warning("%s is lost (%s): another host replaces it", self._name, reason)
            lost_s = self._clock.now()
            if self._all_progressed():
                losses.clear()
            losses.append(lost_s)
            for what, probe in self._probes.items():
                await self._outage.outlast(what, partial(self._try, probe))
            if self._outage_seen:
                # A full disk or an unreachable master may end many hosts: that is not the fault of the next one.
                self._outage_seen = False
                losses.clear()
            if len(losses) == _LOSSES_MAX and losses[-1] - losses[0] < _LOSSES_S:
                often = (
                    f"{self._name} was lost {_LOSSES_MAX} times within {losses[-1] - losses[0]:.0f} s, now: {reason}"
                )
                pause_s = pauses.failed(lost_s)
                assert pause_s is not None, "a host that is lost is always replaced"
                self._announce(often, pause_s)
                await self._clock.sleep_until(self._clock.now() + pause_s)
            await self._launch(lost_s)

    async def _try(self, probe: Callable[[], None]) -> None:
        self._outage_seen = self._outage_seen or not self._outage.healthy
        await run_to_end(probe)

    async def _launch(self, lost_s: float) -> None:
        """Use the standby host, or find or launch one; retry until there is one."""
        retired = await _LAUNCHES.retry(self._try_to_replace, self._clock, _FAILURES, heard=self._note_failure)
        self._launch_trouble, self.failed_launches = "", 0
        kind = "launched or found" if retired is None else "standby"
        _LOG.warning("%s: a %s host is ready after %.1f s", self._name, kind, self._clock.now() - lost_s)
        if self._standby is not None:
            self._standby.begin(retired)

    async def _try_to_replace(self) -> KeptHost | None:
        try:
            return await self._replace()
        except _FAILURES:
            self.failed_launches += 1
            await self._host.end(self._connection)
            raise

    def _note_failure(self, failed: FailedTry) -> None:
        self._announce(f"{self._name} cannot be launched: {failed.error}", failed.pause_s)

    def _announce(self, why: str, pause_s: float) -> None:
        self._launch_trouble = why
        _LOG.warning("%s; the next launch is in %.0f s", why, pause_s)

    async def _replace(self) -> KeptHost | None:
        """Use the standby host, or find or launch one; return the previous host if it still has to be ended."""
        taken = None if self._standby is None else await self._standby.take()
        if taken is None or self._connection is None:
            await self.connect()
            return None
        retired = (self._host, self._connection)
        self._host, self._connection = taken
        self._use(taken[1])
        return retired
