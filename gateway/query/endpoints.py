"""The two ends of a query: opens its sink and its source, and waits while one of them cannot be reached.

It also opens the run log, since in a fleet the sink decides which one counts.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pyarrow as pa

from gateway.config.models import QueryConfig
from gateway.connectors.fleetplace import FleetPlace
from gateway.connectors.kafkaclients import shared_group
from gateway.core.intervals import IntervalSet
from gateway.journal.copyobjects import ReplicaPlace
from gateway.query.flow.runlog import LogHead, RunLog
from gateway.query.handover import OwningFleet, RunLogHandover, why_it_stays
from gateway.query.identity import Identity
from gateway.sinks.base import SinkUnavailableError
from gateway.sinks.choose import SinkContext, make_sink
from gateway.sinks.owned import OwnedSink
from gateway.sources.choose import SourceContext, make_schedule, make_source, stream_folder
from gateway.sources.files.fleetnotes import FleetNotes
from gateway.sources.files.notes import NOTES_NAME, NotesFile, NotesStore
from gateway.sources.replayed import ReplayFiles, WithReplays
from gateway.sources.schedule import DueTimes
from infra.clock import Clock
from infra.retries import Outage
from infra.rows.base import SourceUnavailableError
from infra.threads import run_to_end


class Endpoints:
    """Opens the sink and the source of one query.

    Args:
        name: the query's.
        config: the query's config.
        folder: its part of the state_dir.
        clock: time.
        upstream: see ``SourceContext``.
        why_not_write: returns why the sink may not be written now (the gateway does not own the fleet), else empty.
        fleet: if other gateways of a fleet may continue the query: then its sink stores a handover.
    """

    def __init__(
        self,
        name: str,
        config: QueryConfig,
        folder: Path,
        clock: Clock,
        upstream: Callable[[str], tuple[Path, Callable[[], bool]]],
        why_not_write: Callable[[], str],
        fleet: OwningFleet | None = None,
    ) -> None:
        self._name = name
        self._config = config
        self._folder = folder
        self._clock = clock
        self._upstream = upstream
        self._why_not_write = why_not_write
        self._fleet = fleet
        self._handover: RunLogHandover | None = None
        self._outage: Outage | None = None

    @property
    def trouble(self) -> str:
        """Why the sink or the source cannot be opened now; empty if nothing is wrong or none is being opened."""
        return "" if self._outage is None else self._outage.why

    async def open_sink(self, identity: Identity, undo: AsyncExitStack, *, stateful: bool) -> OwnedSink:
        """Return the opened sink; ``undo`` gets the callback that closes it.

        Raises:
            StateError: it holds the results of other state.
            SinkError: it can never accept results with these settings.
        """
        ordered = self._config.order is not None
        group = self._shared_group(stateful=stateful)
        self._handover = None
        if self._fleet is not None:
            stays = why_it_stays(self._config, stateful=stateful)
            self._handover = RunLogHandover(self._name, identity.place, stays=stays)
        context = SinkContext(
            self._name,
            identity.owner,
            identity.epoch,
            ordered,
            self._folder,
            self._clock,
            group,
            self._handover,
            identity.output,
        )
        sink = OwnedSink(make_sink(self._config.sink, context), self._why_not_write)
        await self._outlast(SinkUnavailableError, "sink", sink.open)
        undo.push_async_callback(sink.close)
        return sink

    async def open_log(self, identity: Identity, committed: IntervalSet, undo: AsyncExitStack) -> RunLog:
        """Return the opened run log; ``undo`` gets the callback that closes it. Call it after ``open_sink``.

        Raises:
            StateError: it is damaged, belongs to other state, or is in another gateway's state_dir.
        """
        path, head = self._folder / "runs.log", LogHead(identity.owner, self._clock.wall())
        handover = self._handover
        if handover is None:
            log = await run_to_end(lambda: RunLog(path, head))
        else:
            log = await run_to_end(lambda: handover.open_log(path, head, committed))
        undo.push_async_callback(run_to_end, log.close)
        return log

    async def open_source(
        self, identity: Identity, schema: pa.Schema, undo: AsyncExitStack, *, stateful: bool
    ) -> tuple[WithReplays, DueTimes | None]:
        """Return the opened source, and the schedule of its records; ``undo`` gets the callback that closes it.

        Raises:
            SourceError: it cannot be read.
        """
        strict = self._config.drift == "strict"
        context = SourceContext(
            self._name,
            identity.owner,
            self._folder,
            self._clock,
            self._upstream,
            strict,
            sink_commits=self._shared_group(stateful=stateful) is not None,
            replica=self._replica(identity),
            kept_files=self.kept_files(identity),
        )
        streams = self._config.streams
        source = WithReplays(
            make_source(self._config.source, context, streams),
            ReplayFiles(self._folder / "replay"),
            strict=strict,
            streams=streams,
        )
        undo.push_async_callback(source.close)
        await self._outlast(SourceUnavailableError, "source", lambda: source.open(schema))
        return source, await run_to_end(lambda: make_schedule(self._config.source, schema, context))

    def _replica(self, identity: Identity) -> ReplicaPlace | None:
        """Return where a journal's copy belongs; None without a fleet."""
        fleet = self._fleet
        if fleet is None:
            return None
        folder = f"journals/{fleet.name}/{self._name}/{identity.owner}"
        return ReplicaPlace(fleet.store, folder, identity.place, identity.epoch, self._why_not_write)

    def kept_files(self, identity: Identity) -> Callable[[str], NotesStore]:
        """Return a function that says where the list of the objects of an ``s3`` source is kept, by its stream."""

        def kept(stream: str) -> NotesStore:
            fleet, folder = self._fleet, stream_folder(self._folder, stream) if stream else self._folder
            local = NotesFile(folder / NOTES_NAME)
            if fleet is None:
                return local
            stored = f"files/{fleet.name}/{self._name}/{identity.owner}" + (f"/{stream}" if stream else "")
            place = FleetPlace(fleet.store, stored, identity.place, identity.epoch, self._why_not_write)
            return FleetNotes(place, local)

        return kept

    def _shared_group(self, *, stateful: bool) -> str | None:
        """Return the consumer group whose offsets the sink's transactions commit, if they do."""
        # A stateful query's source is acknowledged only up to its checkpoint, which the sink does not know.
        return None if stateful else shared_group(self._config.source, self._config.sink, self._name)

    async def _outlast(self, error: type[Exception], what: str, action: Callable[[], Awaitable[None]]) -> None:
        self._outage = Outage(self._clock, (error,))
        try:
            await self._outage.outlast(f"{self._name}'s {what}", action)
        finally:
            self._outage = None
