"""What happens to the state of an earlier start when the query or its source has changed.

Nothing of it is skipped silently: events that were read and have no results in the sink are finished first, with the
definition and from the source that they were read with. If that is impossible, the start is refused with a message that
says what to do.
"""

from __future__ import annotations

import logging
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from gateway.config.models import FileSinkConfig, QueryConfig
from gateway.core.intervals import IntervalSet
from gateway.hosts.connection import Connection
from gateway.query import looking
from gateway.query.flow.runlog import LogHead, RunLog, RunRecord
from gateway.query.handover import OwningFleet
from gateway.query.identity import Identity, claim, holds_state, read_identity, redefine, remove_old_checkpoints
from gateway.query.looking import SourcePlace
from gateway.query.opening import Opener
from gateway.sinks.owned import OwnedSink
from gateway.sources.marks import KafkaMark, StreamsMark, described
from infra.clock import Clock
from infra.link.channel import LinkLost
from infra.messages import OpenQuery
from infra.statefiles import StateError
from infra.threads import run_to_end

_LOG = logging.getLogger(__name__)

_POLL_S = 0.05


class Deliverer(Protocol):
    """The part of a query that a take-over needs: see ``RunningQuery``."""

    async def committed(self, identity: Identity) -> IntervalSet:
        """Return which of the state's results the sink holds; the query is not open."""
        ...

    async def begin(self, home: Connection, opener: Opener, identity: Identity, *, only_finish: bool = False) -> None:
        """Open it on a host; with ``only_finish`` nothing new is read."""
        ...

    @property
    def drained(self) -> bool:
        """Whether nothing more is read, and everything that was read is committed."""
        ...

    def failure(self) -> BaseException | None:
        """Return why it has failed, if it has."""
        ...

    async def stop(self) -> None:
        """End everything that was begun."""
        ...


@dataclass(frozen=True, slots=True)
class TakeOver:
    """The state that a query finds when it is opened.

    Attributes:
        name: the query's.
        config: the query's config.
        folder: its part of the state_dir.
        opener: opens it with the present definition.
        clock: time.
        fleet: if other gateways of a fleet may continue the query.
    """

    name: str
    config: QueryConfig
    folder: Path
    opener: Opener
    clock: Clock
    fleet: OwningFleet | None = None

    async def identity(self, home: Connection, deliverer: Deliverer) -> Identity:
        """Return the identity to continue with, once no events of another definition are left.

        Args:
            home: the host, which decides whether the new definition can be opened at all.
            deliverer: delivers the results of events that were read with an old definition.

        Raises:
            StateError: the state cannot be taken over; the message says what to do.
            QueryRefusedError: the new definition cannot be opened; the state is unchanged.
        """
        old = await run_to_end(lambda: read_identity(self.folder))
        owner = await run_to_end(lambda: self._owner(old))
        if old is not None and not old.is_of(self.opener.definition):
            await self._change(old, home, deliverer)
        identity = await run_to_end(lambda: self._claim(self.opener.definition, owner))
        try:
            await run_to_end(lambda: remove_old_checkpoints(self.folder, identity))
        except OSError as error:
            # An engine that is just ending may still write there.
            _LOG.warning(
                "query %s: old checkpoints could not be removed, the next start removes them: %s", self.name, error
            )
        return identity

    async def same_identity(self) -> Identity:
        """Return the identity with which the query continues in another place; nothing may have changed.

        Raises:
            StateError: its definition has changed since it was opened.
        """
        old = await run_to_end(lambda: read_identity(self.folder))
        if old is None or not await run_to_end(lambda: old.is_of(self.opener.definition)):
            raise StateError(f"query {self.name}: its definition has changed since it was opened")
        return await run_to_end(lambda: self._claim(self.opener.definition))

    def _owner(self, old: Identity | None) -> str:
        """Return the owner of new state: in a fleet the one that its gateways agreed on; else empty."""
        if self.fleet is None:
            return ""
        mine = secrets.token_hex(8) if old is None else old.owner
        owner = self.fleet.agreed(f"queries/{self.name}", mine)
        if owner != mine and old is not None:
            raise StateError(
                f"query {self.name}: {self.folder} holds state of its own, from before this gateway joined the fleet, "
                "and the fleet has other state of the query. Finish it without the fleet, or remove the folder"
            )
        return owner

    def _claim(self, definition: OpenQuery, owner: str = "") -> Identity:
        least_epoch = 0 if self.fleet is None else self.fleet.least_epoch
        return claim(self.folder, definition, owner, least_epoch, self.opener.shared)

    async def _change(self, old: Identity, home: Connection, deliverer: Deliverer) -> None:
        # Check whether it can run at all before anything of the old definition is discarded.
        await self.opener.warm(home)
        stateful = await run_to_end(lambda: holds_state(self.folder, old))
        if stateful and not self.config.new_epoch:
            raise StateError(why_state_is_kept(self.name))
        definition = old.definition(self.opener.definition)
        if definition is not None:
            old = await run_to_end(lambda: self._claim(definition))
        runs = (await self._log(old)).runs
        if runs and not_in(await deliverer.committed(old), runs):
            if definition is None:
                raise StateError(why_not_finished(self.name, self.folder))
            _LOG.warning("query %s: the old definition first processes everything that was read", self.name)
            await self._finish(home, self.opener.of(definition), old, deliverer)
        next_seq = (await self._log(old)).next_seq
        await run_to_end(lambda: redefine(self.folder, old, self.opener.definition, next_seq))
        _LOG.warning("query %s: its definition changed: the new one begins with seq %d", self.name, next_seq)
        if stateful:
            _LOG.warning("query %s: its state was discarded; now remove new_epoch from the config", self.name)
        if isinstance(self.config.sink, FileSinkConfig) and self.config.sink.format == "parquet":
            path = self.config.sink.path
            _LOG.warning("query %s: parts in %s from now on may have other columns than those before", self.name, path)

    async def _finish(self, home: Connection, opener: Opener, old: Identity, deliverer: Deliverer) -> None:
        try:
            await deliverer.begin(home, opener, old, only_finish=True)
            while not deliverer.drained:
                if (error := deliverer.failure()) is not None:
                    raise error
                if not home.alive:
                    raise LinkLost(await home.lost())
                await self.clock.sleep_until(self.clock.now() + _POLL_S)
        finally:
            await deliverer.stop()
        for part in opener.parts:
            await home.close_query(part.definition.query, old.epoch)

    async def _log(self, old: Identity) -> RunLog:
        """Return the content of the run log, closed."""
        log = await run_to_end(lambda: RunLog(self.folder / "runs.log", LogHead(old.owner, self.clock.wall())))
        await run_to_end(log.close)
        return log


def not_in(done: IntervalSet, runs: list[RunRecord], resume_seq: int | None = None) -> list[RunRecord]:
    """Return the runs that must be processed again.

    Args:
        done: what the sink holds.
        runs: the runs in the log.
        resume_seq: where a stateful query continues; it needs every run from there on.
    """
    return [
        run
        for run in runs
        if not done.covers(run.first_seq, run.last_seq) or (resume_seq is not None and run.first_seq >= resume_seq)
    ]


def why_state_is_kept(name: str) -> str:
    """Return the error about a changed stateful query without the user's consent."""
    return (
        f"query {name}: its definition changed, and it holds state (open windows, aggregates) that only the old one "
        "can continue with. Restore the old definition; or set new_epoch: true in the query, which discards the state: "
        "what was read is finished, and the new definition begins with the next event and empty state"
    )


def why_not_finished(name: str, folder: Path) -> str:
    """Return why events that were read with a lost definition cannot be finished."""
    return (
        f"query {name}: its definition changed, events were read that are not in the sink yet, and the old definition "
        "is not there to finish them (its function's source changed, the files of one of its tables are gone, or an "
        "earlier version kept no copy). Restore the old one, run until it is drained (spillway run CONFIG "
        "--until-drained), and change it then; or remove "
        f"{folder} and choose an empty sink folder, to begin anew from the source's start"
    )


def why_not_read_again(name: str, folder: Path, look: str, old: str, events: int) -> str:
    """Return why another source is not begun while events of the old one are outstanding."""
    return (
        f"query {name}: {events} events that were read from {old} are not in the sink yet, and cannot be read again: "
        f"{look}. Restore the old source, run until it is drained (spillway run CONFIG --until-drained), and change "
        f"it then; or remove {folder} and choose an empty sink folder, to begin anew from the source's start"
    )


def continue_in(name: str, sink: OwnedSink, log: RunLog, resume_seq: int | None) -> None:
    """Let a sink wait for no result that only the one before it got: of runs that the log or the checkpoint forgot.

    The log forgets only what is committed, and Spark's checkpoint has only what is committed.

    Args:
        name: the query's.
        sink: opened.
        log: the query's run log.
        resume_seq: where a stateful query continues by its checkpoint.
    """
    is_new = not sink.committed
    before_seq = max(log.head.next_seq, resume_seq or 0) if is_new else log.head.next_seq
    sink.continue_at(before_seq)
    if is_new and before_seq:
        _LOG.warning("query %s: its sink is new: it gets the results from seq %d on", name, before_seq)


async def settle_source(
    name: str,
    place: SourcePlace,
    log: RunLog,
    done: IntervalSet,
    resume_seq: int | None,
    wall_s: float,
) -> None:
    """Check whether the source is the one that the log's positions belong to; begin another one at its start.

    The order of the writes: first the source's own record of the old one (the list of a folder's files) is removed,
    then one write of the log's head replaces mark and position. After a crash in between, the log has the old mark and
    the source does not match it: the same steps are repeated. No run of the new source is logged before.

    Args:
        name: the query's.
        place: its source.
        log: its run log, from which nothing was read again yet.
        done: what the sink holds.
        resume_seq: where a stateful query continues.
        wall_s: now, s since 1970.

    Raises:
        StateError: events of the old source are outstanding.
        SourceError: the source cannot be read; SourceUnavailableError or OSError: not now.
    """
    outstanding = not_in(done, log.runs, resume_seq)
    known, position = log.head.source, log.position
    look = await looking.look(place, known, outstanding[0].start if outstanding else position)
    if not look.changed:
        await run_to_end(look.reset)
        await run_to_end(lambda: log.note_source(look.mark))
        if look.note:
            _LOG.warning("query %s: %s", name, look.note)
        return
    old, new = "another source" if known is None else described(known), described(look.mark)
    if outstanding:
        events = sum(run.last_seq - run.first_seq + 1 for run in outstanding)
        what = f"the source is {new} now, and {look.changed}"
        raise StateError(why_not_read_again(name, place.folder, what, old, events))
    await run_to_end(look.reset)
    kept = look.kept(position)
    await run_to_end(lambda: log.begin_source(look.mark, kept, wall_s))
    text = "query %s: its state is from %s, and the source is now %s (%s): all that was read is in the sink, and %s"
    where = "it begins where start says" if isinstance(look.mark, KafkaMark) else "it is read from its start"
    if isinstance(look.mark, StreamsMark):
        where = "of several sources those that are others now are read from their start"
    _LOG.warning(text, name, old, new, look.changed, f"{where}, as seq {log.next_seq}")
