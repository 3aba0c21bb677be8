"""A query that Spark at home may carry by itself."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.config.models import QueryConfig
from gateway.query.flow.referring.loader import RunLoader
from gateway.query.flow.referring.paths import DataPath
from gateway.query.flow.runlog import RunLog
from gateway.query.identity import Identity
from gateway.query.opening import DIRECT, Opener
from gateway.query.tables.refreshed import RefreshedQuery
from gateway.sinks.owned import OwnedSink
from gateway.sources.replayed import WithReplays
from infra.clock import Clock

if TYPE_CHECKING:
    from gateway.query.direct.turns import DirectTurns


class CarriedQuery(RefreshedQuery):
    """Makes what takes turns in delivering it, and tells who does; its other parts are those of ``RunningQuery``."""

    name: str
    config: QueryConfig
    _folder: Path
    _only_finishes: bool
    _opener: Opener
    _identity: Identity
    _source: WithReplays
    _clock: Clock
    _loader: RunLoader
    _direct: DirectTurns | None = None

    def _make_direct(self, sink: OwnedSink, log: RunLog) -> DirectTurns | None:
        """Return what lets Spark carry the query, or leaves out what it has delivered; None if that is not needed."""
        carries, mark = self.data_path.name == "direct" and not self._only_finishes, self._folder / DIRECT
        if carries:
            mark.touch()
        elif not mark.exists():
            return None
        from gateway.query.direct.making import has_delivered, make_turns  # with Kafka's client

        if not carries and not has_delivered(sink):
            mark.unlink()
            return None
        return make_turns(
            self.name,
            self.config,
            partial(self._opener.carried, self._identity),
            self._home_connection,
            sink=sink,
            source=self._source,
            log=log,
            ingress=self.ingress,
            pipeline=self.pipeline,
            owner=self,
            carries=carries,
            clock=self._clock,
        )

    @property
    def _carrying_trouble(self) -> str:
        """Why the brokers cannot be asked while Spark carries it; empty if they can."""
        return "" if self._direct is None else self._direct.trouble

    def on_turn(self, carried: int, parts: int, reason: str) -> None:
        """See ``TurnsOwner.on_turn``."""
        if not carried:
            self.data_path = DataPath("gateway", f"for now: {reason}")
        elif carried == parts:
            self.data_path = DataPath("direct")
        else:
            why = f": {reason}" if reason else ""
            self.data_path = DataPath("direct", f"Spark carries {carried} of {parts} parts for now{why}")

    def on_arrived(self, events: int, since_s: float, now_s: float) -> None:
        """See ``TurnsOwner.on_arrived``."""
        self.pipeline.carried(events, self._loader.bytes_of(events), since_s, now_s)
