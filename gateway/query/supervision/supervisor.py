"""Keeps one query open: opens it at home, stops it when it fails, and opens it again after a pause.

A failure of a query ends neither the gateway nor another query. The data of a stopped query stays where it is
(unacknowledged at the source, or in the journal) until the query runs again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Final, Literal

from engines.query.code import CodeError
from gateway.core.decide.profiler import Profiler
from gateway.hosts.connection import QueryRefusedError
from gateway.query.flow.dispatcher import Loss
from gateway.query.querystate import BrokenQueryError, ExhaustedHostError, LaneFailedError
from gateway.query.running import RunningQuery
from gateway.query.supervision.home import Home, Seat
from gateway.sinks.base import FencedError, SinkError
from infra.clock import Clock
from infra.clouds.base import CloudError
from infra.link.channel import LinkLost
from infra.rows.base import SourceError
from infra.statefiles import StateError
from infra.together import end_tasks
from policies.failures.restarts import Restarts, RestartTerms
from policies.signals import HOME

_LOG = logging.getLogger(__name__)
# A query may fail because its host exits, which is noticed a moment later.
_HOST_ENDS_S: Final = 1.0
# A suspect that has run alone for this long is cleared, even if it has not completed what was in progress.
_TRIAL_S: Final = 120.0
# The launch of a host for one query costs the other queries about as much as a search for bad rows of this time.
_ALONE_COSTS_S: Final = 2.0
_TRIES_UNTIL_DRAINED: Final = 3

State = Literal["opening", "running", "failed", "given up"]


class HostEndedError(Exception):
    """The query ended the engine host on which it ran alone; the message says how."""


class _HostGoneError(Exception):
    """The host of a query is gone, and the query continues on the next one."""


_EXPECTED = (
    BrokenQueryError,
    CodeError,
    ExhaustedHostError,
    FencedError,
    HostEndedError,
    LaneFailedError,
    OSError,
    QueryRefusedError,
    SinkError,
    SourceError,
    StateError,
)


class Supervisor:
    """The life of one query.

    Args:
        query: only this supervisor opens and stops it.
        home: keeps the private engine hosts.
        terms: when it is opened again.
        profiler: notified when nothing of the query is in progress any more.
        clock: time.
        on_open: called with (query, on_trial) each time it was opened at home.

    Attributes:
        state: its present state.
        reason: why it failed last, or is being opened again; empty while it runs.
        since_wall_s: since when it has been failing (s since 1970); None while it does not.
        tried: set once it was opened for the first time, or failed.
    """

    def __init__(
        self,
        query: RunningQuery,
        home: Home,
        terms: RestartTerms,
        profiler: Profiler,
        clock: Clock,
        on_open: Callable[[RunningQuery, bool], None],
    ) -> None:
        self.query = query
        self._name = query.name
        self._home = home
        self._profiler = profiler
        self._clock = clock
        self._on_open = on_open
        self._terms = terms
        self._restarts = Restarts(terms)
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._at_fault = False
        self._broken = False
        self._on_trial = False
        self._tried_before_seq = 0
        self._opened_s = 0.0
        self._overdue = ""
        self._reopened_at: float | None = None
        self._retry_s: float | None = None
        self._retry_now = asyncio.Event()
        self.state: State = "opening"
        self.reason = ""
        self.since_wall_s: float | None = None
        self.tried = asyncio.Event()

    def begin(self) -> None:
        """Open the query, and keep it open from now on."""
        self._task = asyncio.create_task(self._run(), name=f"supervise {self._name}")

    async def end(self) -> None:
        """Stop supervising; the query stays as it is, perhaps in the middle of an opening."""
        await end_tasks(self._task)

    async def stop(self, why: str) -> None:
        """Stop supervising, and stop the query, because its config changed."""
        await self.end()
        self.state, self.reason = "opening", why
        await self._stop_query()

    def adjust(self, terms: RestartTerms) -> None:
        """Use other terms from the next failure on."""
        if terms != self._terms:
            self._terms, self._restarts = terms, Restarts(terms)

    def restart(self) -> bool:
        """Open a query that has failed again now; return False if it has not failed."""
        if self.state == "given up":
            self._restarts = Restarts(self._terms)
            self.state = "opening"
            self.begin()
            return True
        if self._retry_s is None:
            return False
        self._retry_now.set()
        return True

    # -------------------------------------------------------------------------------------------------- what is asked

    @property
    def mistake(self) -> BaseException | None:
        """The internal error that ended this task; None if nothing is wrong."""
        task = self._task
        return task.exception() if task is not None and task.done() and not task.cancelled() else None

    @property
    def failures(self) -> int:
        """How many times it failed in a row."""
        return self._restarts.failures if self.state != "running" else 0

    @property
    def retry_in_s(self) -> float | None:
        """In how many seconds it is opened again; None if it does not wait for that."""
        return None if self._retry_s is None else max(0.0, self._retry_s - self._clock.now())

    @property
    def hopeless(self) -> bool:
        """Whether a gateway that runs until drained no longer waits for it."""
        # The rows on which it broke come first again, after a pause that only helps the other queries.
        tried = self._broken or self.failures >= _TRIES_UNTIL_DRAINED
        return self.state == "given up" or (self.state == "failed" and tried)

    @property
    def trouble(self) -> str:
        """Why the query does not take or deliver events now; empty if nothing is wrong."""
        if self.state == "running" or not self.reason:
            return self.query.trouble
        return f"{self.state}: {self.reason}"

    def look(self) -> None:
        """Check whether the query has failed or its trial is over; called several times a second."""
        due = self.query.move_due or self.query.renewal_due
        if due or self.query.failure() is not None or self._trial_is_over:
            self._news.set()

    def reopen(self, reason: str) -> None:
        """Open a stateful query again from its checkpoint, because it got no answer; see ``reason``."""
        self._overdue = reason
        self._news.set()

    # ------------------------------------------------------------------------------------------------------- its life

    async def _run(self) -> None:
        while True:
            error = await self._live()
            self.tried.set()
            if not await self._set_aside(error):
                return

    async def _live(self) -> BaseException:
        """Run the query on one host after another until it fails; return why. The loss of a host is not a failure."""
        while True:
            try:
                seat = await self._home.seat(self._name)
            except (CloudError, LinkLost, TimeoutError) as error:
                # Only the suspects' host can fail here. Without it a suspect runs with the others again.
                await self._home.clear(self._name)
                if self._at_fault:
                    return HostEndedError(f"it cannot be run alone: {error}")
                _LOG.warning("query %s cannot be run alone (%s): it runs with the others", self._name, error)
                continue
            failed = await self._run_on(seat)
            if failed is not None:
                return failed
            await asyncio.sleep(0)

    async def _run_on(self, seat: Seat) -> BaseException | None:
        """Run on one host; return why the query failed, or None if the host is gone or the query leaves it."""
        self.query.may_move = not seat.on_trial
        try:
            failed = await self._open(seat, lambda: self.query.restart_home(seat.connection))
            return failed or await self._serve(seat)
        except _HostGoneError:
            return None
        finally:
            self._on_trial = False

    async def _serve(self, seat: Seat) -> BaseException | None:
        """Report that the query is open, and watch it; return as ``_run_on`` does."""
        self._opened_s = self._clock.now()
        self._restarts.began(self._opened_s)
        self.state, self.reason, self.since_wall_s = "running", "", None
        self.tried.set()
        self._on_open(self.query, seat.on_trial)
        self._on_trial = seat.on_trial
        return await self._watch(seat)

    async def _open(self, seat: Seat, opening: Callable[[], Coroutine[None, None, None]]) -> BaseException | None:
        """Open the query; return why it failed, or None if it is open.

        Raises:
            _HostGoneError: its host is gone, and the query is not known to be the cause.
        """
        with self._home.opening(self._name, seat.connection):
            try:
                await opening()
            except LinkLost:
                return await self._host_lost(seat)
            except TimeoutError as error:
                if not seat.on_trial and self._home.is_stuck(seat.connection, self._name):
                    self._home.lose(self._name, f"query {self._name} cannot be opened: {error}")
                return error
            except Exception as error:
                return error
        return None

    async def _watch(self, seat: Seat) -> BaseException | None:
        seat.connection.when_lost(self._news.set)
        while True:
            await self._news.wait()
            self._news.clear()
            failure = self.query.failure()
            if isinstance(failure, LaneFailedError):
                if not seat.on_trial and self._home.is_stuck(seat.connection):
                    self._home.lose(self._name, f"query {self._name}: {failure}")
                with suppress(TimeoutError):
                    await asyncio.wait_for(seat.connection.lost(), _HOST_ENDS_S)
            if not seat.connection.alive:
                return await self._host_lost(seat)
            if failure is not None:
                return failure
            if self._trial_is_over:
                await self._leave_trial()
                return None
            if self.query.renewal_due and not seat.on_trial:
                if await self.query.renew():
                    _LOG.info("query %s is opened again with the new content of its tables", self._name)
                else:
                    late = "its last events did not become final in time. The new content is tried again"
                    _LOG.warning("query %s is opened again with the old content of its tables: %s", self._name, late)
                self._profiler.query_closed(self._name)
                return None
            if self.query.move_due and not seat.on_trial:
                failed = await self._open(seat, lambda: self.query.move(seat.connection))
                if failed is not None:
                    return failed
            if self._overdue and (failed := await self._reopen(seat)) is not None:
                return failed

    async def _reopen(self, seat: Seat) -> BaseException | None:
        reason, self._overdue = self._overdue, ""
        completed = self.query.tally.latency.weight
        if self._reopened_at == completed:
            return LaneFailedError(f"it gets no answers although it was opened again: {reason}")
        self._reopened_at = completed
        _LOG.warning("query %s is opened again from its checkpoint: %s", self._name, reason)
        return await self._open(seat, self.query.reopen)

    # --------------------------------------------------------------------------------------------- lost hosts, trials

    async def _host_lost(self, seat: Seat) -> BaseException:
        """Return the failure of a query that ended its host.

        Raises:
            _HostGoneError: it is not known to be the cause, and continues without the host.
        """
        reason = await seat.connection.lost()
        suspects = self._home.lost(seat.connection)
        self._profiler.lane_closed(HOME, self._name)
        alone = seat.on_trial or self._home.has_own_host(self._name)
        if seat.on_trial:
            self._at_fault = True
            await self._home.confirm(self._name)
        if alone and (seat.on_trial or self._name in suspects):
            return HostEndedError(f"it ended the engine host on which it ran alone: {reason}")
        if self._name not in suspects:
            await self.query.lose_home(Loss(reason, self._clock.now()))
            raise _HostGoneError
        _LOG.warning(
            "query %s may have crashed the engine host (%s): it runs alone until this is known", self._name, reason
        )
        self.state, self.reason = "opening", f"it may have crashed its engine host ({reason})"
        self._tried_before_seq = self.query.read_before
        await self.query.stop()
        raise _HostGoneError

    @property
    def _trial_is_over(self) -> bool:
        """Whether a suspect completed everything that was read when its host was lost, or has run for long enough."""
        if not self._on_trial:
            return False
        got_through = self.query.committed_before >= self._tried_before_seq
        return got_through or self._clock.now() - self._opened_s > _TRIAL_S

    async def _leave_trial(self) -> None:
        _LOG.info("query %s ran alone without a failure: it runs with the others again", self._name)
        self._at_fault = False
        await self.query.close_on_hosts()
        await self.query.lose_home()
        await self._home.clear(self._name)

    # ------------------------------------------------------------------------------------------------------- failures

    async def _set_aside(self, error: BaseException) -> bool:
        """Stop the query and wait until it is time to open it again; return False if it is abandoned."""
        now_s = self._clock.now()
        self._broken = isinstance(error, BrokenQueryError)
        self.reason = str(error) or repr(error)
        self.since_wall_s = self.since_wall_s or self._clock.wall()
        cost_s = self.query.isolating_s
        if isinstance(error, ExhaustedHostError):
            self._at_fault, self._tried_before_seq = True, self.query.read_before
            cost_s = max(cost_s, _ALONE_COSTS_S)
        # A fenced gateway would fence the other writer in turn.
        pause_s = None if isinstance(error, FencedError) else self._restarts.failed(now_s, cost_s)
        self.state = "given up" if pause_s is None else "failed"
        self._retry_now.clear()
        self._retry_s = None if pause_s is None else now_s + pause_s
        next_try = "it is not opened again" if pause_s is None else f"it is opened again in {pause_s:.0f} s"
        unexpected = None if isinstance(error, _EXPECTED) else error
        _LOG.error("query %s failed: %s; %s", self._name, self.reason, next_try, exc_info=unexpected)
        await self._stop_query()
        if self._retry_s is None:
            return False
        await self._until_retry(self._retry_s)
        self._retry_s = None
        self.state = "opening"
        if self._at_fault:
            self._home.run_alone(self._name)
        return True

    async def _until_retry(self, retry_s: float) -> None:
        """Return at that time, or once an operator wants the query to be opened again."""
        ends = [
            asyncio.ensure_future(self._clock.sleep_until(retry_s)),
            asyncio.ensure_future(self._retry_now.wait()),
        ]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await end_tasks(*ends)

    async def _stop_query(self) -> None:
        try:
            await self.query.close_on_hosts()
            await self.query.stop()
        except Exception as error:
            _LOG.exception("query %s could not be stopped cleanly", self._name, exc_info=error)
        self._overdue = ""
        self._profiler.query_closed(self._name)
        await self._home.clear(self._name)
