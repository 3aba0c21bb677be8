"""What the next owner of a fleet needs to continue a query on another machine: it is stored with each commit.

See docs/decisions/0098-the-sink-stores-what-the-next-owner-needs.md.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from gateway.config.models import (
    FileSourceConfig,
    HttpSourceConfig,
    KafkaSinkConfig,
    MqttSourceConfig,
    QueryConfig,
    QuerySourceConfig,
    S3SinkConfig,
    SourceConfig,
)
from gateway.connectors.position import Position
from gateway.core.intervals import IntervalSet
from gateway.query.flow.runlog import LogHead, RunLog, RunRecord, peek, replace_log
from infra.objectstore.base import ObjectStore
from infra.statefiles import StateError

_LOG = logging.getLogger(__name__)
EPOCHS_PER_OWNER: Final = 10**9
"""An owner of the fleet opens a query less often than this."""


@dataclass(frozen=True, slots=True)
class OwningFleet:
    """What a query must know of the fleet that owns it.

    Attributes:
        epoch: returns the epoch of this gateway's lease, which is higher than that of every earlier owner.
        agreed: called with a name and a value, it returns the value that the whole fleet uses under that name: the
            first one that was given. It blocks, and raises StateError.
        name: of the fleet.
        store: its object store.
    """

    epoch: Callable[[], int]
    agreed: Callable[[str, str], str]
    name: str
    store: ObjectStore

    @property
    def least_epoch(self) -> int:
        """The first epoch with which this owner may open a query."""
        return self.epoch() * EPOCHS_PER_OWNER


def why_it_stays(config: QueryConfig, *, stateful: bool) -> str:
    """Return why only the gateway with a query's state_dir can continue it; empty if each one of the fleet can.

    Args:
        config: the query's config.
        stateful: whether its plan keeps state.
    """
    if not isinstance(config.sink, KafkaSinkConfig | S3SinkConfig):
        return f"a {config.sink.type} sink does not store where the query stands"
    if config.selection_rule is not None:
        return "which events its open selections have is only in its run log"
    if why := next(filter(None, map(_why_source_stays, config.inputs.values())), ""):
        return why
    return "it keeps state (open windows, aggregates)" if stateful else ""


def _why_source_stays(source: SourceConfig) -> str:
    if isinstance(source, HttpSourceConfig | MqttSourceConfig) and not source.journal.replicate:
        return (
            f"the journal of its {source.type} source holds events that senders do not send again, and is not copied "
            "to the object store (journal: {replicate: true})"
        )
    if isinstance(source, FileSourceConfig) and source.path.is_dir():
        return "the list of the files that it has read is kept there; that of an s3 source is in the object store"
    if isinstance(source, QuerySourceConfig):
        return f"it reads the results of query {source.name}, which are files"
    return ""


class StoredLog(msgspec.Struct, frozen=True, omit_defaults=True):
    """The part of a run log that committed results depend on.

    Attributes:
        place: the state_dir that the log is in.
        head: at the watermark; None for a query that cannot be continued elsewhere, see ``why_it_stays``.
        runs: from there to the last committed one; neighbours that are committed are one.
    """

    place: str
    head: LogHead | None = None
    runs: list[RunRecord] = []


def stored_log(place: str, head: LogHead, runs: Sequence[RunRecord], committed: IntervalSet) -> StoredLog:
    """Return what a gateway without this log needs, once ``committed`` is committed.

    Args:
        place: the state_dir that the log is in.
        head: of the log.
        runs: of the log, by seq.
        committed: what the sink holds; whole runs.
    """
    kept: list[RunRecord] = []
    last_is_done = True
    for run in runs:
        done = committed.covers(run.first_seq, run.last_seq)
        if done and last_is_done and not kept:
            shed = head.shed + run.shed + run.shed_before
            head = msgspec.structs.replace(
                head, next_seq=run.last_seq + 1, position=run.end, newest=run.newest, shed=shed
            )
        elif done and last_is_done:
            kept[-1] = _joined(kept[-1], run)
        else:
            kept.append(run)
        last_is_done = done
    if not last_is_done:
        # Nobody has seen anything of the runs at the end: the next owner cuts their events anew.
        kept = kept[: next((i + 1 for i in reversed(range(len(kept))) if _is_in(committed, kept[i])), 0)]
    return StoredLog(place, head, kept)


def _is_in(committed: IntervalSet, run: RunRecord) -> bool:
    return committed.covers(run.first_seq, run.last_seq)


def _joined(one: RunRecord, other: RunRecord) -> RunRecord:
    """Return two committed runs as one; it is never cut again, only counted."""
    shed = one.shed + other.shed + other.shed_before
    return msgspec.structs.replace(one, last_seq=other.last_seq, end=other.end, newest=other.newest, shed=shed)


def taken_over(stored: StoredLog, owner: str) -> tuple[LogHead, list[RunRecord]]:
    """Return the log with which a gateway elsewhere continues. Dead letters that were replayed stay where they were.

    Args:
        stored: with a head.
        owner: identity of the state that numbers the seqs.
    """
    assert stored.head is not None, "a log that can be taken over has a head"
    head = msgspec.structs.replace(stored.head, owner=owner, position=_without_replays(stored.head.position))
    return head, [_readable(run) for run in stored.runs]


def _readable(run: RunRecord) -> RunRecord:
    """Return a run without the count of replayed letters, unless it consists of them: then nobody can read it here."""
    if run.start.replayed != run.end.replayed:
        return run
    return msgspec.structs.replace(run, start=_without_replays(run.start), end=_without_replays(run.end))


def _without_replays(position: Position) -> Position:
    return msgspec.structs.replace(position, replayed=0)


class RunLogHandover:
    """The ``Handover`` of one query, from opening its sink to closing it.

    Args:
        query: its name, for messages.
        place: names this gateway's state_dir.
        stays: why a gateway elsewhere cannot continue the query; empty if it can.
    """

    def __init__(self, query: str, place: str, *, stays: str = "") -> None:
        self._query = query
        self._place = place
        self._stays = stays
        self._found: StoredLog | None = None
        self._log: RunLog | None = None

    def found(self, stored: bytes) -> None:
        """See ``Handover.found``.

        Raises:
            StateError: it is not a handover.
        """
        try:
            self._found = msgspec.json.decode(stored, type=StoredLog | None)
        except msgspec.DecodeError as error:
            raise StateError(
                f"query {self._query}: what its sink stores for the next owner of the fleet cannot be read ({error}): "
                "update this gateway to the version of the one that wrote it"
            ) from error

    def after(self, committed: IntervalSet) -> bytes:
        """See ``Handover.after``; the log is open by then."""
        assert self._log is not None, "results are committed only while the run log is open"
        if self._stays:
            return msgspec.json.encode(StoredLog(self._place))
        return msgspec.json.encode(stored_log(self._place, *self._log.content(), committed))

    def open_log(self, path: Path, head: LogHead, committed: IntervalSet) -> RunLog:
        """Open the run log that belongs to what is committed: the one here, or one made from the handover. Blocks.

        Args:
            path: of the log.
            head: of a new log.
            committed: what the sink holds.

        Raises:
            StateError: only another state_dir has it, or it is damaged.
        """
        if not self._is_here(path, committed):
            if self._found is None or self._found.head is None:
                raise StateError(self._why_not_here())
            replace_log(path, *taken_over(self._found, head.owner))
            _LOG.warning("query %s: continues where another gateway of the fleet has stopped", self._query)
        self._log = RunLog(path, head)
        return self._log

    def _is_here(self, path: Path, committed: IntervalSet) -> bool:
        if not len(committed):
            return True
        if self._found is not None and self._found.place != self._place:
            return False
        local = peek(path)
        if local is None:
            return False
        head, runs = local
        return all(last < (runs[-1].last_seq + 1 if runs else head.next_seq) for _, last in committed)

    def _why_not_here(self) -> str:
        if self._found is None:
            return (
                f"query {self._query}: its sink holds results, but not where they end in the source: they were written "
                "by an earlier version, or without a fleet. Start it once with the state_dir that wrote them"
            )
        stays = self._stays or "it was started with another definition there"
        return (
            f"query {self._query} can only be continued with the state_dir of another gateway of the fleet ({stays}): "
            "start that gateway again, or move its state_dir to this machine"
        )
