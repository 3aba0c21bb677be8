"""The parts of a running gateway that the API sees and steers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gateway.config.models import Config
from gateway.core.decide.scheduler import Scheduler
from gateway.deciding import Deciding
from gateway.hosts.rotation import Rotation
from gateway.query.flow.memory import MemoryPool
from gateway.query.running import RunningQuery
from gateway.query.supervision.home import Home
from gateway.query.supervision.supervision import Supervision
from gateway.query.supervision.supervisor import Supervisor
from gateway.reloading.live import LiveGateway
from gateway.reloading.reloader import Reloader
from gateway.views.http.operations import RefusedNowError, UnknownNameError
from gateway.views.live.composing import Composer
from infra.clock import Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayParts:
    """The parts.

    Attributes:
        live: the parts that another config changes.
        reloader: takes in a changed config.
        memory: what all queries hold.
        rotation: renews certificates.
        composer: has the last slot's measurements.
        traces: how many runs' traces were exported or dropped, by that word.
        drain: begins to drain and end the gateway; returns False if that has begun.
    """

    live: LiveGateway
    reloader: Reloader
    memory: MemoryPool
    rotation: Rotation
    composer: Composer
    traces: Mapping[str, int]
    drain: Callable[[], bool]

    def phase(self) -> str:
        """Return the phase of the gateway."""
        return self.live.phase()

    @property
    def config(self) -> Config:
        """Return the present config."""
        return self.live.config

    @property
    def deciding(self) -> Deciding:
        """Return the scheduler and its logs."""
        return self.live.deciding

    @property
    def supervision(self) -> Supervision:
        """Return the queries' supervisors."""
        return self.live.supervision

    @property
    def queries(self) -> Mapping[str, RunningQuery]:
        """Return the queries by name."""
        return self.live.queries

    @property
    def home(self) -> Home:
        """Return the private engine hosts."""
        return self.live.home

    @property
    def clock(self) -> Clock:
        """Return the clock."""
        return self.live.clock

    @property
    def scheduler(self) -> Scheduler:
        """Return the scheduler, for reading."""
        return self.deciding.scheduler

    @property
    def ahead_s(self) -> float:
        """Return by how much seconds since 1970 are ahead of the gateway's clock."""
        return self.clock.wall() - self.clock.now()

    @property
    def open(self) -> Mapping[str, Supervisor]:
        """Return the supervisors of queries that can be described: none before the gateway runs."""
        return self.supervision.of if self.phase() in ("running", "stopping") else {}

    def check_runs(self) -> None:
        """Check that the gateway runs.

        Raises:
            RefusedNowError: it does not.
        """
        if self.phase() != "running":
            raise RefusedNowError(f"the gateway is {self.phase()}: retry when it is running")

    def check_known(self, query: str) -> None:
        """Check that a query exists.

        Raises:
            UnknownNameError: it does not.
        """
        if query not in self.queries:
            raise UnknownNameError(f"there is no query {query}; the queries are {', '.join(self.queries)}")
