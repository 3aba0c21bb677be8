"""A query that is open on one host, and its lane there."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from gateway.config.models import PayloadConfig
from gateway.hosts.connection import Connection
from gateway.query.crossing import Crossing, crossing_of, encoding_of, of_runs
from gateway.query.flow.lane import Lane, LaneOwner
from gateway.query.flow.referring.loader import RunLoader
from gateway.query.flow.referring.paths import DataPath
from infra.clock import Clock
from infra.messages import Completed, Credit, DirectProgress, IsolatingMessage, QueryFailed, QueryPlan, QueryReady
from infra.payload import CodecPolicy, Encoder
from infra.payload.caching import CachingEncoder
from infra.payload.sealing import FieldKeys
from policies.signals import HOME


class Opening:
    """A query that is open on one host: the host's answer, and the lane once there is one.

    Args:
        connection: to the host.
        payload: the query's config.
        on_failed: see ``Opener``.
        divided: whether it is a part of a query, whose runs have one more column.
        selects: whether its events are put together into selections, which one more column marks.

    Attributes:
        ready: the host's answer.
        crossing: what of the query may be sent to a VM.
        keys: of sealed fields; None if there are none.
        path: which way events take at home; of a VM the gateway's.
    """

    def __init__(
        self,
        connection: Connection,
        payload: PayloadConfig,
        on_failed: Callable[[str, str], None],
        *,
        divided: bool = False,
        selects: bool = False,
    ) -> None:
        self._divided, self._selects = divided, selects
        self._connection = connection
        self._payload = payload
        self._on_failed = on_failed
        self._lane: Lane | None = None
        self.keys: FieldKeys | None = None
        self.path = DataPath("gateway")
        self.ready: QueryReady
        self.crossing: Crossing

    def on_message(
        self, said: Completed | Credit | IsolatingMessage | QueryFailed | DirectProgress, payload: bytes
    ) -> None:
        """Process a message of the host about the query."""
        if self._lane is not None:
            self._lane.on_message(said, payload)
        elif isinstance(said, QueryFailed):
            self._on_failed(self._connection.name, said.reason)

    def opened(self, ready: QueryReady) -> None:
        """Take the host's answer."""
        self.ready = ready
        self._schema = pa.ipc.read_schema(pa.py_buffer(ready.input_schema))
        self.crossing = crossing_of(self._payload, ready.plan, self._schema)

    @property
    def plan(self) -> QueryPlan:
        """The plan, which may not be switched if protected fields prevent it."""
        return self.crossing.applied_to(self.ready.plan)

    def lane(self, owner: LaneOwner, clock: Clock, loader: RunLoader | None = None) -> Lane:
        """Return the lane, which receives messages from now on; ``loader``: see ``Lane``."""
        if self._connection.name == HOME:
            codecs = CodecPolicy.parse("none")
            of_events = Encoder(of_runs(self._schema, divided=self._divided), codecs=codecs)
            encoder = CachingEncoder(of_events) if self._selects else of_events
            by_reference = self.ready.by_reference
            self._lane = Lane(
                self._connection, self.ready, encoder, (), codecs, owner, clock, None, loader, by_reference=by_reference
            )
        else:
            self._lane = self._lane_away(owner, clock, loader)
        return self._lane

    def _lane_away(self, owner: LaneOwner, clock: Clock, loader: RunLoader | None) -> Lane:
        seals, of_results = self.crossing.seals(self.keys)
        how = encoding_of(
            self.crossing,
            self._payload,
            self.ready.plan,
            self._schema,
            seals,
            divided=self._divided,
            selects=self._selects,
        )
        return Lane(self._connection, self.ready, *how, owner, clock, of_results, loader)
