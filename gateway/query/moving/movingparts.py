"""The parts of a divided query, each of which moves while it and all others go on."""

from __future__ import annotations

import asyncio
import logging
from functools import partial

from gateway.hosts.connection import Connection, QueryRefusedError
from gateway.query.commitnews import CommitNews
from gateway.query.hosting.opening import Opening
from gateway.query.identity import Identity
from gateway.query.moving.mover import TROUBLE, Mover, NotNowError
from gateway.query.moving.partmover import NextPlaceError, PartMover
from gateway.query.opening import Opener
from gateway.query.querystate import QueryState
from infra.clock import Clock
from infra.failpoints import reached
from infra.link.channel import LinkLost
from infra.statefiles import StateError
from infra.together import wait_out
from policies.keys.places import PartPlaces
from policies.signals import HOME

_LOG = logging.getLogger(__name__)


class MovingParts(QueryState):
    """Moves the parts of a divided query. A query that is not divided has one part, which does not move in this way."""

    name: str
    _opener: Opener
    _clock: Clock
    _identity: Identity
    _news: tuple[CommitNews, ...]
    _ats: tuple[Connection, ...]
    _home: Connection | None
    _next_hosts: dict[int, Connection]
    _part_places: PartPlaces
    _pause_most_s: float
    _turns: dict[str, asyncio.Lock]
    movers: tuple[Mover, ...]
    may_move = True
    """Whether its parts may move while they are open; not while it runs alone because it is suspected of a crash."""

    async def _move_part(self, part: int) -> None:
        """Move a part to where it is to be, while it and all others go on; if that fails, it stays where it is."""
        mover, left = self.movers[part], self._ats[part]
        host = self._home if mover.next_place == HOME else mover.vms.get(mover.next_place)
        if not self.may_move or mover.is_lost or host is None or not host.alive:
            return
        name = self._opener.parts[part].definition.query
        moving = PartMover(
            self.pipeline.parts[part],
            mover,
            host,
            self._pause_most_s,
            open_there=partial(self._open_there, part, host),
            close=lambda: self._close_on(host, name),
            on_commit=partial(self._notify, part, host),
            on_switched=partial(self._switched, part, host),
            clock=self._clock,
        )
        mover.heading, self._next_hosts[part] = host.name, host
        try:
            # A host opens one query after another: opened together, all would fall behind by more.
            async with self._turns.setdefault(host.name, asyncio.Lock()):
                if mover.next_place != host.name:  # it has changed while others moved
                    return
                await moving.run()
        except NotNowError as why:
            await mover.wait_for_another_try(why)
        except (*TROUBLE, QueryRefusedError, StateError, NextPlaceError) as error:
            self._stays(mover, host, error)
        else:
            await wait_out(self._close_on(left, name))
            await self._left(mover)
        finally:
            mover.heading = ""
            del self._next_hosts[part]

    async def _open_there(self, part: int, host: Connection) -> Opening:
        """Open a part on a host, and tell the host at once what the sink has: it need not ask for each run."""
        copied_to = "" if host.name == HOME else self.movers[part].checkpoint_dir
        opening = await self._opener.parts[part].open_at(host, self._identity, copied_to=copied_to)
        self._notify(part, host, self.pipeline.committed_before - 1)
        return opening

    def _notify(self, part: int, host: Connection, last_seq: int) -> None:
        self._news[part].notify(host, self._identity.epoch, last_seq)

    def _switched(self, part: int, host: Connection, began_s: float) -> None:
        """Note that from now on the answers of a part come from this host."""
        mover, left = self.movers[part], self.movers[part].place
        mover.place = host.name
        self._ats = (*self._ats[:part], host, *self._ats[part + 1 :])
        if host.name == HOME:
            self.pipeline.keep_from(part, None)
        else:
            # The checkpoint at home has everything before the last run that was answered there.
            mover.home_seq = max(mover.home_seq, self.pipeline.parts[part].kept.batch_start_seq)
            self.pipeline.keep_from(part, mover.home_seq)
        mover.arrived(left, began_s)
        self._part_places.moved(self._clock.now())

    async def _left(self, mover: Mover) -> None:
        """Clean up after a part is closed in its last place."""
        if mover.place == HOME:
            await mover.forget_received()
            reached("part.returns.closed")
        else:
            reached("part.leaves.closed")

    def _stays(self, mover: Mover, host: Connection, error: Exception) -> None:
        """Note why a part could not go on on a host."""
        if mover.next_place != host.name or not host.alive:
            _LOG.info("a part of query %s does not move to %s: %s", self.name, host.name, error)
        elif host.name == HOME:
            _LOG.warning("query %s is stopped, so that a part of it can return: %s", self.name, error)
            mover.stuck = True
        else:
            mover.refuse(host.name, error)

    async def _close_on(self, host: Connection, name: str) -> None:
        try:
            await host.close_query(name, self._identity.epoch)
        except LinkLost as error:
            _LOG.debug("%s is not closed on %s, whose link is lost: %s", name, host.name, error)
