"""The private engine hosts, and which query runs on which of them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from types import MappingProxyType
from typing import Protocol, TypedDict
from weakref import WeakKeyDictionary

from engines.query.code import CodeError
from gateway.config.models import Config
from gateway.hosts.connection import Connection, QueryRefusedError
from gateway.hosts.enrol import HomeHost, InService
from gateway.hosts.hostkeeper import HostKeeper
from gateway.hosts.mastercheck import see_master
from gateway.hosts.standby import Standby
from gateway.query.running import RunningQuery
from gateway.query.supervision.trial import TRIAL, Trial
from infra.clock import Clock
from infra.clouds.cpus import available_cpus, cpu_numbers
from infra.clouds.process import Place, ProcessCloud
from infra.link.channel import LinkLost
from infra.link.keys.trust import Authority
from infra.runtime import Runtime
from infra.statefiles import probe
from policies.failures.blame import Blame, HostLoss, WaitingQuery
from policies.signals import HOME

_LOG = logging.getLogger(__name__)
# Linux shares the CPUs among sessions first, and a process's `nice` counts only within its session. So where it does
# (`autogroup`), the session of the suspects' host gets the low priority, too.
LOW_PRIORITY = ("sh", "-c", '{ echo 19 >/proc/self/autogroup; } 2>/dev/null; exec nice -n 19 "$@"', "sh")
# A host that has answered no query for this long, although all wait, is stuck.
_STUCK_S = 30.0


class StartedWith(TypedDict):
    """The settings with which every private engine host is launched; see ``ProcessCloud``."""

    master: str
    spark_conf: Mapping[str, str]
    cpu_sets: Sequence[str]


class MakeHost(Protocol):
    """Creates the object for one host process."""

    def __call__(self, role: str) -> HomeHost:
        """Return the object for a host with this role."""
        ...


@dataclass(frozen=True, slots=True)
class Seat:
    """Where a query runs at home: the link to its host, and whether it is alone there because it is suspected."""

    connection: Connection
    on_trial: bool


class Home:
    """Keeps the private engine hosts: one that queries share, one for suspects, one for each query with its own.

    Args:
        make_host: creates the object for one host process.
        tags: what a host must have been launched with; a host with other tags is replaced.
        queries: by name.
        clock: time.
        keep_standby: keep a second shared host ready, which takes over.
        own_hosts: each query has its own host; none is shared.
        probes: see ``HostKeeper``.
    """

    def __init__(
        self,
        make_host: MakeHost,
        tags: Mapping[str, str],
        queries: Mapping[str, RunningQuery],
        clock: Clock,
        *,
        keep_standby: bool,
        own_hosts: bool = False,
        probes: Mapping[str, Callable[[], None]] = MappingProxyType({}),
    ) -> None:
        self._queries = queries
        self._clock = clock
        self._completed: dict[HostKeeper, dict[str, float]] = {}
        self._blame = Blame()
        self._opening: dict[str, tuple[Connection, float]] = {}
        self._suspects_of: WeakKeyDictionary[Connection, tuple[str, ...]] = WeakKeyDictionary()
        self._trial = Trial(lambda: make_host(TRIAL), tags, clock)
        names = list(queries) if own_hosts else []
        self._own = {
            name: self._keeper(f"the engine host of query {name}", name, make_host, f"query {name}", tags, probes)
            for name in names
        }
        standby = Standby(lambda: make_host(HOME), tags, self._warm, clock) if keep_standby and not own_hosts else None
        self._shared = (
            None if own_hosts else self._keeper("the private engine host", None, make_host, HOME, tags, probes, standby)
        )

    def _keeper(
        self,
        name: str,
        query: str | None,
        make_host: MakeHost,
        role: str,
        tags: Mapping[str, str],
        probes: Mapping[str, Callable[[], None]],
        standby: Standby | None = None,
    ) -> HostKeeper:
        keeper = HostKeeper(
            name,
            lambda: make_host(role),
            tags,
            self._clock,
            standby=standby,
            probes=probes,
            all_progressed=lambda: self._all_progressed(keeper, list(self._queries) if query is None else [query]),
        )
        return keeper

    @property
    def _keepers(self) -> list[HostKeeper]:
        return [*([] if self._shared is None else [self._shared]), *self._own.values()]

    # ----------------------------------------------------------------------------------------------- start and stop

    async def connect(self) -> None:
        """Connect to all hosts, one after another; each is ready then.

        Raises:
            CloudError: one cannot be launched.
            LinkLost: its link was lost again.
            TimeoutError: it did not become ready.
        """
        for keeper in self._keepers:
            await keeper.connect()

    def watch(self) -> None:
        """Begin to replace hosts whenever they are lost."""
        for keeper in self._keepers:
            keeper.watch()

    async def stop_watching(self) -> None:
        """Stop replacing hosts that are lost."""
        for keeper in self._keepers:
            await keeper.stop_watching()

    async def end(self, *, keep: bool) -> None:
        """End all hosts, or with ``keep`` leave them to the next gateway; the suspects' host is ended in any case."""
        try:
            await self._trial.end()
        finally:
            for keeper in self._keepers:
                await keeper.end(keep=keep)

    # -------------------------------------------------------------------------------------------------- what is asked

    @property
    def runtime(self) -> Runtime:
        """The runtime that a VM must have, exactly.

        Raises:
            LinkLost: there is no host yet.
        """
        return self._keepers[0].connection.link.hello.runtime

    def in_service(self) -> list[InService]:
        """Return all hosts, and the standby.

        Raises:
            NotSettledError: one is being launched or replaced.
        """
        return [host for keeper in self._keepers for host in keeper.in_service()]

    @property
    def trouble(self) -> str:
        """Why a lost host is not launched again yet; empty if nothing is wrong."""
        return "; ".join(keeper.trouble for keeper in self._keepers if keeper.trouble)

    @property
    def failed_launches(self) -> int:
        """How many launches of a host failed in a row."""
        return max((keeper.failed_launches for keeper in self._keepers), default=0)

    @property
    def mistake(self) -> BaseException | None:
        """The internal error that ended the task of a host; None if nothing is wrong."""
        return next((mistake for keeper in self._keepers if (mistake := keeper.mistake)), None)

    # ------------------------------------------------------------------------------------------- who runs on which host

    async def any_host(self) -> Connection:
        """Wait until there is a host, and return it.

        Raises:
            LinkLost: it was lost again.
        """
        return await self._keepers[0].ready()

    async def seat(self, query: str) -> Seat:
        """Wait until a query may be opened at home, and return where.

        Raises:
            CloudError: the host for suspects cannot be launched.
            LinkLost: its link was lost again.
            TimeoutError: it did not become ready.
        """
        if query in self._trial.suspects:
            connection = await self._trial.turn(query)
            if connection is not None:
                return Seat(connection, on_trial=True)
        keeper = self._own.get(query, self._shared)
        assert keeper is not None, "a query without a host of its own shares one"
        connection = await keeper.ready()
        connection.shared = keeper is self._shared and len(self._queries) > 1
        return Seat(connection, on_trial=False)

    def lose(self, query: str, reason: str) -> None:
        """Abandon the host of a query, because it is stuck."""
        keeper = self._own.get(query, self._shared)
        assert keeper is not None, "a query without a host of its own shares one"
        keeper.lose(reason)

    @contextmanager
    def opening(self, query: str, connection: Connection) -> Iterator[None]:
        """Note, while the block lasts, that a query is being opened on a host, which may end the host."""
        self._opening[query] = (connection, self._clock.now())
        try:
            yield
        finally:
            del self._opening[query]

    def has_own_host(self, query: str) -> bool:
        """Whether the config gives the query its own host."""
        return query in self._own

    def is_stuck(self, connection: Connection, query: str = "") -> bool:
        """Whether a host has answered no query for long although it has work; ``query`` does not count."""
        waited_s = [
            lane.waiting_s or 0.0
            for name, other in self._queries.items()
            if name != query and (lane := other.lanes.get(HOME)) is not None and lane.connection is connection
        ]
        return all(each >= _STUCK_S for each in waited_s)

    def lost(self, connection: Connection) -> tuple[str, ...]:
        """Return the queries that are suspected of having ended a host; call it before their lanes are removed.

        The answer is computed once for each host, when its loss is first noticed.
        """
        found = self._suspects_of.get(connection)
        if found is None:
            found = self._suspects_of[connection] = self._suspects(connection)
        return found

    def _suspects(self, connection: Connection) -> tuple[str, ...]:
        now_s = self._clock.now()
        waiting = {
            name: WaitingQuery(now_s - at_s) for name, (host, at_s) in self._opening.items() if host is connection
        }
        for name, query in self._queries.items():
            lane = query.lanes.get(HOME)
            if lane is not None and lane.connection is connection and (waited_s := lane.waiting_s) is not None:
                waiting[name] = WaitingQuery(waited_s, query.committed_before, query.read_before)
        if any(keeper.connection is connection for keeper in self._own.values()):
            return tuple(waiting)
        suspects = self._blame.suspects(HostLoss(now_s, waiting, connection.suspects))
        self._trial.enqueue(suspects)
        return suspects

    def run_alone(self, query: str) -> None:
        """Run a query alone, because it ended its host while it ran alone, or exhausted the memory of a shared one."""
        self._trial.enqueue([query])

    async def clear(self, query: str) -> None:
        """Clear a suspect that did no harm: it runs with the others again."""
        await self._trial.clear(query)

    async def confirm(self, query: str) -> None:
        """Note that a query ended the host on which it ran alone: the other suspects are cleared."""
        await self._trial.confirm(query)

    # ------------------------------------------------------------------------------------------------------ the rest

    async def warm(self, wanted: Callable[[], bool]) -> None:
        """Run every query once on its host, where none is open yet, so that they open sooner.

        Args:
            wanted: returns False when there is no time for it any more.
        """
        for name, query in list(self._queries.items()):
            keeper = self._own.get(name, self._shared)
            assert keeper is not None, "a query without a host of its own shares one"
            connection = await keeper.ready()
            if not wanted():
                return
            try:
                await self._warm_up(query, connection)
            except (LinkLost, TimeoutError) as error:
                _LOG.warning("query %s could not be warmed up: %s", name, error)

    async def _warm(self, connection: Connection) -> None:
        """Run every open query once on a standby host."""
        for query in list(self._queries.values()):
            if query.started:
                await self._warm_up(query, connection)

    async def _warm_up(self, query: RunningQuery, connection: Connection) -> None:
        """Run a query once on a host; one that is refused there is skipped."""
        try:
            await query.warm(connection)
        except (CodeError, QueryRefusedError) as error:
            _LOG.warning("query %s could not be warmed up on an engine host: %s", query.name, error)

    def _all_progressed(self, keeper: HostKeeper, names: Sequence[str]) -> bool:
        """Return whether each query completed something since the last loss, or has nothing to do."""
        before = self._completed.get(keeper, {})
        now = self._completed[keeper] = {name: self._queries[name].tally.latency.weight for name in names}
        return all(weight > before.get(name, 0.0) or self._queries[name].idle for name, weight in now.items())


def make_home(config: Config, authority: Authority, queries: Mapping[str, RunningQuery], clock: Clock) -> Home:
    """Return the keeper of the private engine hosts of ``config``."""
    private, state_dir = config.private, config.gateway.state_dir
    own_hosts = private.host == "own"
    started_with: StartedWith = {
        "master": private.spark.master,
        "spark_conf": private.spark.settings,
        "cpu_sets": [private.cpus] if private.cpus else [],
    }
    most = (len(queries) if own_hosts else 1) + (1 if private.standby else 0)
    machines = ProcessCloud(state_dir / "home", clock, max_vms=most, **started_with)
    # Suspects get the CPU time that the others leave, and only of one CPU: when a thread of another query begins to
    # run, even a process of low priority may keep its CPU for some milliseconds more.
    places = [Place(LOW_PRIORITY, "127.0.0.1")]
    last_cpu = (cpu_numbers(private.cpus) if private.cpus else available_cpus())[-1]
    started_alone: StartedWith = {**started_with, "cpu_sets": [str(last_cpu)]}
    suspects = ProcessCloud(state_dir / "trial", clock, max_vms=1, places=places, **started_alone)
    taken: set[str] = set()
    # A host of another version would run other code.
    tags = {"version": version("spillway"), "master": private.spark.master, "cpus": private.cpus or ""}
    if private.spark.settings:
        tags["spark"] = private.spark.fingerprint
    return Home(
        lambda role: HomeHost(
            suspects if role == TRIAL else machines, authority, config.gateway.orphan_after_s, clock, taken, role
        ),
        tags,
        queries,
        clock,
        keep_standby=private.standby,
        own_hosts=own_hosts,
        probes={
            "the state_dir": lambda: probe(state_dir),
            "the private Spark": partial(see_master, private.spark.master, clock),
        },
    )
