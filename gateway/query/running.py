"""A query in the running daemon: opened at home, with its state on disk, its ingress and its lanes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import pyarrow as pa

from gateway.config.models import PrivateConfig, QueryConfig
from gateway.connectors.position import Position
from gateway.core.decide.profiler import Profiler
from gateway.core.intervals import IntervalSet
from gateway.hosts.connection import Connection
from gateway.journal.deadletters import ReplayRefusedError
from gateway.query import looking
from gateway.query.direct.carried import CarriedQuery
from gateway.query.endpoints import Endpoints
from gateway.query.flow.delivery import PACE, Pace, pace_of, settings_of
from gateway.query.flow.dispatcher import Watch
from gateway.query.flow.ingress import Ingress, run_limits
from gateway.query.flow.keyed.together import Division
from gateway.query.flow.memory import MemoryShare
from gateway.query.flow.pipeline import Pipeline
from gateway.query.flow.referring.loader import RunLoader
from gateway.query.flow.run import Run
from gateway.query.flow.runlog import RunLog
from gateway.query.flow.selecting.selector import Selector, selector_for
from gateway.query.flow.statistics import Tally
from gateway.query.handover import OwningFleet
from gateway.query.hosting.opening import Opening
from gateway.query.identity import Identity
from gateway.query.looking import SourcePlace
from gateway.query.moving.batchends import needed_after
from gateway.query.opening import Opener
from gateway.query.queryletters import QueryLetters
from gateway.query.querystate import BrokenQueryError, ExhaustedHostError, LaneFailedError
from gateway.query.takingover import TakeOver, continue_in, settle_source
from gateway.sinks.base import Sink
from gateway.sources.replayed import WithReplays
from infra.clock import Clock
from infra.failpoints import reached
from infra.messages import KeyPart, OpenQuery, QueryPlan
from infra.rows.base import SourceUnavailableError
from infra.threads import run_to_end
from infra.together import end_tasks
from policies.failures.overdue import Patience
from policies.signals import HOME

LOCAL = PrivateConfig()
_LOG = logging.getLogger(__name__)
PATIENCE = Patience()
_FORGET_COMMITS = 256
"""After so many commits the file of the ends of a divided query's micro-batches is shortened."""


class RunningQuery(CarriedQuery):
    """One query of the config, from ``start`` to ``stop``; it can be started again after that.

    ``on_run`` is called with (query, run) for each run that was read, if it is set.

    Args:
        name: its name.
        config: the query's config.
        folder: its part of the state_dir.
        code_path: the folder of the user's functions, or empty.
        memory: what the query may hold.
        profiler: measures it.
        clock: time.
        upstream: see ``SourceContext``.
        on_failed: called with (query, lane, reason) when it cannot go on on a VM.
        on_overdue: called with (query, reason) when it is to be opened again from its checkpoint with ``reopen``.
        why_not_write: returns why the sink may not be written now (the gateway is not the owner any more), else empty.
        fleet: if other gateways of a fleet may continue the query on other machines.
        private: the private side.
        patience: how long a lane's answer is waited for.
        pace: how often the sink is written.
        tally: counts on from here; None: from zero.
        watching: the pipeline's.
    """

    def __init__(
        self,
        name: str,
        config: QueryConfig,
        *,
        folder: Path,
        code_path: str,
        memory: MemoryShare,
        profiler: Profiler,
        clock: Clock,
        upstream: Callable[[str], tuple[Path, Callable[[], bool]]],
        on_failed: Callable[[str, str, str], None],
        on_overdue: Callable[[str, str], None],
        why_not_write: Callable[[], str] = lambda: "",
        fleet: OwningFleet | None = None,
        private: PrivateConfig = LOCAL,
        patience: Patience = PATIENCE,
        pace: Pace = PACE,
        tally: Tally | None = None,
        watching: Callable[[int | None], Watch | None] = lambda _: None,
    ) -> None:
        self.name = name
        self.on_run: Callable[[str, Run], None] | None = None
        self.config = config
        self._folder = folder
        self._opener = Opener(name, config, folder, code_path, private, clock, self.on_failed)
        self._profiler = profiler
        self._clock = clock
        self._endpoints = Endpoints(name, config, folder, clock, upstream, why_not_write, fleet)
        self._fail_lane, self._reopen, self._fleet = on_failed, on_overdue, fleet
        self._memory, self._patience, self._pace, self._watching = memory, patience, pace, watching
        self._tasks: list[asyncio.Task[None]] = []
        self._reading: asyncio.Task[None] | None = None
        self._served_per_s, self._commits = 0.0, 0
        self._shares: dict[str, float] = {HOME: 1.0}
        self.movers = self._make_movers(config.switching)
        self._error: Exception | None = None
        self._started, self._reads_on, self._only_finishes = False, True, False
        self.plan: QueryPlan | None = None
        self.tally = Tally() if tally is None else tally
        self._more = asyncio.Event()
        self._selector: Selector | None = None
        self._letters = QueryLetters(name, config, folder, self.tally, clock)
        self.dead_letters, self.drop_dead_letters = self._letters.file, self._letters.drop

    def _take(self, run: Run) -> None:
        if self.on_run is not None:
            self.on_run(self.name, run)
        self.pipeline.offer(run)

    async def check(self, home: Connection) -> None:
        """Check that the home host can run it; see ``Opener.check``."""
        await self._opener.check(home)

    # ---------------------------------------------------------------------------------------------- start and stop

    async def start(self, *hosts: Connection) -> None:
        """Open the query, recover, and let events flow. If that fails, everything is closed again.

        Args:
            hosts: one for all of it, or one for each of its parts.

        Raises:
            QueryRefusedError: the engine cannot open it.
            StateError: the state on disk belongs to another query or is damaged.
            SourceError: the source cannot be read.
        """
        found = TakeOver(self.name, self.config, self._folder, self._opener, self._clock, self._fleet)
        at_home = all(host.name == HOME for host in hosts)
        identity = await (found.identity(hosts[0], self) if at_home else found.same_identity())
        await self._begin(hosts, self._opener, identity)

    async def committed(self, identity: Identity) -> IntervalSet:
        """See ``Deliverer.committed``."""
        async with AsyncExitStack() as undo:
            return (await self._endpoints.open_sink(identity, undo, stateful=self.stateful)).committed

    async def begin(self, home: Connection, opener: Opener, identity: Identity, *, only_finish: bool = False) -> None:
        """See ``Deliverer.begin``. If it fails, everything of the query is closed again."""
        await self._begin((home,), opener, identity, only_finish=only_finish)

    async def _begin(
        self, hosts: Sequence[Connection], opener: Opener, identity: Identity, *, only_finish: bool = False
    ) -> None:
        self._opened_as = tuple(part.definition.query for part in opener.parts)
        self._ats = tuple(hosts) if len(hosts) == len(self._opened_as) else (hosts[0],) * len(self._opened_as)
        # An old definition may be divided otherwise than the present one.
        self._identity, self._only_finishes, self._parts = identity, only_finish, len(self._opened_as)
        self._error = None
        self._memory = self._memory.renewed()
        async with AsyncExitStack() as undo:
            undo.push_async_callback(self._close_parts)
            await self._open_all(opener.definition, await self._open_parts(opener, self._ats), undo)
            undo.pop_all()  # from now on `stop` closes them
        self._started = True
        if self.config.refreshed and not only_finish:
            self._tasks.append(self._refresh_tables(opener, min(self.config.refreshed.values())))
        for mover, host in zip(self.movers, self._ats, strict=False):
            mover.place = host.name
            if self.switchable and self.stateful and not only_finish:
                self._tasks.append(mover.begin())

    async def _open_all(self, definition: OpenQuery, openings: Sequence[Opening], undo: AsyncExitStack) -> None:
        """Open the sink, the log and the source, and let events flow; ``undo`` gets the callbacks that close them."""
        part, self.plan, self.data_path = definition.part, openings[0].plan, openings[0].path
        schema = pa.ipc.read_schema(pa.py_buffer(openings[0].ready.input_schema))
        sink = await self._endpoints.open_sink(self._identity, undo, stateful=self.stateful)
        log = self._log = await self._endpoints.open_log(self._identity, sink.committed, undo)
        resume_seqs = tuple(opening.ready.resume_seq for opening in openings)
        resume_seq = min(resume_seqs) if self.stateful else None
        continue_in(self.name, sink, log, resume_seq)
        if looking.is_local(self.config.source):
            await self._settle_source(sink, resume_seq)
        planned_ends = tuple(opening.ready.resume_end_seq for opening in openings)
        ends = await run_to_end(self._batch_ends.read)
        division = self._division(part, resume_seqs, (*ends, *planned_ends))
        if division is not None:
            home_seqs = [mover.home_seq for mover in self.movers] if self._places_parts else resume_seqs
            await self._forget_ends(needed_after(division.places, resume_seqs, home_seqs))
        committed_before, most_bytes = sink.committed.watermark(), self._memory.bound_bytes // 2
        begin_seq = self._identity.begin_seq
        conditions = self.plan.selecting
        self._selector = selector_for(definition.selections, conditions, log, committed_before, begin_seq, most_bytes)
        self.pipeline = self._make_pipeline(log, sink, division)
        if self.stateful and (self.divided or self._ats[0].name != HOME):
            self._keep_runs()
        self.ingress = await self._open_ingress(schema, log, openings[0], undo)
        self.pipeline.set_shares(self._shares)
        for dispatcher, opening in zip(self.pipeline.parts, openings, strict=True):
            dispatcher.add_lane(opening.lane(dispatcher, self._clock, self._loader))
        self._direct = self._make_direct(sink, log)
        self._tasks = [asyncio.create_task(self.pipeline.run(), name=f"deliver {self.name}")]
        # These micro-batches must be whole in memory.
        planned_end_seq = max(planned_ends if division is None else division.batch_ends)
        reading = self._read(sink, resume_seq, planned_end_seq)
        self._reading = asyncio.create_task(reading, name=f"read {self.name}")
        self._tasks.append(self._reading)

    async def _settle_source(self, sink: Sink, resume_seq: int | None) -> None:
        place = SourcePlace(self.config.source, self._folder, self._endpoints.kept_files(self._identity))
        wall_s = self._clock.wall()
        await settle_source(self.name, place, self._log, sink.committed, resume_seq, wall_s)

    def _division(self, part: KeyPart | None, resume_seqs: tuple[int, ...], ends: tuple[int, ...]) -> Division | None:
        if part is None:
            return None
        return Division(
            part.key,
            self.config.time_columns,
            () if self.plan is None else self.plan.predicates,
            tuple(host.name for host in self._ats),
            resume_seqs,
            ends,
            self._part_places.arrived if self._places_parts else lambda _: None,
        )

    def _make_pipeline(self, log: RunLog, sink: Sink, division: Division | None) -> Pipeline:
        place = self._ats[0].name
        settings = settings_of(self.config.order, self._patience, home_only=self.stateful, place=place)
        return Pipeline(
            self.name,
            settings,
            self,
            log=log,
            sink=sink,
            dead_letters=self.dead_letters,
            bad_rows=self._letters.bad_rows,
            memory=self._memory,
            profiler=self._profiler,
            tally=self.tally,
            clock=self._clock,
            pace=pace_of(self.config.sink.type, self._pace, divided=division is not None),
            division=division,
            watching=self._watching,
        )

    async def _open_ingress(self, schema: pa.Schema, log: RunLog, opening: Opening, undo: AsyncExitStack) -> Ingress:
        self._source, schedule = await self._endpoints.open_source(self._identity, schema, undo, stateful=self.stateful)
        self._loader = RunLoader(self._source, self._clock)
        order = self.config.order
        return Ingress(
            source=self._source,
            log=log,
            dead_letters=self.dead_letters,
            # The remaining runs of an old definition are not read by a schedule.
            schedule=None if self._only_finishes else schedule,
            limits=run_limits(self.config.runs, opening.plan),
            memory=self._memory,
            clock=self._clock,
            order_column=order.by if order is not None and order.by != "arrival" else None,
            on_run=self._take,
            backlog=self._backlog,
            selector=self._selector,
            loader=self._loader if opening.ready.by_reference else None,
        )

    def _backlog(self, batch_runs: int) -> tuple[int, float]:
        """Return how many runs wait, and the rate of the slowest lane; a lost lane's rate is remembered.

        The parts of a divided query work on the same run: together they are as fast as if all were the slowest one.
        """
        rates = [self._parts * rate for rate in self.pipeline.rates_per_s]
        self._served_per_s = min((rate for rate in rates if rate > 0), default=self._served_per_s)
        return self.pipeline.queued_runs(batch_runs), self._served_per_s

    async def on_acknowledge(self, position: Position) -> None:
        """See ``PipelineOwner.on_acknowledge``."""
        reached("source.acknowledge.before")
        try:
            await self._source.acknowledge(position)
        except (SourceUnavailableError, OSError) as error:
            _LOG.warning("%s: the source was not acknowledged (%s): the next commit acknowledges it", self.name, error)
        reached("source.acknowledge.after")
        self._commits += 1
        if self.divided and self._commits % _FORGET_COMMITS == 0:
            await self._forget_ends(self.pipeline.needed_from)

    async def _read(self, sink: Sink, resume_seq: int | None, planned_end_seq: int) -> None:
        if not looking.is_local(self.config.source):
            await self.ingress.settle(lambda: self._settle_source(sink, resume_seq))
        if self._direct is not None:
            await self._direct.recover()
        await self.ingress.recover(sink.committed, resume_seq, planned_end_seq)
        await self.pipeline.forget_committed()
        while self._reads_on and not self._only_finishes:
            self._more.clear()
            await (self.ingress.run() if self._direct is None else self._direct.run())
            # The last records may contain no event, so that no commit covers them.
            await self.pipeline.forget_committed()
            await self._more.wait()
        self.ingress.finished = True

    def read_on(self) -> None:
        """Check whether there is more, although the source had ended."""
        if self._started and self._reads_on:
            self.ingress.finished = False
            self._more.set()

    async def replay_dead_letters(self) -> int:
        """Feed the dead letters back into the query as new events; return how many.

        Raises:
            ReplayRefusedError: not possible now.
            OSError: the disk fails; call it again.
        """
        try:
            return await self._letters.replay(self._replayed_by, lambda: self.pipeline.committed_before)
        finally:
            self.read_on()

    def _replayed_by(self) -> WithReplays:
        if not self._started or not self._reads_on:
            raise ReplayRefusedError(f"query {self.name} accepts no events now: retry later")
        return self._source

    @property
    def delivered_before(self) -> int:
        """How many events earlier gateways delivered, if the source has ended and had nothing new; else 0."""
        return self.committed_before if self.drained and not self.tally.events else 0

    async def stop_reading(self) -> None:
        """Read no more events; what was read goes on to the sink."""
        if events := self.delivered_before:
            _LOG.info(
                "query %s: already delivered: its source has nothing after the first %d events", self.name, events
            )
        self._reads_on = False
        await end_tasks(self._reading)
        if self._started:
            self.ingress.finished = True

    async def stop(self) -> None:
        """End everything that was started; what was not delivered is delivered after the next start."""
        if not self._started:
            return
        self._started = False
        await self._rest()
        await end_tasks(*self._tasks)
        for news in self._news:
            await news.stop()
        self._memory.close()
        await self.pipeline.close()
        await self._source.close()

    def on_failed(self, lane: str, reason: str) -> None:
        """See ``PipelineOwner.on_failed``."""
        if lane == HOME:
            self._error = self._error or LaneFailedError(reason)
        else:
            self._fail_lane(self.name, lane, reason)

    def on_broken(self, reason: str, exhausted: bool) -> None:
        """See ``PipelineOwner.on_broken``."""
        self._error = self._error or (ExhaustedHostError(reason) if exhausted else BrokenQueryError(reason))

    def on_overdue(self, reason: str) -> None:
        """See ``PipelineOwner.on_overdue``."""
        self._reopen(self.name, reason)

    def failure(self) -> BaseException | None:
        """Return why the query has failed, if it has."""
        if not self._started:
            return None
        if self._error is not None:
            return self._error
        ended = [task for task in self._tasks if task.done() and not task.cancelled()]
        return next((error for task in ended if (error := task.exception()) is not None), None)

    @property
    def trouble(self) -> str:
        """Why the query stands still although nothing is lost (a full disk, an unreachable broker); else empty."""
        if not self._started:
            return self._endpoints.trouble
        return self.pipeline.trouble or self.ingress.trouble or self._carrying_trouble
