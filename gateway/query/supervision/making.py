"""Makes the queries of a config for a running gateway."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gateway.config.codepath import code_path_for
from gateway.config.models import Config, FileSinkConfig, QueryConfig
from gateway.core.decide.profiler import Profiler
from gateway.query.flow.dispatcher import Watch
from gateway.query.flow.memory import MemoryPool
from gateway.query.handover import OwningFleet
from gateway.query.running import RunningQuery
from infra.clock import Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryMaker:
    """What all queries of a gateway share.

    Attributes:
        memory: what they may hold together.
        profiler: measures them.
        clock: time.
        on_failed: called with (query, lane, reason) when a query cannot go on on a VM.
        on_overdue: called with (query, reason) when a query is to be opened again from its checkpoint.
        is_over: returns whether a query will do nothing more.
        why_not_write: returns why sinks may not be written now (the gateway is not the owner any more), else empty.
        fleet_of: returns the fleet whose other gateways may continue a query, if there is one.
        watching: returns what sees the exchange of a query, or of one of its parts, if that is wanted.
    """

    memory: MemoryPool
    profiler: Profiler
    clock: Clock
    on_failed: Callable[[str, str, str], None]
    on_overdue: Callable[[str, str], None]
    is_over: Callable[[str], bool]
    why_not_write: Callable[[], str]
    fleet_of: Callable[[QueryConfig], OwningFleet | None]
    watching: Callable[[str, int | None], Watch | None]

    def make(self, name: str, config: Config, before: RunningQuery | None = None) -> RunningQuery:
        """Return a query of a config; it is not open yet. It counts on from the one ``before`` its config changed."""
        query = config.queries[name]
        return RunningQuery(
            name,
            query,
            folder=config.gateway.state_dir / "queries" / name,
            code_path=code_path_for(query.function, config.folder),
            memory=self.memory.share(),
            profiler=self.profiler,
            clock=self.clock,
            upstream=lambda upstream: (_results_of(upstream, config), lambda: self.is_over(upstream)),
            on_failed=self.on_failed,
            on_overdue=self.on_overdue,
            why_not_write=self.why_not_write,
            fleet=self.fleet_of(query),
            private=config.private,
            tally=None if before is None else before.tally,
            watching=lambda part: self.watching(name, part),
        )


def _results_of(name: str, config: Config) -> Path:
    sink = config.queries[name].sink
    assert isinstance(sink, FileSinkConfig), "the config refuses to read the results of any other sink"
    return sink.path
