"""``spillway check``: the state that a query would find. It takes no lock: a gateway may be running."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from engines.query.code import CodeError
from gateway.config.codepath import code_path_for
from gateway.config.models import (
    Config,
    FileSinkConfig,
    KafkaSourceConfig,
    QueryConfig,
    QuerySourceConfig,
    S3SourceConfig,
    SeveralSources,
    SourceConfig,
)
from gateway.connectors.position import Position
from gateway.query.flow.runlog import LogHead, RunRecord, peek
from gateway.query.identity import Identity, holds_state, read_identity, why_not_there
from gateway.query.looking import look_here
from gateway.query.opening import TABLES, definition_of
from gateway.query.takingover import not_in, why_not_finished, why_not_read_again, why_state_is_kept
from gateway.sinks.parts import manifest
from gateway.sources.choose import stream_folder
from gateway.sources.marks import Look, Mark, described, look_at_results, looks_together, mark_of
from infra.messages import OpenQuery
from infra.rows.base import SourceError
from infra.statefiles import StateError


@dataclass(frozen=True)
class Found:
    """What will happen to a query's state.

    Attributes:
        text: how it continues; empty if there is none.
        refusal: why the query would not be started; empty if it would.
    """

    text: str = ""
    refusal: str = ""


def look_at_state(config: Config, name: str) -> Found:
    """Return what would happen to a query's state. Blocks while it reads its source's files."""
    query = config.queries[name]
    folder = config.gateway.state_dir / "queries" / name
    definition = definition_of(name, query, code_path_for(query.function, config.folder), folder / TABLES)
    try:
        identity = read_identity(folder)
        log = peek(folder / "runs.log")
        if identity is None or log is None:
            return Found()
        return _State(name, query, folder, identity, *log).judged(definition, config)
    except (StateError, SourceError, CodeError, OSError) as error:
        return Found(refusal=str(error))


@dataclass(frozen=True)
class _State:
    """The state of one query on disk."""

    name: str
    query: QueryConfig
    folder: Path
    identity: Identity
    head: LogHead
    runs: list[RunRecord]

    def judged(self, definition: OpenQuery, config: Config) -> Found:
        if why := why_not_there(self.folder, self.identity, config.private.spark.checkpoints):
            return Found(refusal=why)
        texts = [f"continues with seq {self._next_seq}"]
        outstanding, surely = self._outstanding()
        for found in (self._definition(definition, outstanding, surely), self._source(config, outstanding, surely)):
            if found.refusal:
                return found
            texts += [found.text] if found.text else []
        return Found("; ".join(texts))

    @property
    def _next_seq(self) -> int:
        return self.runs[-1].last_seq + 1 if self.runs else self.head.next_seq

    def _outstanding(self) -> tuple[list[RunRecord], bool]:
        """Return the runs that the sink lacks, and whether that is certain: only a folder can be checked."""
        if not isinstance(self.query.sink, FileSinkConfig):
            return self.runs, False
        done = manifest.peek(self.query.sink.path, self.identity.owner)
        return (self.runs if done is None else not_in(done, self.runs)), True

    def _definition(self, definition: OpenQuery, outstanding: list[RunRecord], surely: bool) -> Found:
        if self.identity.is_of(definition):
            return Found()
        stateful = holds_state(self.folder, self.identity)
        if stateful and not self.query.new_epoch:
            return Found(refusal=why_state_is_kept(self.name))
        text = "its definition changed: the new one begins there" + (", with empty state" if stateful else "")
        if not outstanding:
            return Found(text)
        if self.identity.definition(definition) is None:
            why = why_not_finished(self.name, self.folder)
            return Found(refusal=why) if surely else Found(f"{text}, unless the sink lacks what was read: then {why}")
        return Found(f"{text}, once the old one has finished what was read")

    def _source(self, config: Config, outstanding: list[RunRecord], surely: bool) -> Found:
        look = self._look(config, outstanding)
        if look is None:
            return Found()
        if not look.changed:
            return Found(look.note)
        known = self.head.source
        old = "another source" if known is None else described(known)
        text = f"its source was {old} ({look.changed}): the new one is read from its start"
        if not outstanding:
            return Found(text)
        events = sum(run.last_seq - run.first_seq + 1 for run in outstanding)
        what = f"the source is {described(look.mark)} now, and {look.changed}"
        why = why_not_read_again(self.name, self.folder, what, old, events)
        return Found(refusal=why) if surely else Found(f"{text}, unless the sink lacks what was read: then {why}")

    def _look(self, config: Config, outstanding: list[RunRecord]) -> Look | None:
        """Compare the source with what was read; None if only a broker or an object store could answer."""
        source, known = self.query.source, self.head.source
        position = self.runs[-1].end if self.runs else self.head.position
        needed = outstanding[0].start if outstanding else position
        if not isinstance(source, SeveralSources):
            return self._look_at(config, source, self.folder, known, needed)
        looks = {
            name: self._look_at(
                config, each, stream_folder(self.folder, name), mark_of(known, name), needed.of_stream(name)
            )
            for name, each in source.of.items()
        }
        seen = {name: look for name, look in looks.items() if look is not None}
        return looks_together(seen, known) if len(seen) == len(looks) else None

    def _look_at(
        self, config: Config, source: SourceConfig, folder: Path, known: Mark | None, needed: Position
    ) -> Look | None:
        if isinstance(source, KafkaSourceConfig | S3SourceConfig):
            return None
        if isinstance(source, QuerySourceConfig):
            upstream = read_identity(config.gateway.state_dir / "queries" / source.name)
            return None if upstream is None else look_at_results(source.name, upstream.owner, known)
        return look_here(source, folder, known, needed)
