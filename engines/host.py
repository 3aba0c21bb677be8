"""The engine host: one SparkSession that serves several queries to one gateway."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial

import msgspec
from pyspark.sql import SparkSession

from engines.direct.cores import RealTimeCores
from engines.direct.flows import Flows
from engines.direct.stream import DirectStream
from engines.hostfacts import End, HostFile, HostSettings
from engines.opened import Engine, Opened, Owner
from engines.query import schemas
from engines.query.known import KnownQueries, KnownQuery, RefusedError
from engines.query.reasons import why
from engines.spark.proxies import free_dropped, settle
from engines.spark.scratch import remove_own, sweep
from engines.spark.session import build_session, exit_code, is_ending, jvm_runs, runtime_ahead, stop_session
from engines.spark.tablefiles import TableFiles
from engines.statecopies import HostPlaces, StateCopies
from engines.stateful import StatefulStream
from engines.stateless import StatelessStream
from engines.streaming.answers import Reports
from engines.streaming.checkpoints import ResumePoint
from engines.streaming.feed import FeedServer
from engines.threads import in_thread
from engines.warmup import warm_up
from infra.clock import Clock
from infra.clouds.notices import reclaimed_in_s
from infra.link.credit import CREDIT_BYTES
from infra.link.keys.identity import HostIdentity
from infra.link.keys.secret_files import write_private
from infra.link.keys.trust import CODE_PATH, NOTICE, UserData
from infra.link.server import HostServer, LinkLost, SessionEnded, SessionStarted
from infra.messages import (
    AnyMessage,
    CloseQuery,
    CommittedMessage,
    Dictionary,
    HostEnding,
    OpenQuery,
    QueryReady,
    QueryRefused,
    RunMessage,
    Shutdown,
    StateMessage,
    TablePart,
    direct_name,
)
from infra.retries import Retries
from infra.together import await_shared, end_tasks

_log = logging.getLogger("spillway.host")
_FROM_THE_START = ResumePoint()
_BOOT_S = 240.0
# Spark gives a Python worker 10 s to start and has no setting for it. On a busy machine that is not the query's fault.
_WORKER_LATE = "Python worker failed to connect back"
_BUSY = Retries(first_s=0.5, most_s=4.0, tries=6)
_OPEN_S = 150.0
_OUT_OF_MEMORY = 52  # Spark's own code, SparkExitCode.OOM
# Ended by somebody else, as a process or as Java reports it: not the fault of a query.
_KILLED = frozenset({-signal.SIGKILL, -signal.SIGTERM, 128 + signal.SIGTERM, -signal.SIGINT, 128 + signal.SIGINT})
# After Spark has stopped, its JVM must end within this time; otherwise the host ends.
_JVM_ENDS_S = 10.0
# Rows that Spark is done with stay in the JVM for at most this long.
_FREE_S = 1.0
_LOOK_S = 0.25
"""How often the host checks whether its JVM runs and whether a gateway is connected."""


@dataclass
class _Slot:
    """A query by name: what is open, and the lock under which it is opened and closed."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    opened: Opened | None = None


class Host:
    """Serves until it is stopped, its gateway is gone for too long, or Spark dies.

    Args:
        user_data: name, authority, token, where to listen.
        settings: how it runs.
        clock: measures boot, batches and absence of the gateway.
        on_end: called when the host begins to end, before it cleans up, which may take long.
    """

    def __init__(
        self,
        user_data: UserData,
        settings: HostSettings,
        clock: Clock,
        on_end: Callable[[End], None] = lambda _: None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_end = on_end
        self._user_data = user_data
        self._settings = settings
        self._clock = clock
        identity = HostIdentity.open(user_data, settings.workdir / "identity")
        self._server = HostServer(identity, user_data, runtime_ahead(settings.conf), clock=clock)
        self._tables = TableFiles(settings.workdir, self._server.tables)
        self._feeds = FeedServer()
        self._cores, self._flows = RealTimeCores(), Flows()
        self._slots: dict[str, _Slot] = {}
        self._known = KnownQueries()
        self._copies = StateCopies(settings.workdir, self._loop, self._server.send)
        self._places = HostPlaces(settings.workdir, user_data.extra.get(CODE_PATH, ""), self._tables.folder)
        self._tasks: set[asyncio.Task[None]] = set()
        self._session: asyncio.Future[SparkSession] = asyncio.get_running_loop().create_future()
        self._stopped: asyncio.Future[End] = asyncio.get_running_loop().create_future()

    async def run(self) -> End:
        """Serve; return why it ended.

        Raises:
            OSError: the address cannot be bound.
        """
        started_s = self._clock.now()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop, f"signal {number.name}")
        try:
            await self._listen()
            async with asyncio.TaskGroup() as group:
                parts = (self._serve(), self._boot(started_s), self._look(), self._watch_for_notice(), self._free())
                work = [group.create_task(part) for part in parts]
                end = await self._stopped
                self._on_end(end)
                for task in work:
                    task.cancel()
            return end
        finally:
            await self._end()

    async def _listen(self) -> None:
        address, port = await self._server.start()
        content = HostFile(
            host=self._user_data.host, pid=os.getpid(), address=address, port=port, started=self._clock.wall()
        )
        write_private(self._settings.workdir / "host.json", msgspec.json.encode(content))

    async def _boot(self, started_s: float) -> None:
        settings = self._settings
        try:
            async with asyncio.timeout(_BOOT_S):
                await in_thread(sweep)
                session = await in_thread(
                    lambda: build_session(settings.master, settings.workdir, settings.cores, conf=settings.conf)
                )
                self._session.set_result(session)
                await in_thread(warm_up, session, self._clock)
                await in_thread(settle)
        except TimeoutError:
            self._stop(f"Spark was not ready within {_BOOT_S:.0f} s", code=1)
            return
        except Exception as error:
            self._stop(f"Spark did not start: {why(error)}", code=2)
            return
        boot_s = self._clock.now() - started_s
        _log.info("ready after %.1f s on %s", boot_s, settings.master)
        await self._server.mark_ready(boot_s)

    async def _free(self) -> None:
        while True:
            await self._clock.sleep_until(self._clock.now() + _FREE_S)
            free_dropped()

    async def _look(self) -> None:
        while True:
            await self._clock.sleep_until(self._clock.now() + _LOOK_S)
            away_s = self._clock.now() - self._server.last_gateway_s
            if away_s > self._user_data.orphan_after_s:
                self._stop(f"no gateway for {away_s:.0f} s")
            if self._session.done() and not jvm_runs(self._session.result()):
                await self._jvm_ended(self._session.result())

    async def _jvm_ended(self, session: SparkSession) -> None:
        """End the host; if the JVM exited by itself, first report to the gateway which queries Spark was running."""
        code = exit_code(session)
        if code not in _KILLED:
            await self._server.notify(HostEnding(suspects=self._suspects()))
        why = " (out of memory)" if code == _OUT_OF_MEMORY else ""
        self._stop(f"Spark's JVM ended with exit code {code}{why}", code=1)

    def _suspects(self) -> tuple[str, ...]:
        """Return the queries that ran out of memory; if none did, those that Spark was running or opening just now.

        The query that Spark has run for longest comes first: its micro-batch is the one that did not end.
        """
        found = {name: slot.opened.activity for name, slot in self._slots.items() if slot.opened is not None}
        known = {name: activity for name, activity in found.items() if activity is not None}
        fatal = tuple(name for name, activity in known.items() if activity.ran_out_of_memory_just_now)
        opening = [name for name, slot in self._slots.items() if slot.lock.locked()]
        running = [name for name, activity in known.items() if activity.ran_just_now and name not in opening]
        return fatal or (*opening, *sorted(running, key=lambda name: known[name].since_s))

    def _died(self, opened: Opened, reason: str) -> None:
        """Report to a query's owner that it failed, unless Spark ends: then the host reports. Any thread may call."""
        if is_ending(self._session.result()):
            stop = partial(self._stop, f"Spark has stopped: {reason}", 1)
            self._loop.call_soon_threadsafe(self._loop.call_later, _JVM_ENDS_S, stop)
        else:
            opened.died(reason)

    async def _watch_for_notice(self) -> None:
        """Notify the gateway when the provider announces that it reclaims this VM, if it is a spot VM."""
        provider = self._user_data.extra.get(NOTICE)
        if provider is None:
            return
        in_s = await reclaimed_in_s(provider, self._clock)
        _log.warning("the provider reclaims this VM in %.0f s", in_s)
        await self._server.mark_reclaimed(in_s)

    async def _serve(self) -> None:
        while True:
            try:
                session, message, payload = await self._server.receive()
            except LinkLost:
                return
            self._take(session, message, payload)

    def _take(self, session: str, message: AnyMessage | SessionStarted | SessionEnded, payload: bytes) -> None:
        match message:
            case RunMessage(query=query, epoch=epoch):
                opened = self._owned(session, query, epoch)
                if opened is not None:
                    opened.take_run(message, payload)
            case Dictionary(query=query):
                slot = self._slots.get(query)
                if slot is not None and slot.opened is not None:
                    slot.opened.take_dictionary(message, payload)
            case CommittedMessage(query=query, epoch=epoch, last_seq=last_seq):
                opened = self._owned(session, query, epoch)
                if opened is not None:
                    opened.committed(last_seq)
            case OpenQuery():
                self._start(self._open(session, self._places.found_here(message)))
            case StateMessage():
                self._copies.take(session, message, payload)
            case TablePart():
                self._start(self._tables.take(message, payload))
            case CloseQuery():
                self._start(self._close(session, message))
            case SessionStarted() | SessionEnded():
                self._forget_owners()
            case Shutdown():
                self._stop("the gateway asked for it")
            case _:
                pass  # the link handles heartbeats and goodbyes

    def _owned(self, session: str, query: str, epoch: int) -> Opened | None:
        slot = self._slots.get(query)
        if slot is None or slot.opened is None or not slot.opened.is_owned_by(session, epoch):
            return None
        return slot.opened

    def _forget_owners(self) -> None:
        for slot in self._slots.values():
            if slot.opened is not None:
                slot.opened.detach()

    async def _open(self, session: str, spec: OpenQuery) -> None:
        slot = self._slots.setdefault(spec.query, _Slot())
        base = await await_shared(self._session)
        async with slot.lock:
            try:
                async with asyncio.timeout(_OPEN_S):
                    ready = await self._opened(slot, base, session, spec)
            except TimeoutError:
                reason = f"query {spec.query} was not open within {_OPEN_S:.0f} s"
                await self._server.send(session, QueryRefused(query=spec.query, epoch=spec.epoch, reason=reason))
            except Exception as error:
                if await in_thread(is_ending, base):
                    return  # the host ends, so the query does not matter
                reason = str(error) if isinstance(error, RefusedError) else f"query {spec.query}: {why(error)}"
                _log.warning("refused: %s", reason)
                await self._server.send(session, QueryRefused(query=spec.query, epoch=spec.epoch, reason=reason))
            else:
                _log.info("query %s is %s, epoch %d", spec.query, "read" if spec.analyse_only else "open", spec.epoch)
                removed = await self._tables.opened(spec)
                await self._server.send(session, msgspec.structs.replace(ready, removed_tables=removed))

    async def _opened(self, slot: _Slot, base: SparkSession, session: str, spec: OpenQuery) -> QueryReady:
        await self._tables.wait(spec.query, spec.tables)
        query = await in_thread(self._known.understand, base, spec)
        if spec.analyse_only:
            if spec.direct is not None and spec.direct.starts:
                await in_thread(self._flows.plan, query)
            return _ready(query, spec)
        if spec.direct is None:
            await self._take_back(spec.query)
        owner = Owner(session, spec.epoch)
        present = slot.opened
        if present is not None and present.can_serve(query):
            present.attach(owner)
            return _ready(query, spec, by_reference=present.by_reference)
        if present is not None:
            slot.opened = None
            await in_thread(present.close)
        opened = Opened(asyncio.get_running_loop(), self._server.send)
        engine = await _BUSY.retry(
            partial(in_thread, self._engine, query, opened),
            self._clock,
            RefusedError,
            worth=lambda error: _WORKER_LATE in str(error),
            heard=lambda failed: _log.warning("opening again, the machine is busy: %s", failed.error),
        )
        self._known.ran(query)
        opened.begin(engine)
        slot.opened = opened
        opened.attach(owner)
        return _ready(query, spec, engine.progress, by_reference=engine.by_reference)

    def _engine(self, query: KnownQuery, opened: Opened) -> Engine:
        died = partial(self._died, opened)
        reports = Reports(opened.answer, died, opened.isolating, opened.broken, opened.exhausted)
        engine: Engine
        if query.spec.direct is not None:
            engine = DirectStream(query, self._flows.take(query), self._clock, self._cores, opened.tell, died)
        elif query.plan.stateful:
            engine = StatefulStream(query, self._feeds, self._clock, reports)
        else:
            engine = StatelessStream(query, self._clock, reports)
        engine.open()
        return engine

    async def _take_back(self, query: str) -> None:
        """End what the host carries of a query by itself: an earlier gateway had asked for it."""
        for name in [each for each in self._slots if each.startswith(direct_name(query))]:
            carried = self._slots[name]
            async with carried.lock:
                opened, carried.opened = carried.opened, None
                if opened is not None:
                    await in_thread(opened.close)

    async def _close(self, session: str, asked: CloseQuery) -> None:
        slot = self._slots.get(asked.query)
        if slot is None:
            return
        async with slot.lock:
            opened = slot.opened
            if opened is not None and opened.is_owned_by(session, asked.epoch):
                slot.opened = None
                await in_thread(opened.close, after_batch=asked.after_batch)

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _stop(self, reason: str, code: int = 0) -> None:
        if not self._stopped.done():
            self._stopped.set_result(End(reason, code))

    async def _end(self) -> None:
        await end_tasks(*self._tasks)
        why = f": {self._stopped.result().reason}" if self._stopped.done() else ""
        self._copies.close()
        await self._server.close(f"the host ends{why}")
        opened = [slot.opened for slot in self._slots.values() if slot.opened is not None]
        await asyncio.gather(*(in_thread(each.close) for each in opened), return_exceptions=True)
        self._feeds.close()
        if self._session.done() and not self._session.cancelled():
            await in_thread(stop_session, self._session.result())
        remove_own()


def _ready(
    query: KnownQuery, spec: OpenQuery, progress: ResumePoint = _FROM_THE_START, *, by_reference: bool = False
) -> QueryReady:
    return QueryReady(
        query=spec.query,
        epoch=spec.epoch,
        input_schema=schemas.serialised(query.input_schema),
        result_schema=schemas.serialised(query.result_schema),
        plan=query.plan,
        credit_bytes=CREDIT_BYTES,
        resume_seq=progress.resume_seq,
        resume_end_seq=progress.repeats_before(spec.batch_ends),
        by_reference=by_reference,
    )
