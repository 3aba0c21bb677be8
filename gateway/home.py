"""The private engine host in a gateway's care: linked up, watched, and replaced when it is lost."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from importlib.metadata import version

from gateway.config.models import Config
from gateway.connection import Connection, QueryRefusedError
from gateway.hosts import HomeHost, InService, NotSettledError
from gateway.moves import Loss
from gateway.outage import Outage
from gateway.profiler import Profiler
from gateway.query import RunningQuery
from gateway.standby import Host, Standby
from gateway.statefiles import probe
from gateway.threads import run_to_end
from infra.clock import Clock
from infra.clouds.base import CloudError
from infra.clouds.process import ProcessCloud
from infra.link.channel import LinkLost
from infra.link.trust import Authority
from infra.runtime import Runtime
from policies.signals import HOME

_LOG = logging.getLogger(__name__)
# So many losses of the private engine host in so short a time, and a query got nowhere in between, are no accident.
_LOSSES_MAX = 5
_LOSSES_S = 900.0


class Home:
    """Keeps a private engine host linked up from ``connect`` to ``end``, and the queries open on it.

    Args:
        make_host: makes the care for one host.
        tags: what the host must have been started with; one with other tags is replaced.
        queries: hear when it is lost and when there is another.
        profiler: hears when its lane is gone.
        clock: time.
        keep_standby: keep a second host ready, which takes over.
        probe: blocks, and raises OSError while the disk with the queries' state takes nothing; a lost host is not
            started again before it does.
    """

    def __init__(
        self,
        make_host: Callable[[], HomeHost],
        tags: Mapping[str, str],
        queries: Mapping[str, RunningQuery],
        profiler: Profiler,
        clock: Clock,
        *,
        keep_standby: bool,
        probe: Callable[[], None] = lambda: None,
    ) -> None:
        self._host = make_host()
        self._standby = Standby(make_host, tags, self._warm, clock) if keep_standby else None
        self._tags = dict(tags)
        self._queries = queries
        self._profiler = profiler
        self._clock = clock
        self._probe = probe
        self._disk = Outage(clock, (OSError,))
        self._disk_failed = False
        self._connection: Connection | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._given_up: str | None = None
        self._changing = asyncio.Lock()
        self._reopening: dict[str, asyncio.Task[None]] = {}
        self._reopened_at: dict[str, float] = {}
        self._completed: dict[str, float] = {}

    @property
    def connection(self) -> Connection:
        """The link to the host.

        Raises:
            LinkLost: there is none yet.
        """
        if self._connection is None:
            raise LinkLost("the private engine host is not linked up")
        return self._connection

    @property
    def runtime(self) -> Runtime:
        """What a VM must run, to the letter.

        Raises:
            LinkLost: there is no host yet.
        """
        return self.connection.link.hello.runtime

    def in_service(self) -> list[InService]:
        """Return the host, and the one that stands by.

        Raises:
            NotSettledError: one is being started or replaced.
        """
        if self._changing.locked():
            raise NotSettledError("the private engine host is being replaced")
        held = [] if self._standby is None else self._standby.in_service()
        return [self._host.in_service(self._connection), *held]

    @property
    def trouble(self) -> str:
        """Why a lost host is not started again yet; empty when all is well."""
        return self._disk.why

    @property
    def failure(self) -> str | None:
        """Why there is no private engine host any more; None while there is one or soon will be."""
        if self._given_up is not None:
            return self._given_up
        if self._standby is not None and (mistake := self._standby.mistake):
            return f"the gateway made a mistake with its standby host: {mistake!r}"
        for task in (self._watcher, *self._reopening.values()):
            if task is not None and task.done() and not task.cancelled() and (error := task.exception()):
                return f"the private engine host cannot be started again: {error}"
        return None

    async def connect(self) -> None:
        """Link up with a host that is ready.

        Raises:
            CloudError: it cannot be started.
            LinkLost: it went away again.
            TimeoutError: it did not become ready.
        """
        self._connection = await self._host.connect(self._tags)
        if self._standby is None:
            await self._host.end_others()
        await self._host.wait_ready(self._connection)

    async def _warm(self, connection: Connection) -> None:
        for query in self._queries.values():
            await query.warm(connection)

    def watch(self) -> None:
        """Begin to replace the host whenever it dies."""
        if self._standby is not None:
            self._standby.begin(None)
        self._watcher = asyncio.create_task(self._watch(), name="watch home")

    async def stop_watching(self) -> None:
        """Let the host be lost from now on."""
        tasks = [task for task in (self._watcher, *self._reopening.values()) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def lose(self, reason: str) -> None:
        """Give the host up, on which a query cannot go on.

        A fresh one may help: Spark may have died under the query. If it does not help, it is soon lost for good.
        """
        if self._connection is not None:
            self._connection.link.lose(reason)

    def reopen(self, name: str, reason: str) -> None:
        """Open a stateful query that is not answered again from its checkpoint; if that did not help, take a new host.

        Args:
            name: the query's.
            reason: what was seen.
        """
        present = self._reopening.get(name)
        if present is not None and not present.done():
            return
        completed = self._queries[name].tally.latency.weight
        if self._reopened_at.get(name) == completed:
            self.lose(f"query {name} is not answered although it was opened again: {reason}")
            return
        self._reopened_at[name] = completed
        _LOG.warning("query %s is opened again from its checkpoint: %s", name, reason)
        self._reopening[name] = asyncio.create_task(self._reopen(name), name=f"reopen {name}")

    async def _reopen(self, name: str) -> None:
        async with self._changing:
            try:
                await self._queries[name].reopen()
            except (LinkLost, QueryRefusedError, TimeoutError) as error:
                self.lose(f"query {name} cannot be opened again: {error}")

    async def end(self, *, keep: bool) -> None:
        """End the host, or with ``keep`` leave it to the next gateway."""
        try:
            if self._standby is not None:
                await self._standby.end(keep=keep)
        finally:
            if not keep:
                await self._host.end(self._connection)
            elif self._connection is not None:
                await self._connection.close("the gateway ends")

    async def _watch(self) -> None:
        """Start the host again when it dies; its runs wait, or go to the cloud, meanwhile."""
        losses: deque[float] = deque(maxlen=_LOSSES_MAX)
        why = ""
        while True:
            why = why or await self.connection.lost()
            if self._all_got_on():
                losses.clear()
            losses.append(self._clock.now())
            if len(losses) == _LOSSES_MAX and losses[-1] - losses[0] < _LOSSES_S:
                self._given_up = f"the private engine host was lost {_LOSSES_MAX} times in a short time, now: {why}"
                return
            _LOG.warning("the private engine host is lost (%s): another takes its place", why)
            loss = Loss(why, self._clock.now())
            async with self._changing:
                for query in self._queries.values():
                    await query.lose_home(loss)
                self._profiler.lane_closed(HOME)
                await self._disk.outlast("the state_dir", self._try_disk)
                why = await self._restart()
            if self._disk_failed:
                self._disk_failed = False
                # A query may have lost its host to a full disk, again and again: that says nothing against the host.
                losses.clear()

    async def _try_disk(self) -> None:
        self._disk_failed = self._disk_failed or not self._disk.healthy
        await run_to_end(self._probe)

    def _all_got_on(self) -> bool:
        """Tell whether each query completed something since the last loss, or has nothing to do."""
        before, self._completed = self._completed, {n: q.tally.latency.weight for n, q in self._queries.items()}
        return all(
            weight > before.get(name, 0.0) or self._queries[name].pipeline.idle
            for name, weight in self._completed.items()
        )

    async def _restart(self) -> str:
        """Try once, and return why it did not succeed; a host that cannot be used is ended."""
        since_s, retired = self._clock.now(), None
        try:
            retired = await self._replace()
            await self._restart_queries()
        except (CloudError, LinkLost, QueryRefusedError, TimeoutError, OSError) as error:
            await self._host.end(self._connection)
            if retired is not None:
                await retired[0].end(retired[1])
            return str(error)
        kind = "started or found" if retired is None else "standby"
        _LOG.warning("a %s host has the queries after %.1f s", kind, self._clock.now() - since_s)
        if self._standby is not None:
            self._standby.begin(retired)
        return ""

    async def _restart_queries(self) -> None:
        """Open all queries at once; one that fails breaks off no other half-way."""
        restarts = (query.restart_home(self.connection) for query in self._queries.values())
        for ended in await asyncio.gather(*restarts, return_exceptions=True):
            if isinstance(ended, BaseException):
                raise ended

    async def _replace(self) -> Host | None:
        """Take the standby host, else find or start one; return the host before it if that is still to be ended."""
        taken = None if self._standby is None else await self._standby.take()
        if taken is None or self._connection is None:
            await self.connect()
            return None
        retired = (self._host, self._connection)
        self._host, self._connection = taken
        return retired


def make_home(
    config: Config, authority: Authority, queries: Mapping[str, RunningQuery], profiler: Profiler, clock: Clock
) -> Home:
    """Return the care for the private engine host that ``config`` describes."""
    private, state_dir = config.private, config.gateway.state_dir
    machines = ProcessCloud(
        state_dir / "home",
        clock,
        max_vms=2 if private.standby else 1,
        master=private.spark.master,
        cpu_sets=[private.cpus] if private.cpus else [],
    )
    taken: set[str] = set()
    # A host of another version would serve other code.
    tags = {"version": version("spillway"), "master": private.spark.master, "cpus": private.cpus or ""}
    return Home(
        lambda: HomeHost(machines, authority, config.gateway.orphan_after_s, clock, taken),
        tags,
        queries,
        profiler,
        clock,
        keep_standby=private.standby,
        probe=lambda: probe(state_dir),
    )
