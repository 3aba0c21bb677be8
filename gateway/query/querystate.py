"""The present state of a query; while the query is not open, nothing is in progress."""

from __future__ import annotations

from collections.abc import Mapping

from gateway.query.flow.ingress import Ingress
from gateway.query.flow.lane import Lane
from gateway.query.flow.pipeline import Pipeline
from gateway.query.flow.referring.paths import DataPath
from gateway.query.flow.runlog import RunLog
from infra.messages import QueryPlan
from infra.queryplan import STATE_STAYS


class BrokenQueryError(Exception):
    """The query itself is at fault; the message says what to do."""


class ExhaustedHostError(Exception):
    """The query exhausted the memory of an engine host that it shares; the message says how."""


class LaneFailedError(Exception):
    """The query failed on the private engine host, or got no answer from there; the message is the reason."""


class QueryState:
    """Reads a query's state from its parts: ``pipeline`` and ``ingress`` while it is open, and ``plan``.

    ``data_path`` says who reads the events that stay at home; before the query is open the default.
    """

    pipeline: Pipeline
    ingress: Ingress
    _log: RunLog
    _started: bool
    plan: QueryPlan | None
    data_path: DataPath = DataPath("gateway")
    _moves: bool
    _parts: int

    @property
    def started(self) -> bool:
        """Whether it is open: between ``start`` and ``stop``."""
        return self._started

    @property
    def stateful(self) -> bool:
        """Whether it is open, or was, and keeps state."""
        return self.plan is not None and self.plan.stateful

    @property
    def divided(self) -> bool:
        """Whether it is divided by its keys into parts, each of which has a place of its own."""
        return self._parts > 1

    @property
    def switchable(self) -> bool:
        """Whether VMs may be used: by lanes beside home or, for a stateful query, as its place."""
        if self.plan is None:
            return False
        return self._moves and self.plan.movable if self.stateful else self.plan.switchable

    @property
    def stays_home(self) -> str:
        """Why its plan or its protected fields keep it at home; empty if it may be switched or is not open yet."""
        if self.plan is None or self.switchable:
            return ""
        if self.stateful:
            how = "with mode auto or query it moves with its state" if self.plan.movable else STATE_STAYS
            return f"{self.plan.reason}; {how}"
        return self.plan.reason

    @property
    def lanes(self) -> Mapping[str, Lane]:
        """The lanes by name; none while it is not open."""
        return self.pipeline.lanes if self._started else {}

    @property
    def idle(self) -> bool:
        """Whether every run that was read is committed; True for a query that is not open."""
        return not self._started or self.pipeline.idle

    @property
    def read_before(self) -> int:
        """The first seq that was not read yet."""
        return self._log.next_seq if self._started else 0

    @property
    def committed_before(self) -> int:
        """Every event before this seq is committed."""
        return self.pipeline.committed_before if self._started else 0

    @property
    def isolating_s(self) -> float:
        """How long engine hosts have looked for bad rows since it was opened."""
        return self.pipeline.isolating_s if self._started else 0.0

    @property
    def cloud_share(self) -> float:
        """R: the part of the events that cloud lanes should get."""
        return self.pipeline.cloud_share if self._started else 0.0

    @property
    def shed_share(self) -> float:
        """The part of the events that is shed now."""
        return self.ingress.sampler.share if self._started else 0.0

    def set_shed(self, share: float) -> None:
        """Shed this share of the events from now on; the run log counts them."""
        if self._started:
            self.ingress.sampler.share = share

    def lane_idle(self, name: str) -> bool:
        """Whether nothing of this query is open in a lane."""
        return not self._started or self.pipeline.lane_idle(name)

    def drain_lane(self, name: str) -> None:
        """Send no further run to a lane."""
        if self._started:
            self.pipeline.drain_lane(name)

    def end_slot(self) -> None:
        """Report to the profiler, before a slot ends, what waits."""
        if self._started:
            ingress = self.ingress
            self.pipeline.end_slot(ingress.oldest_unread_s(), ingress.due_unread_count(), ingress.gaps.take())

    @property
    def drained(self) -> bool:
        """Whether the source has ended and everything from it is committed."""
        return self._started and self.ingress.finished and self.pipeline.idle

    @property
    def shed_events(self) -> int:
        """How many events were ever shed, from the run log."""
        return self._log.shed_events if self._started else 0
