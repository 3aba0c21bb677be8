"""What becomes of the state of an earlier start when the query or its source is another one now.

Nothing of it is skipped in silence: what was read and is not in the sink is finished first, by the definition and from
the source that it was read with; where that cannot be, the start is refused with what to do.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from engines.query.code import query_hash
from gateway.config.models import FileSinkConfig, QueryConfig
from gateway.core.intervals import IntervalSet
from gateway.hosts.connection import Connection
from gateway.query import looking
from gateway.query.flow.runlog import LogHead, RunLog, RunRecord
from gateway.query.identity import Identity, claim, holds_state, read_identity, redefine, remove_old_checkpoints
from gateway.query.opening import Opener
from gateway.sources.marks import KafkaMark, described
from infra.clock import Clock
from infra.link.channel import LinkLost
from infra.statefiles import StateError
from infra.threads import run_to_end

_LOG = logging.getLogger(__name__)

_POLL_S = 0.05


class Deliverer(Protocol):
    """A query as its state is taken over: see ``RunningQuery``."""

    async def committed(self, identity: Identity) -> IntervalSet:
        """Return what the sink holds of the state's results; the query is not open."""
        ...

    async def begin(self, home: Connection, opener: Opener, identity: Identity, *, only_finish: bool = False) -> None:
        """Open it on a host; with ``only_finish`` nothing new is read."""
        ...

    @property
    def drained(self) -> bool:
        """Whether nothing more is read, and all that was read is committed."""
        ...

    def failure(self) -> BaseException | None:
        """Return why it cannot go on, if it cannot."""
        ...

    async def stop(self) -> None:
        """End what was begun."""
        ...


@dataclass(frozen=True, slots=True)
class TakeOver:
    """The state that a query finds when it is opened.

    Attributes:
        name: the query's.
        config: what the user wrote.
        folder: its part of the state_dir.
        opener: opens it by the present definition.
        clock: time.
    """

    name: str
    config: QueryConfig
    folder: Path
    opener: Opener
    clock: Clock

    async def identity(self, home: Connection, deliverer: Deliverer) -> Identity:
        """Return the identity to go on with, once nothing is left of another definition.

        Args:
            home: the host, which says whether the new definition can be opened at all.
            deliverer: delivers what was read by an old definition.

        Raises:
            StateError: the state cannot be taken over; the message says what to do.
            QueryRefusedError: the new definition cannot be opened; the state is as it was.
        """
        old = await run_to_end(lambda: read_identity(self.folder))
        if old is not None and not old.is_of(self.opener.definition):
            await self._change(old, home, deliverer)
        identity = await run_to_end(lambda: claim(self.folder, self.opener.definition))
        try:
            await run_to_end(lambda: remove_old_checkpoints(self.folder, identity))
        except OSError as error:
            # An engine that just ends may still write there.
            _LOG.warning(
                "query %s: old checkpoints could not be removed, the next start removes them: %s", self.name, error
            )
        return identity

    async def _change(self, old: Identity, home: Connection, deliverer: Deliverer) -> None:
        # Whether it can run at all is known before anything of the old one is given up.
        await self.opener.warm(home, await run_to_end(lambda: query_hash(self.opener.definition)))
        stateful = await run_to_end(lambda: holds_state(self.folder, old))
        if stateful and not self.config.new_epoch:
            raise StateError(why_state_is_kept(self.name))
        definition = old.definition(self.opener.definition)
        if definition is not None:
            old = await run_to_end(lambda: claim(self.folder, definition))
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
        await home.close_query(self.name, old.epoch)

    async def _log(self, old: Identity) -> RunLog:
        """Return what is in the run log, closed."""
        log = await run_to_end(lambda: RunLog(self.folder / "runs.log", LogHead(old.owner, self.clock.wall())))
        await run_to_end(log.close)
        return log


def not_in(done: IntervalSet, runs: list[RunRecord], resume_seq: int | None = None) -> list[RunRecord]:
    """Return the runs that are asked for again.

    Args:
        done: what the sink holds.
        runs: those in the log.
        resume_seq: where a stateful query goes on; it wants every run from there on.
    """
    return [
        run
        for run in runs
        if not done.covers(run.first_seq, run.last_seq) or (resume_seq is not None and run.first_seq >= resume_seq)
    ]


def why_state_is_kept(name: str) -> str:
    """Say why a stateful query is not changed without a word of the user's."""
    return (
        f"query {name}: its definition changed, and it holds state (open windows, aggregates) that only the old one "
        "can go on with. Bring the old definition back; or set new_epoch: true in the query, which gives the state up: "
        "what was read is finished, and the new definition begins with the next event and empty state"
    )


def why_not_finished(name: str, folder: Path) -> str:
    """Say why what was read by a definition that is gone cannot be finished."""
    return (
        f"query {name}: its definition changed, events were read that are not in the sink yet, and the old definition "
        "is not there to finish them (its function's source changed, or an earlier version kept no copy). Bring the "
        "old one back, run until it is drained (spillway run CONFIG --until-drained), and change it then; or remove "
        f"{folder} and choose an empty sink folder, to begin anew from the source's start"
    )


def why_not_read_again(name: str, folder: Path, look: str, old: str, events: int) -> str:
    """Say why another source is not begun while events of the old one are outstanding."""
    return (
        f"query {name}: {events} events that were read from {old} are not in the sink yet, and cannot be read again: "
        f"{look}. Bring the old source back, run until it is drained (spillway run CONFIG --until-drained), and change "
        f"it then; or remove {folder} and choose an empty sink folder, to begin anew from the source's start"
    )


async def settle_source(
    name: str,
    config: QueryConfig,
    folder: Path,
    log: RunLog,
    done: IntervalSet,
    resume_seq: int | None,
    wall_s: float,
) -> None:
    """See whether the source is the one that the log's positions are of; begin another one at its start.

    The order of the writes: first what the source itself keeps of the old one (the list of a folder's files) goes, then
    one write of the log's head takes mark and position. A crash between finds the log with the old mark, and a source
    that is not of it: the same is done again. No run of the new source is logged before.

    Args:
        name: the query's.
        config: what the user wrote.
        folder: its part of the state_dir.
        log: its run log, of which nothing was read again yet.
        done: what the sink holds.
        resume_seq: where a stateful query goes on.
        wall_s: now, s since 1970.

    Raises:
        StateError: events of the old source are outstanding.
        SourceError: the source cannot be read; SourceUnavailableError or OSError: not now.
    """
    outstanding = not_in(done, log.runs, resume_seq)
    known, position = log.head.source, log.position
    look = await looking.look(config.source, folder, known, outstanding[0].start if outstanding else position)
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
        raise StateError(why_not_read_again(name, folder, what, old, events))
    await run_to_end(look.reset)
    kept = look.kept(position)
    await run_to_end(lambda: log.begin_source(look.mark, kept, wall_s))
    text = "query %s: its state is from %s, and the source is now %s (%s): all that was read is in the sink, and %s"
    where = "it begins where start says" if isinstance(look.mark, KafkaMark) else "it is read from its start"
    _LOG.warning(text, name, old, new, look.changed, f"{where}, as seq {log.next_seq}")
