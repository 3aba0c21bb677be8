"""The places of a query: the lanes of a stateless query, and the one place of a stateful query, which may move."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from gateway.config.queries import SwitchingConfig
from gateway.core.decide.profiler import Profiler
from gateway.hosts.connection import Connection, QueryRefusedError
from gateway.query.commitnews import CommitNews
from gateway.query.flow.moves import Loss
from gateway.query.identity import Identity, checkpoints
from gateway.query.moving.batchends import BatchEnds
from gateway.query.moving.mover import TROUBLE, Mover
from gateway.query.opening import Opener, Opening
from gateway.query.querystate import LaneFailedError, QueryState
from infra.clock import Clock
from infra.failpoints import reached
from infra.link.channel import LinkLost
from infra.statefiles import StateError
from infra.threads import run_to_end
from policies.signals import HOME

_LOG = logging.getLogger(__name__)

AWAY: Final = "away"
"""Within a query's folder: see ``BatchEnds``."""


class PlacedQuery(QueryState):
    """Opens a query where it is to be, and closes it where it is not to be any more."""

    name: str
    _folder: Path
    _opener: Opener
    _clock: Clock
    _profiler: Profiler
    _identity: Identity
    _news: CommitNews
    _shares: dict[str, float]
    _error: Exception | None
    _at: Connection
    mover: Mover

    @abstractmethod
    async def start(self, home: Connection) -> None:
        """Open the query on a host, recover, and let events flow."""

    @abstractmethod
    async def stop(self) -> None:
        """End everything that was started."""

    @abstractmethod
    def on_failed(self, lane: str, reason: str) -> None:
        """Note that the query has failed in a lane."""

    def _make_mover(self, switching: SwitchingConfig) -> Mover:
        self._moves = switching.mode in ("auto", "query")
        self._batch_ends = BatchEnds(self._folder / AWAY)
        return Mover(
            self.name,
            self._clock,
            switching.pause_most_s,
            lambda: checkpoints(self._folder, self._identity),
            lambda vm, reason: self.on_failed(vm, reason),
            self._copied_home,
        )

    def _keep_runs(self) -> None:
        """Keep what the query needs if it must continue at home: its runs, and the limits of its micro-batches."""
        self.pipeline.keep_from(self.mover.home_seq)
        self.pipeline.note_batches(self._batch_ends.append)

    async def _copied_home(self, resume_seq: int) -> None:
        reached("return.installed")
        self.pipeline.keep_from(resume_seq)
        await run_to_end(lambda: self._batch_ends.keep_after(resume_seq))

    # --------------------------------------------------------------------------------------------------------- opening

    async def _open_at(self, opener: Opener, connection: Connection) -> Opening:
        """Open the query on a host; a stateful query on a VM continues from the copy of its checkpoint there."""
        copied_to = self.mover.checkpoint_dir if connection.name != HOME else ""
        batch_ends = await run_to_end(self._batch_ends.read)
        return await opener.open_at(connection, self._identity, copied_to=copied_to, batch_ends=batch_ends)

    async def close_on_hosts(self) -> None:
        """Let its hosts stop it. Call it before ``stop``."""
        for lane in tuple(self.lanes.values()):
            await self._close_on(lane.connection)

    async def _close_on(self, host: Connection) -> None:
        try:
            await host.close_query(self.name, self._identity.epoch)
        except LinkLost as error:
            _LOG.debug("%s is not closed on %s, whose link is lost: %s", self.name, host.name, error)

    # ----------------------------------------------------------------------------------------------------------- lanes

    def set_shares(self, shares: Mapping[str, float]) -> None:
        """Use these shares from now on, also after the next start."""
        self._shares = dict(shares)
        self.mover.follow(shares)
        if self._started:
            self.pipeline.set_shares(shares)

    async def attach(self, connection: Connection) -> None:
        """Open the query on a host and add the lane, which gets no runs until shares name it.

        A stateful query is only tried out on a VM: it may move there from then on.

        Raises:
            QueryRefusedError: the host cannot open it.
            LinkLost: the link was lost.
            TimeoutError: no answer in time.
        """
        if self.stateful and connection.name != HOME:
            await self._opener.warm(connection, self._identity.code_hash)
            self.mover.vms[connection.name] = connection
            return
        opening = await self._opener.open_at(connection, self._identity)
        self.pipeline.add_lane(opening.lane(self.pipeline, self._clock))

    async def warm(self, connection: Connection) -> None:
        """See ``Opener.warm``."""
        await self._opener.warm(connection, self._identity.code_hash if self._started else None)

    async def detach(self, lane: str, loss: Loss | None = None) -> None:
        """Remove a lane, because it must end or, with ``loss``, was lost; its open runs go elsewhere."""
        self.mover.lose(lane)
        if self._started:
            await self.pipeline.remove_lane(lane, loss)

    def drain_lane(self, name: str) -> None:
        """Send no further run to a lane; a stateful query leaves it."""
        if self.stateful:
            self.mover.drain(name)
        else:
            super().drain_lane(name)

    def lane_idle(self, name: str) -> bool:
        """Whether nothing of this query is open in a lane."""
        return self.mover.place != name if self.stateful else super().lane_idle(name)

    def on_commit(self, last_seq: int) -> None:
        """See ``PipelineOwner.on_commit``."""
        if self.stateful:
            self._news.notify(self._at, self._identity.epoch, last_seq)

    # ------------------------------------------------------------------------------------------------------------ home

    async def lose_home(self, loss: Loss | None = None) -> None:
        """Note that the home host is gone: a stateless query's runs wait or go to the cloud.

        A stateful query at home waits, and one on a VM goes on there.
        """
        if isinstance(self._error, LaneFailedError):
            self._error = None  # the host caused it
        if not self.stateful:
            await self.detach(HOME, loss)
        elif self.mover.place == HOME:
            await self.stop()

    async def restart_home(self, home: Connection) -> None:
        """Continue with a new home host; a stateful query continues from its checkpoint."""
        if self._started and self.mover.place != HOME:
            return
        if self._started:
            self._at = home
            await self.attach(home)
        elif self.mover.place != HOME:
            await self._go_home(home)
        else:
            await self.start(home)

    async def reopen(self) -> None:
        """Open a stateful query again from its checkpoint, where it is.

        Raises:
            LinkLost: the host is gone.
            QueryRefusedError: it refuses to open it again.
            TimeoutError: it does not answer.
        """
        await self._close_on(self._at)
        self._error = None if isinstance(self._error, LaneFailedError) else self._error
        await self.stop()
        try:
            await self.start(self._at)
        except LinkLost:
            if self._at.name == HOME:
                raise
            _LOG.info("query %s continues at home: %s is lost", self.name, self._at.name)

    # ---------------------------------------------------------------------------------------------------------- moving

    def end_slot(self) -> None:
        """Report to the profiler, before a slot ends, what waits, and what a move would cost."""
        super().end_slot()
        moves = self.stateful and self.mover.place == HOME
        self._profiler.moving(self.name, self.mover.pause_expected_s if moves else 0.0)

    @property
    def move_due(self) -> bool:
        """Whether `move` is to be called."""
        return self.stateful and self.mover.due

    async def move(self, home: Connection) -> None:
        """Move a stateful query to the VM that the scheduler's shares name, or home; where it fails, it is home.

        Raises:
            LinkLost: the home host is gone.
            QueryRefusedError: it refuses to open the query.
            TimeoutError: it does not answer.
        """
        if self.mover.place != HOME:
            await self._go_home(home)
        elif (target := self.mover.target) != HOME:
            await self._go_to(self.mover.vms[target], home)

    async def _go_to(self, vm: Connection, home: Connection) -> None:
        began_s = self._clock.now()
        await self.close_on_hosts()
        await self.stop()
        reached("move.stopped")
        try:
            await self.mover.send_rest()
            reached("move.sent")
            # From now on micro-batches may have results that no checkpoint at home knows of.
            await run_to_end(lambda: self._batch_ends.keep_after(self.mover.home_seq))
            reached("move.noted")
            await self.start(vm)
            reached("move.opened")
        except (*TROUBLE, QueryRefusedError, StateError) as error:
            self.mover.refuse(vm.name, error)
            await self.start(home)
        else:
            self.mover.arrived(HOME, began_s)

    async def _go_home(self, home: Connection) -> None:
        began_s, left = self._clock.now(), self.mover.place
        await self.close_on_hosts()
        await self.stop()
        reached("return.stopped")
        # The VM may not have repeated all micro-batches that have results: the ends that its checkpoint lacks stay.
        if await self.mover.fetch_rest():
            reached("return.fetched")
        reached("return.settled")
        await self.start(home)
        reached("return.opened")
        self.mover.arrived(left, began_s)
