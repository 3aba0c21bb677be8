"""The owner of the state in a query's folder, and the definition with which its last runs were read."""

from __future__ import annotations

import hashlib
import secrets
import shutil
import socket
from pathlib import Path
from typing import Final

import msgspec

from engines.query.code import CodeError, former_hash, query_hash
from infra.messages import APPEND, EventStream, EventTime, KeyPart, OpenQuery, OutputMode, SelectionRule, StaticTable
from infra.statefiles import StateError, make_folder, write_atomically

NAME: Final = "query.json"
_CHECKPOINTS: Final = "checkpoints"
_PART: Final = "part-"


class Identity(msgspec.Struct, frozen=True, omit_defaults=True):
    """The owner of a query's state.

    Attributes:
        owner: names the state.
        code_hash: the hash of SQL, schema, event time, output, tables and code.
        epoch: counts the gateways that opened it; in a fleet it begins anew, higher, with each owner.
        sql: the definition with which every run in the log was read; empty, like the next two, in state of an older
            version.
        function: the same.
        schema_ddl: the same.
        event_time: the same.
        streams: the same.
        output: the same.
        tables: the same.
        part: the same; it says how the query is divided.
        selections: the same.
        state: counts the definitions whose state was discarded; each has its own checkpoint folder.
        begin_seq: where a stateful query of this definition begins.
        place: names this folder, unlike ``owner``, which a fleet's gateways share; empty in state of an older version.
        shared: the folder that the checkpoints are in (``private.spark.checkpoints``); empty if they are in this one.
    """

    owner: str
    code_hash: str
    epoch: int
    sql: str = ""
    function: str = ""
    schema_ddl: str = ""
    event_time: EventTime | None = None
    streams: tuple[EventStream, ...] = ()
    output: OutputMode = APPEND
    tables: tuple[StaticTable, ...] = ()
    part: KeyPart | None = None
    selections: SelectionRule | None = None
    state: int = 0
    begin_seq: int = 0
    place: str = ""
    shared: str = ""

    def is_of(self, definition: OpenQuery) -> bool:
        """Whether the state belongs to this definition, by today's hash or by that of an earlier version.

        Raises:
            CodeError: the function's module cannot be found.
        """
        return self.code_hash in (query_hash(definition), former_hash(definition))

    def definition(self, now: OpenQuery) -> OpenQuery | None:
        """Return the definition of the state, if it was stored, and its code and its tables are there. Blocks.

        Args:
            now: the present definition; it says where the code is found.
        """
        old = msgspec.structs.replace(
            now,
            sql=self.sql,
            function=self.function,
            schema_ddl=self.schema_ddl,
            event_time=self.event_time,
            streams=self.streams,
            output=self.output,
            tables=self.tables,
            part=self.part,
            selections=self.selections,
        )
        try:
            there = bool(self.schema_ddl) and all(Path(table.path).exists() for table in self.tables)
            return old if there and self.is_of(old) else None
        except CodeError:
            return None


def read_identity(folder: Path) -> Identity | None:
    """Return the identity of the state in ``folder``; None if there is none. Blocks.

    Raises:
        StateError: it cannot be read.
    """
    path = folder / NAME
    if not path.exists():
        return None
    try:
        return msgspec.json.decode(path.read_bytes(), type=Identity)
    except msgspec.DecodeError as error:
        raise StateError(f"{path} cannot be read ({error}): restore it from a backup") from error


def claim(
    folder: Path, definition: OpenQuery, owner: str = "", least_epoch: int = 0, shared: Path | None = None
) -> Identity:
    """Return the identity of the state in ``folder``, which belongs to ``definition``, with the next epoch. Blocks.

    Without a state a new one is created.

    Args:
        folder: the query's part of the state_dir.
        definition: the definition with which the query is opened.
        owner: of new state; empty for a random one.
        least_epoch: the epoch is at least this.
        shared: ``private.spark.checkpoints``.

    Raises:
        StateError: the identity cannot be read, or its checkpoints are in another place than ``shared``.
        CodeError: the function's module cannot be found.
        OSError: the disk fails.
    """
    old = read_identity(folder)
    if old is None:
        make_folder(folder)
        old = Identity(owner or secrets.token_hex(8), "", 0)
    if why := why_not_there(folder, old, shared):
        raise StateError(why)
    old = msgspec.structs.replace(old, shared=_text(shared))
    return _save(folder, old, definition, least_epoch)


def why_not_there(folder: Path, identity: Identity, shared: Path | None) -> str:
    """Return why a query cannot continue with the present ``private.spark.checkpoints``; empty if it can. Blocks."""
    if identity.shared == _text(shared) or not holds_state(folder, identity):
        return ""
    now = f"is {shared}" if shared else "is not set"
    restore = f"set it to {identity.shared}" if identity.shared else "remove it"
    return (
        f"query {folder.name}: its state is in {checkpoints(folder, identity)}, and private.spark.checkpoints {now}: "
        f"a checkpoint cannot be moved. To go on with the state, {restore}; or remove {folder} and choose an empty "
        "sink folder, to begin anew from the source's start"
    )


def redefine(folder: Path, old: Identity, definition: OpenQuery, begin_seq: int) -> None:
    """Continue the state with another definition from ``begin_seq`` on, without the old checkpoints. Blocks.

    One write changes it: before it the state belongs to the old definition, after it to the new one. The sink must hold
    the results of every run in the log.

    Raises:
        OSError: the disk fails.
    """
    _save(folder, msgspec.structs.replace(old, state=old.state + 1, begin_seq=begin_seq), definition)


def _save(folder: Path, identity: Identity, definition: OpenQuery, least_epoch: int = 0) -> Identity:
    saved = msgspec.structs.replace(
        identity,
        code_hash=query_hash(definition),
        epoch=max(identity.epoch + 1, least_epoch),
        sql=definition.sql,
        function=definition.function,
        schema_ddl=definition.schema_ddl,
        event_time=definition.event_time,
        streams=definition.streams,
        output=definition.output,
        tables=definition.tables,
        part=definition.part,
        selections=definition.selections,
        place=identity.place or secrets.token_hex(8),
    )
    write_atomically(folder / NAME, msgspec.json.encode(saved))
    return saved


def checkpoints(folder: Path, identity: Identity) -> Path:
    """Return the folder in which a stateful query keeps its state."""
    first = _first_checkpoints(folder, identity)
    return first.with_name(f"{first.name}-{identity.state}") if identity.state else first


def checkpoints_of_a_trial(folder: Path, shared: Path | None) -> Path:
    """Return an empty place for the checkpoints of a query that is only tried out. Blocks."""
    if shared is None:
        make_folder(folder)
        place = folder / f"warm-{_CHECKPOINTS}"
    else:
        here = hashlib.sha256(f"{socket.gethostname()}:{folder}".encode()).hexdigest()
        place = shared / f"{folder.name}-warm-{here[:16]}"
    shutil.rmtree(place, ignore_errors=True)
    return place


def holds_state(folder: Path, identity: Identity) -> bool:
    """Whether a stateful query has left a checkpoint. Blocks."""
    base = checkpoints(folder, identity)
    return any(any(base.glob(f"{of}[0-9]*/offsets/[0-9]*")) for of in ("", f"{_PART}*/"))


def checkpoints_of_part(base: Path, part: KeyPart | None) -> Path:
    """Return the folder of a part's checkpoints, in that of its query; ``base`` if the query is not divided."""
    return base if part is None else base / f"{_PART}{part.index}"


def remove_old_checkpoints(folder: Path, identity: Identity) -> None:
    """Remove the checkpoints of earlier definitions. Blocks.

    Raises:
        OSError: the disk fails.
    """
    kept, first = checkpoints(folder, identity), _first_checkpoints(folder, identity)
    for path in {*folder.glob(f"{_CHECKPOINTS}*"), *first.parent.glob(f"{first.name}*")}:
        if path != kept:
            shutil.rmtree(path)


def _first_checkpoints(folder: Path, identity: Identity) -> Path:
    """Return the checkpoints of the first definition; those of later ones are beside them."""
    if not identity.shared:
        return folder / _CHECKPOINTS
    # Other gateways may use the same folder, and queries of the same name.
    return Path(identity.shared, f"{folder.name}-{identity.place}")


def _text(shared: Path | None) -> str:
    return "" if shared is None else str(shared)
