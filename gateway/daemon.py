"""The running gateway: connects the parts, ends each slot, starts and stops."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

from gateway.config.models import Config
from gateway.config.settings import scheduler_settings, unattended_s
from gateway.core.decide.profiler import Profiler
from gateway.deciding import Deciding
from gateway.fleet.actuator import Actuator
from gateway.fleet.books import Books
from gateway.fleet.clouds import make_cloud
from gateway.fleet.membership import Membership
from gateway.fleet.ownership import Ownership
from gateway.fleet.quota.quotakeeper import QuotaKeeper
from gateway.hosts.enrol import Dial, dial, prepare_warm
from gateway.hosts.mastercheck import see_master
from gateway.hosts.rotation import Rotation
from gateway.query.flow.memory import MemoryPool
from gateway.query.flow.statistics import Tally
from gateway.query.running import RunningQuery
from gateway.query.supervision.home import make_home
from gateway.query.supervision.making import QueryMaker
from gateway.query.supervision.supervision import Supervision
from gateway.reloading.live import LiveGateway
from gateway.reloading.reloader import Reloader
from gateway.reloading.triggers import ReloadTriggers
from gateway.steering.parts import GatewayParts
from gateway.steering.table import served
from gateway.views.http.answers import decision_answer
from gateway.views.http.serving import serve_api
from gateway.views.live.composing import Composer
from gateway.views.live.history import History
from gateway.views.recorder import Recorder, open_groups_texts, tallies_texts
from gateway.views.runrecord import Boot
from gateway.views.tracefile import recorded
from gateway.views.traces.tracing import Tracing
from infra.clock import Clock
from infra.link.keys.trust import Authority
from infra.service.servicemanager import ServiceManager
from infra.threads import run_to_end
from infra.together import all_or_none, end_tasks
from policies.signals import Command, DrainAll, Event, QuerySlot, SlotEnded, StopAll

_LOG = logging.getLogger(__name__)
_POLL_S = 0.1
_LAUNCHES_UNTIL_DRAINED = 5
"""After this many failed launches of an engine host in a row, a gateway that runs until drained gives up."""
_TAG = "spillway-gateway"


class Daemon:
    """One gateway from start to end; ``ownership`` is that of its fleet, if it has one; ``dial`` connects to VMs."""

    def __init__(
        self,
        config: Config,
        clock: Clock,
        *,
        keep_hosts: bool,
        ownership: Ownership | None = None,
        dial: Dial = dial,
        manager: ServiceManager | None = None,
    ) -> None:
        self._dial, self._keep_hosts, self._manager = dial, keep_hosts, manager or ServiceManager({})
        self._config, self._clock = config, clock
        self._membership = Membership(ownership)
        self._state_dir = config.gateway.state_dir
        self._authority = Authority.open(self._state_dir / "trust")
        self._profiler = Profiler(
            config.gateway.slot_s, {name: query.qos.statistic for name, query in config.queries.items()}
        )
        self._first = next(iter(config.queries))
        settings = scheduler_settings(config)
        self._deciding = Deciding(
            settings,
            self._state_dir,
            clock,
            watch=self._record,
            execute=lambda commands: self._actuator.execute(commands),
        )
        self._scheduler = self._deciding.scheduler
        self._books = Books(
            self._state_dir / "books.json",
            lambda: self._scheduler.ledger,
            self._deciding.freeze,
            settings.billing,
            orphan_after_s=unattended_s(config),
            clock=clock,
            fleet=self._membership.books,
        )
        holder = self._membership.vm_tag(self._authority.fleet)
        self._quota = QuotaKeeper(config, holder, self._deciding.grant, clock)
        self._cloud = make_cloud(config, clock)
        self._memory = MemoryPool(config.gateway.memory_bytes)
        self._tracing = Tracing(config.gateway.traces, clock)
        maker = self._make_maker()
        self._queries = {name: maker.make(name, config) for name in config.upstream_first}
        self._home = make_home(config, self._authority, self._queries, clock)
        self._supervision = Supervision(config, self._queries, self._home, self._profiler, clock, self._on_open)
        self._stop, self._until_drained = asyncio.Event(), False
        self._failure: str | None = None
        self._history = History(self._state_dir / "history", clock.wall())
        self._composer = Composer(self._scheduler, self._supervision.of)
        self._recorder: Recorder | None = None
        self._actuator = self._make_actuator()
        self._rotation = Rotation(self._authority, self._cloud, (self._home, self._actuator), clock)
        self._slot_ends_s, self._slot = 0.0, asyncio.Lock()
        self._live = self._make_live(config, maker)
        self._reloader = Reloader(self._live)
        self._reloads = ReloadTriggers(self._reloader, self._manager, lambda: self.phase, clock, self._fail)
        self.parts = self._make_parts()
        self._phase = "starting"

    @property
    def phase(self) -> str:
        """The phase: starting, standby, running or stopping."""
        return self._phase

    @phase.setter
    def phase(self, phase: str) -> None:
        self._phase = phase
        self._manager.phase(phase)

    # ------------------------------------------------------------------------------------------------------ running

    async def run(self, until_drained: bool, report: Path | None, record: Path | None = None) -> int:
        """See ``run``."""
        self._until_drained = until_drained
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_stop_signal)
        loop.add_signal_handler(signal.SIGHUP, self._reloads.now)
        async with (
            serve_api(served(self.parts, self._history), self._config.gateway.api) as url,
            recorded(record, self._queries, self._clock),
            self._tracing.sending(),
        ):
            try:
                if not await self._begin_unless_stopped():
                    _LOG.info("stopped before it was ready")
                    return 0
                self.phase = "running"
                self._composer.begin(self._clock.now())
                _LOG.info("ready: the live page and the API are at %s/", url)
                self._slot_ends_s = self._clock.now() + self._config.gateway.slot_s
                if self._config.gateway.watch:
                    self._reloads.watch()
                await self._keep_time(lambda: self._stop.is_set() or (until_drained and self._supervision.drained))
                self.phase = "stopping"
                await self._reloads.end()
                await self._wind_down()
                for why in self._supervision.told_failures():
                    if until_drained:
                        self._fail(why)
            finally:
                await self._end_everything()
        if report is not None:
            self._write_report(report)
        for text in tallies_texts(self._tallies):
            _LOG.info("%s", text)
        for text in open_groups_texts(self._tallies) if until_drained else ():
            _LOG.warning("%s", text)
        if self._failure is not None:
            _LOG.error("%s", self._failure)
        return 0 if self._failure is None else 1

    def _drain(self) -> bool:
        """Begin to drain and end the gateway; return False if that has begun."""
        begun = self._stop.is_set()
        self._stop.set()
        return not begun

    def _on_stop_signal(self) -> None:
        """Drain; at the second signal, stop waiting for results that cannot be delivered now."""
        if self._stop.is_set():
            self._fail("stopped by a second signal: undelivered results are delivered after the next start")
        self._stop.set()

    async def _begin(self) -> None:
        """Adopt or terminate the VMs of an earlier gateway, connect to the hosts, open the queries."""
        await run_to_end(lambda: see_master(self._config.private.spark.master, self._clock))
        await all_or_none(self._own(), self._warm_up())
        self.phase = "starting"
        await self._supervision.begin()
        self._recorder = Recorder(self._clock.now(), self._clock.wall())
        self._actuator.queries_are_open()

    async def _own(self) -> None:
        await self._membership.begin()
        await self._books.join()
        books = self._books
        await self._quota.begin(inherits=bool(books.inherited), before=books.before, now=books.restored)
        self._deciding.restore(self._books.restored)
        self._actuator.handle_earlier_vms()

    async def _warm_up(self) -> None:
        """Launch or find the hosts; a standby does so before it is needed, and keeps them."""
        await all_or_none(self._home.connect(), prepare_warm(self._cloud, self._authority, self._clock))
        self._home.watch()
        if not self._membership.holds:
            await self._home.warm(lambda: not self._membership.holds)
        if not self._membership.holds:
            self.phase = "standby"
            _LOG.info("standing by: the engine host is ready, and another gateway owns the fleet")

    async def _begin_unless_stopped(self) -> bool:
        """Start, which takes as long as Spark does; return False if the gateway was stopped meanwhile."""
        begin = asyncio.create_task(self._begin(), name="begin")
        stop = asyncio.create_task(self._stop.wait(), name="stop")
        await asyncio.wait((begin, stop), return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        if begin.done():
            await begin
            return True
        await end_tasks(begin)
        return False

    async def _keep_time(self, over: Callable[[], bool], *, despite_failure: bool = False) -> None:
        """End each slot at its time, until ``over`` or, unless that is known already, a failure."""
        while not over() and (despite_failure or self._failure is None):
            await self._clock.sleep_until(min(self._slot_ends_s, self._clock.now() + _POLL_S))
            self._check()
            if self._clock.now() >= self._slot_ends_s:
                async with self._slot:
                    await self._end_slot()
                self._slot_ends_s = max(self._slot_ends_s + self._config.gateway.slot_s, self._clock.now())

    async def _end_slot(self) -> None:
        now_s = self._clock.now()
        for query in self._queries.values():
            query.end_slot()
        slots = self._profiler.end_slot(now_s, load1=os.getloadavg()[0])
        lanes = [lane for query in self._queries.values() for lane in query.lanes.values()]
        cpu = {lane.name: lane.link.cpu for lane in lanes if lane.link.cpu is not None}
        wall_s, traffic = self._clock.wall(), self._actuator.traffic()
        await self._deciding.end_slot(
            lambda event_id, _: SlotEnded(
                event_id=event_id, at_s=now_s, queries=slots, wall_s=wall_s, cpu=cpu, traffic=traffic
            ),
            wall_s,
        )
        self._books.save_soon()
        if self._config.gateway.quota is not None:
            self._quota.need(self._scheduler.needs(now_s))
        self._add_moment(now_s, slots)
        if self._recorder is not None:
            states = [str(state) for state in self._scheduler.vms.values()]
            self._recorder.slot(now_s, slots, self._tallies, states)

    def _add_moment(self, now_s: float, slots: Sequence[QuerySlot]) -> None:
        """Add the slot that ended to the history."""
        wall_s, decisions = self._clock.wall(), self._deciding.decisions
        news = [decision_answer(decisions.last[query]).model_dump() for query in decisions.news]
        moment_id = self._history.next_id(wall_s)
        self._history.add(self._composer.moment(moment_id, now_s, wall_s, slots, self.phase, news))

    def _record(self, event: Event, commands: Sequence[Command]) -> None:
        self._composer.happened(event, commands, self._clock.wall())
        if self._recorder is not None:
            self._recorder.note(event, commands)

    def _check(self) -> None:
        self._manager.alive(self._clock.now())
        mistake = self._supervision.look() or self._actuator.failure or self._home.mistake or self._quota.failure
        if mistake is not None:
            self._fail(f"internal error: {mistake!r}")
        if self._until_drained and self._home.failed_launches >= _LAUNCHES_UNTIL_DRAINED:
            self._fail(self._home.trouble)
        if why := self._membership.why_not_write():
            self._fail(why)

    def _fail(self, why: str) -> None:
        self._failure = self._failure or why

    async def _wind_down(self) -> None:
        """Deliver what was read, and terminate every VM.

        Slots continue meanwhile: a VM that cannot be drained is still terminated before its next billing period, but
        the remaining events are no reason to start one.
        """
        self._deciding.handle(lambda event_id, at_s: DrainAll(event_id=event_id, at_s=at_s))
        await asyncio.gather(*(query.stop_reading() for query in self._queries.values()))
        ends_s = self._clock.now() + self._config.gateway.drain_timeout_s
        await self._keep_time(lambda: self._supervision.delivered or self._clock.now() >= ends_s)
        if not self._supervision.delivered:
            text = "not all was delivered within gateway.drain_timeout: the rest is delivered after the next start"
            self._fail(text)
        self._deciding.handle(lambda event_id, at_s: StopAll(event_id=event_id, at_s=at_s))
        await self._keep_time(lambda: self._actuator.settled, despite_failure=True)

    async def _end_everything(self) -> None:
        """End everything that still runs; after a failure there is more to end than after an orderly stop."""
        await self._supervision.end()
        await self._home.stop_watching()
        await self._deciding.stop_learning()
        await self._actuator.terminate_all()
        await self._quota.end()
        await self._books.close()
        await self._deciding.close()
        await self._history.close()
        if left := self._actuator.reaper.not_terminated:
            self._fail(f"could not be terminated, terminate by hand: {', '.join(left.values())}")
        try:
            for why in await self._supervision.stop_queries():
                self._fail(why)
        finally:
            try:
                await self._home.end(keep=self._keep_hosts)
            finally:
                if not self._keep_hosts:
                    await self._cloud.close()

    @property
    def _tallies(self) -> dict[str, Tally]:
        return {name: query.tally for name, query in self._queries.items()}

    def _write_report(self, path: Path) -> None:
        if self._recorder is None:
            return
        boot: Boot = "emulated" if "emulated" in self._actuator.boots or self._config.cloud.warm else "real"
        fleet = self._scheduler.totals(self._clock.now())
        for file in self._recorder.write(path, self._first, self._tallies, fleet, boot):
            _LOG.info("report: %s", file)

    # ------------------------------------------------------------------------------------------------------- making

    def _make_maker(self) -> QueryMaker:
        return QueryMaker(
            memory=self._memory,
            profiler=self._profiler,
            clock=self._clock,
            on_failed=lambda query, vm, reason: self._actuator.keep_off(query, vm, reason),
            on_overdue=lambda query, reason: self._supervision.of[query].reopen(reason),
            is_over=lambda query: self._supervision.over(query),
            why_not_write=self._membership.why_not_write,
            fleet_of=self._membership.of,
            watching=self._tracing.watch,
        )

    def _make_live(self, config: Config, maker: QueryMaker) -> LiveGateway:
        return LiveGateway(
            config=config,
            phase=lambda: self.phase,
            queries=self._queries,
            supervision=self._supervision,
            maker=maker,
            home=self._home,
            deciding=self._deciding,
            profiler=self._profiler,
            actuator=self._actuator,
            slot=self._slot,
            clock=self._clock,
        )

    def _on_open(self, query: RunningQuery, on_trial: bool) -> None:
        """Report an opened query to the scheduler, and open it on the VMs; a suspect is kept off VMs."""
        self._deciding.opened(query)
        if not on_trial:
            self._actuator.admit(query.name)

    def _make_actuator(self) -> Actuator:
        link = self._config.cloud.emulate_link
        return Actuator(
            self._cloud,
            self._authority,
            tags={_TAG: self._membership.vm_tag(self._authority.fleet)},
            queries=self._queries,
            home_runtime=lambda: self._home.runtime,
            orphan_after_s=self._config.gateway.orphan_after_s,
            shape=None if link is None else (link.delay_s, link.bytes_per_s),
            profiler=self._profiler,
            clock=self._clock,
            emit=self._deciding.handle,
            paid=self._books.save,
            inherited=lambda: self._books.inherited,
            size_prices=self._config.cloud.size_prices,
            dial=self._dial,
            owns=lambda: self._membership.holds,
        )

    def _make_parts(self) -> GatewayParts:
        return GatewayParts(
            live=self._live,
            reloader=self._reloader,
            memory=self._memory,
            rotation=self._rotation,
            composer=self._composer,
            traces=self._tracing.counts,
            drain=self._drain,
        )
