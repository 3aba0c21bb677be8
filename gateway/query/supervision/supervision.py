"""All queries of a gateway, each kept open by its own supervisor."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Final

from gateway.config.models import Config
from gateway.core.decide.profiler import Profiler
from gateway.query.running import RunningQuery
from gateway.query.supervision.home import Home
from gateway.query.supervision.supervisor import Supervisor
from infra.clock import Clock

_LOG = logging.getLogger(__name__)
_POLL_S: Final = 0.05
# How long a starting gateway waits for queries whose sink or source cannot be reached.
_START_S: Final = 15.0


class NoQueryRunsError(Exception):
    """No query could be opened when the gateway started; the message says why, for each."""


class Supervision:
    """Starts, watches and ends the supervisors of all queries.

    Args:
        config: the whole config.
        queries: by name.
        home: keeps the private engine hosts.
        profiler: notified of queries that fail.
        clock: time.
        on_open: called with (query, on_trial) each time a query was opened at home.
    """

    def __init__(
        self,
        config: Config,
        queries: Mapping[str, RunningQuery],
        home: Home,
        profiler: Profiler,
        clock: Clock,
        on_open: Callable[[RunningQuery, bool], None],
    ) -> None:
        self._clock, self._home, self._profiler, self._on_open = clock, home, profiler, on_open
        self._of = {name: self._supervisor(query, config) for name, query in queries.items()}
        self.of: Mapping[str, Supervisor] = MappingProxyType(self._of)

    def _supervisor(self, query: RunningQuery, config: Config) -> Supervisor:
        terms = config.queries[query.name].on_failure.terms
        return Supervisor(query, self._home, terms, self._profiler, self._clock, self._on_open)

    def change(self, removed: Iterable[str], opened: Iterable[RunningQuery], config: Config) -> None:
        """Forget queries that were stopped, and begin to open others, or the same with another config."""
        for name in removed:
            del self._of[name]
        for query in opened:
            self._of[query.name] = supervisor = self._supervisor(query, config)
            supervisor.begin()

    async def begin(self) -> None:
        """Open all queries; return once each was opened, failed, or waits for its sink or source.

        Raises:
            NoQueryRunsError: all of them failed.
        """
        for supervisor in self.of.values():
            supervisor.begin()
        ends_s = self._clock.now() + _START_S
        while not all(each.tried.is_set() or self._waits(each, ends_s) for each in self.of.values()):
            await self._clock.sleep_until(self._clock.now() + _POLL_S)
        if len(self.failed) == len(self.of):
            raise NoQueryRunsError("\n".join(f"query {name}: {why}" for name, why in self.failed.items()))

    def _waits(self, supervisor: Supervisor, ends_s: float) -> bool:
        others_run = any(each.state == "running" for each in self.of.values())
        return bool(supervisor.query.trouble) and others_run and self._clock.now() > ends_s

    def look(self) -> BaseException | None:
        """Check which queries have failed; return an internal error of a supervisor, if there is one."""
        for supervisor in self.of.values():
            supervisor.look()
        return next((mistake for each in self.of.values() if (mistake := each.mistake)), None)

    async def end(self) -> None:
        """Stop supervising; the queries stay as they are."""
        await asyncio.gather(*(supervisor.end() for supervisor in self.of.values()))

    async def stop_queries(self) -> list[str]:
        """Stop all queries, also after one could not be stopped cleanly; return what went wrong."""
        names = list(self._of)
        ends = await asyncio.gather(*(self._of[name].query.stop() for name in names), return_exceptions=True)
        for error in ends:
            if isinstance(error, asyncio.CancelledError):
                raise error
        wrong = zip(names, ends, strict=True)
        return [
            f"query {name} could not be stopped cleanly: {e!r}" for name, e in wrong if isinstance(e, BaseException)
        ]

    def over(self, query: str) -> bool:
        """Whether a query will do nothing more: it is drained, or was given up after failures."""
        supervisor = self.of[query]
        return supervisor.query.drained or supervisor.hopeless

    @property
    def drained(self) -> bool:
        """Whether no query will do anything more."""
        return all(self.over(query) for query in self.of)

    @property
    def delivered(self) -> bool:
        """Whether everything that was read is in the sinks; a query that is not open delivers nothing now."""
        # A running stateful query is not open while its host is replaced.
        return all(each.query.idle and (each.query.started or each.state != "running") for each in self.of.values())

    @property
    def failed(self) -> dict[str, str]:
        """Return why, for each query that has failed and does not run."""
        return {name: each.reason for name, each in self.of.items() if each.state in ("failed", "given up")}

    def told_failures(self) -> list[str]:
        """Log which queries have failed, and return it: a gateway that runs until drained has then failed, too."""
        found = [f"query {name} failed, its undelivered events are kept: {why}" for name, why in self.failed.items()]
        for text in found:
            _LOG.warning("%s", text)
        return found

    @property
    def troubles(self) -> dict[str, str]:
        """Return why, for each query that does not take or deliver events now."""
        return {name: each.trouble for name, each in self.of.items() if each.trouble}
