"""The places of a query: the lanes of a stateless query, and the place of a stateful query or of each of its parts."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from gateway.config.policy import SwitchingConfig
from gateway.core.decide.profiler import Profiler
from gateway.hosts.connection import Connection, QueryRefusedError
from gateway.query.commitnews import CommitNews
from gateway.query.flow.dispatcher import Loss
from gateway.query.flow.referring.loader import RunLoader
from gateway.query.hosting.opening import Opening
from gateway.query.moving.batchends import BatchEnds
from gateway.query.moving.mover import TROUBLE, Mover
from gateway.query.moving.movingparts import MovingParts
from gateway.query.opening import Opener
from gateway.query.querystate import LaneFailedError
from infra.failpoints import reached
from infra.link.channel import LinkLost
from infra.statefiles import StateError
from infra.threads import run_to_end
from infra.together import all_or_none
from policies.keys.places import PartPlaces
from policies.signals import HOME

_LOG = logging.getLogger(__name__)

AWAY: Final = "away"
"""Within a query's folder: see ``BatchEnds``."""


class PlacedQuery(MovingParts):
    """Opens a query where it is to be, and closes it where it is not to be any more."""

    _folder: Path
    _profiler: Profiler
    _shares: dict[str, float]
    _error: Exception | None
    _opened_as: tuple[str, ...]
    _loader: RunLoader

    @abstractmethod
    async def start(self, *hosts: Connection) -> None:
        """Open the query on a host, or each part on its host, recover, and let events flow."""

    @abstractmethod
    async def stop(self) -> None:
        """End everything that was started."""

    @abstractmethod
    def on_failed(self, lane: str, reason: str) -> None:
        """Note that the query has failed in a lane."""

    def _make_movers(self, switching: SwitchingConfig) -> tuple[Mover, ...]:
        self._moves = switching.mode in ("auto", "query", "keys")
        self._pause_most_s = switching.pause_most_s
        self._home, self._next_hosts, self._turns = None, {}, {}
        self._batch_ends = BatchEnds(self._folder / AWAY)
        parts = self._opener.parts
        self._parts = len(parts)
        self._part_places = PartPlaces(len(parts))
        self._news = tuple(CommitNews(opener.definition.query) for opener in parts)
        return tuple(
            Mover(
                opener.definition.query,
                self._clock,
                switching.pause_most_s,
                partial(self._checkpoints_of, opener),
                lambda vm, reason: self.on_failed(vm, reason),
                partial(self._copied_home, part),
                partial(self._move_part, part) if len(parts) > 1 else None,
            )
            for part, opener in enumerate(parts)
        )

    def _checkpoints_of(self, opener: Opener) -> Path:
        return opener.checkpoints(self._identity)

    def _keep_runs(self) -> None:
        """Keep what the query needs if it must continue at home: its runs, and the limits of its micro-batches."""
        for part, (mover, host) in enumerate(zip(self.movers, self._ats, strict=False)):
            if host.name != HOME:
                self.pipeline.keep_from(part, mover.home_seq)
        self.pipeline.note_batches(self._batch_ends.append)

    async def _copied_home(self, part: int, resume_seq: int) -> None:
        reached("return.installed")
        self.pipeline.keep_from(part, resume_seq)
        await self._forget_ends(self.pipeline.needed_from if self.divided else resume_seq)

    async def _forget_ends(self, seq: int) -> None:
        """Forget the ends of the micro-batches before ``seq``: the checkpoints at home have them."""
        await run_to_end(lambda: self._batch_ends.keep_after(seq))

    # --------------------------------------------------------------------------------------------------------- opening

    async def _open_parts(self, opener: Opener, hosts: Sequence[Connection]) -> list[Opening]:
        """Open the query, or each part on its own host; on a VM it continues from the copy of its checkpoint."""
        batch_ends = await run_to_end(self._batch_ends.read)
        openings: dict[int, Opening] = {}

        async def open_part(index: int, part: Opener) -> None:
            copied_to = "" if hosts[index].name == HOME else self.movers[index].checkpoint_dir
            ends = () if part.definition.part else batch_ends  # the gateway makes the micro-batches of parts
            openings[index] = await part.open_at(hosts[index], self._identity, copied_to=copied_to, batch_ends=ends)

        await all_or_none(*(open_part(index, part) for index, part in enumerate(opener.parts)))
        return [openings[index] for index in sorted(openings)]

    async def close_on_hosts(self) -> None:
        """Let its hosts stop it. Call it before ``stop``."""
        if self.stateful:
            await self._rest()
            await self._close_parts()
            return
        for lane in tuple(self.lanes.values()):
            await self._close_on(lane.connection, self.name)

    async def _rest(self) -> None:
        """Copy and move nothing: nothing changes its place from now on."""
        for mover in self.movers:
            await mover.rest()

    async def _close_parts(self, *, away_only: bool = False) -> None:
        """Let the hosts stop the query, or each of its parts, as it was opened last."""
        opened = zip(self._opened_as, self._ats, strict=True)
        await all_or_none(*(self._close_on(at, name) for name, at in opened if at.name != HOME or not away_only))

    # ----------------------------------------------------------------------------------------------------------- lanes

    def set_shares(self, shares: Mapping[str, float]) -> None:
        """Use these shares from now on, also after the next start."""
        self._shares = dict(shares)
        if self._places_parts:
            self._place_parts()
        else:
            self.movers[0].follow(shares)
        if self._started:
            self.pipeline.set_shares(shares)

    async def attach(self, connection: Connection) -> bool:
        """Open the query on a host and add the lane, which gets no runs until shares name it.

        A stateful query is only tried out on a VM: it may move there from then on.

        Returns:
            Whether the host can serve it; False if it was stopped meanwhile, and is to be opened there again later.

        Raises:
            QueryRefusedError: the host cannot open it.
            LinkLost: the link was lost.
            TimeoutError: no answer in time.
        """
        if self.stateful and connection.name != HOME:
            await self.warm(connection)
            for mover in self.movers:
                mover.vms[connection.name] = connection
            return True
        while True:
            start = self._identity
            opening = await self._opener.open_at(connection, start)
            if self._started and self._identity is start:
                dispatcher = self.pipeline.parts[0]
                dispatcher.add_lane(opening.lane(dispatcher, self._clock, self._loader))
                return True
            # It was opened again meanwhile, perhaps with new content of its tables.
            await connection.close_query(self.name, start.epoch)
            if not self._started:
                return False

    @property
    def _places_parts(self) -> bool:
        """Whether the parts of the present definition are open, or will be."""
        return len(self.movers) == self._parts > 1

    def _place_parts(self) -> None:
        """Let each part go where the scheduler's shares want it."""
        if any(mover.leaves for mover in self.movers):
            self._part_places.moved(self._clock.now())  # what has been decided is carried out first
        usable = {HOME, *(vm for vm in self.movers[0].vms if self.movers[0].usable(vm))}
        shares = {place: share for place, share in self._shares.items() if place in usable}
        places = tuple(mover.target for mover in self.movers)
        targets = self._part_places.targets(places, shares, self._clock.now())
        for mover, target in zip(self.movers, targets, strict=True):
            mover.follow({target: 1.0})

    async def warm(self, connection: Connection) -> None:
        """See ``Opener.warm``."""
        for opener in self._opener.parts:
            await opener.warm(connection, self._identity.code_hash if self._started else None)

    async def detach(self, lane: str, loss: Loss | None = None) -> None:
        """Remove a lane, because it must end or, with ``loss``, was lost; its open runs go elsewhere."""
        for mover in self.movers:
            mover.lose(lane)
        if self._started:
            await self.pipeline.remove_lane(lane, loss)

    def drain_lane(self, name: str) -> None:
        """Send no further run to a lane; a stateful query leaves it."""
        if self.stateful:
            for mover in self.movers:
                mover.drain(name)
        else:
            super().drain_lane(name)

    def lane_idle(self, name: str) -> bool:
        """Whether nothing of this query is open in a lane."""
        if not self.stateful:
            return super().lane_idle(name)
        return name not in self.places and all(mover.heading != name for mover in self.movers)

    @property
    def places(self) -> tuple[str, ...]:
        """Where the query is, or each of its parts, if it keeps state."""
        return tuple(mover.place for mover in self.movers)

    def on_commit(self, last_seq: int) -> None:
        """See ``PipelineOwner.on_commit``."""
        if self.stateful:
            for news, host in zip(self._news, self._ats, strict=False):
                news.notify(host, self._identity.epoch, last_seq)
            for part, host in self._next_hosts.items():
                self._news[part].notify(host, self._identity.epoch, last_seq)

    # ------------------------------------------------------------------------------------------------------------ home

    async def lose_home(self, loss: Loss | None = None) -> None:
        """Note that the home host is gone: a stateless query's runs wait or go to the cloud.

        A stateful query at home waits, and one on a VM goes on there.
        """
        self._home = None
        if isinstance(self._error, LaneFailedError):
            self._error = None  # the host caused it
        if not self.stateful:
            await self.detach(HOME, loss)
        elif HOME in self.places:
            await self._close_parts(away_only=True)
            await self.stop()

    async def restart_home(self, home: Connection) -> None:
        """Continue with a new home host; a stateful query continues from its checkpoint."""
        self._home = home
        if self._started and self.stateful and HOME not in self.places:
            return
        if self._started:
            self._ats = (home,)
            await self.attach(home)
        else:
            await self._start_where_it_is(home)

    async def reopen(self) -> None:
        """Open a stateful query again from its checkpoint, where it is.

        Raises:
            LinkLost: the host is gone.
            QueryRefusedError: it refuses to open it again.
            TimeoutError: it does not answer.
        """
        await self.close_on_hosts()
        hosts = self._ats
        self._error = None if isinstance(self._error, LaneFailedError) else self._error
        await self.stop()
        try:
            await self.start(*hosts)
        except LinkLost:
            if not all(host.alive for host in hosts if host.name == HOME) or {host.name for host in hosts} == {HOME}:
                raise
            _LOG.info("query %s continues at home: a VM where it was is lost", self.name)

    # ---------------------------------------------------------------------------------------------------------- moving

    def end_slot(self) -> None:
        """Report to the profiler, before a slot ends, what waits, and what a move would cost."""
        super().end_slot()
        may_move = self.stateful and set(self.places) == {HOME}
        pause_s = max(mover.pause_expected_s for mover in self.movers)
        self._profiler.moving(self.name, pause_s if may_move else 0.0, self._part_places.heaviest)
        if self._places_parts:
            self._part_places.end_slot()
            self._place_parts()

    @property
    def move_due(self) -> bool:
        """Whether `move` is to be called: it can move now, or a part must return that cannot while it is open."""
        if not self.stateful:
            return False
        if self.divided:
            return any(self._must_return(mover) for mover in self.movers)
        return self.movers[0].leaves and self.movers[0].due

    @staticmethod
    def _must_return(part: Mover) -> bool:
        return part.is_lost or (part.stuck and part.leaves and part.next_place == HOME)

    async def move(self, home: Connection) -> None:
        """Stop the query and open it where it is to be; what cannot move is at home then.

        Parts move while they are open, see ``_move_part``. Here only those return that cannot.

        Raises:
            LinkLost: the home host is gone.
            QueryRefusedError: it refuses to open the query.
            TimeoutError: it does not answer.
        """
        await self._rest()
        began_s, before = self._clock.now(), self.places
        leaving = [self._must_return(mover) if self.divided else mover.leaves for mover in self.movers]
        vms = {name: vm for mover in self.movers for name, vm in mover.vms.items()}
        if not any(leaving):
            return
        if self._started:
            await self.close_on_hosts()
        await self.stop()
        reached("move.stopped" if set(before) == {HOME} else "return.stopped")
        targets = list(before)
        for part, leaves in enumerate(leaving):
            if leaves:
                targets[part] = await self._leave(part)
        await self._start_at([home if target == HOME else vms[target] for target in targets], home)
        self._arrived(before, began_s)

    def _arrived(self, before: Sequence[str], began_s: float) -> None:
        """Note what has moved since ``began_s``, from the places ``before``."""
        moved = [(mover, left) for mover, left in zip(self.movers, before, strict=True) if mover.place != left]
        if not moved:
            return
        reached("return.opened" if set(self.places) == {HOME} else "move.opened")
        for mover, left in moved:
            mover.arrived(left, began_s)
        self._part_places.moved(self._clock.now())

    async def _leave(self, part: int) -> str:
        """Copy the rest of the state from where a part is, or to where it goes; return its new place. It is closed."""
        mover = self.movers[part]
        if mover.place != HOME:
            # The VM may not have repeated all micro-batches that have results: the ends that its checkpoint lacks stay.
            if await mover.fetch_rest():
                reached("return.fetched")
            reached("return.settled")
            return HOME
        target = mover.target
        try:
            await mover.send_rest()
            reached("move.sent")
            if not self.divided:
                # From now on micro-batches may have results that no checkpoint at home knows of.
                await run_to_end(lambda: self._batch_ends.keep_after(mover.home_seq))
            reached("move.noted")
        except TROUBLE as error:
            mover.refuse(target, error)
            return HOME
        return target

    async def _start_where_it_is(self, home: Connection) -> None:
        """Open it where it was, or at home what was on a VM that is gone."""
        began_s, before = self._clock.now(), self.places
        # A query that is not divided was on a VM, and could not be opened there again.
        hosts = [mover.present_at or home for mover in self.movers] if self.divided else [home]
        for mover, host in zip(self.movers, hosts, strict=True):
            if host is home and mover.place != HOME:
                await mover.fetch_rest()
        await self._start_at(hosts, home)
        self._arrived(before, began_s)

    async def _start_at(self, hosts: Sequence[Connection], home: Connection) -> None:
        """Open it on these hosts; if a VM refuses it or is lost, all of it at home."""
        try:
            await self.start(*hosts)
        except (*TROUBLE, QueryRefusedError, StateError) as error:
            away = [(mover, host) for mover, host in zip(self.movers, hosts, strict=True) if host is not home]
            if not away:
                raise
            for mover, host in away:
                if mover.place == host.name:
                    await mover.fetch_rest()
                mover.refuse(host.name, error)
            await self.start(home)
