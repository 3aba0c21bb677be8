"""Opens a query on an engine host."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from copy import copy
from pathlib import Path
from typing import Final

import msgspec

from engines.query.code import query_hash
from engines.spark.sparkconf import is_local
from gateway.config.models import PrivateConfig, QueryConfig
from gateway.hosts.connection import Connection, Listener, QueryRefusedError
from gateway.hosts.databases import DatabaseCopies
from gateway.hosts.shipping import TableVersions
from gateway.query.audit import AuditLog
from gateway.query.flow.keyed.parts import part_name
from gateway.query.flow.referring.paths import asked, data_path, log_path, names_events, reading_of
from gateway.query.flow.run import BATCH_RUNS_MAX
from gateway.query.hosting.opening import Opening
from gateway.query.identity import Identity, checkpoints, checkpoints_of_a_trial, checkpoints_of_part
from infra.clock import Clock
from infra.link.keys.secret_files import create_private
from infra.messages import KeyPart, OpenQuery, QueryReady, direct_name, state_folder
from infra.payload.sealing import SECRET_BYTES, FieldKeys
from infra.threads import run_to_end
from policies.signals import HOME

_OPEN_DEADLINE_S = 120.0
KEY: Final = "fields.key"
"""Within a query's folder: the secret of its sealed fields."""
TABLES: Final = "tables"
"""Within a query's folder: the copies of its database tables."""
DIRECT: Final = "direct"
"""Within a query's folder: an empty file, while Spark may have delivered what the gateway must not deliver again."""
AUDIT: Final = "audit"
"""Within a query's folder: its audit log."""


def definition_of(name: str, config: QueryConfig, code_path: str, copies: Path) -> OpenQuery:
    """Return a query's definition for hosts.

    Args:
        name: the query's.
        config: the query's config.
        code_path: the folder of the user's functions.
        copies: the folder with the copies of database tables.
    """
    return OpenQuery(
        query=name,
        epoch=0,
        schema_ddl=config.schema_ddl,
        sql=config.query_sql,
        function=config.function or "",
        event_time=config.watermark,
        streams=config.streams,
        output=config.output.wanted,
        keep_late=config.keep_late,
        code_path=code_path if config.function else "",
        bad_rows_most=config.dead_letters.bad_rows_most,
        tables=tuple(table.declared(each, copies) for each, table in config.tables.items()),
        part=config.part,
        selections=config.selection_rule,
    )


class Opener:
    """Opens one query on hosts.

    Args:
        name: the query's.
        config: the query's config.
        folder: its part of the state_dir.
        code_path: the folder of the user's functions, or empty.
        private: its Spark says where the state of stateful queries is, and ``data_path`` who reads at home.
        clock: time, for the audit log.
        on_failed: called with (lane, reason) when the query fails on a host before it has a lane.

    Attributes:
        definition: with which the query is opened.
        tables: the versions of the static tables that it reads, on all hosts.
    """

    def __init__(
        self,
        name: str,
        config: QueryConfig,
        folder: Path,
        code_path: str,
        private: PrivateConfig,
        clock: Clock,
        on_failed: Callable[[str, str], None],
    ) -> None:
        self._config = config
        self._private, self._spark = private, private.spark
        self._names = names_events(config, private, was_carried=(folder / DIRECT).exists())
        self._folder = folder
        self._clock = clock
        self._audit = AuditLog(folder / AUDIT)
        self._on_failed = on_failed
        copies = folder / TABLES
        self._copies = DatabaseCopies(name, config.tables, copies, private.spark.settings, clock)
        self.define(definition_of(name, config, code_path, copies))

    @property
    def shared(self) -> Path | None:
        """Where the checkpoints are, if not in the query's folder."""
        return self._spark.checkpoints

    def of(self, definition: OpenQuery) -> Opener:
        """Return an opener of the same query with another definition, whose tables are as they were read last."""
        other = copy(self)
        other.define(definition, up_to_date=False)
        return other

    def carried(self, identity: Identity, part: str) -> OpenQuery:
        """Return the request by which home carries a part of the query from Kafka to Kafka, without its flow."""
        return msgspec.structs.replace(
            self.definition,
            query=direct_name(self.definition.query, part),
            epoch=identity.epoch,
            code_hash=identity.code_hash,
            reads=reading_of(self._config, self._private),
            names_events=True,
        )

    @property
    def parts(self) -> tuple[Opener, ...]:
        """An opener of each part, by which hosts know a divided query; of the whole query if it is not divided."""
        whole, part = self.definition, self.definition.part
        if part is None:
            return (self,)
        return tuple(self._of_part(whole, msgspec.structs.replace(part, index=index)) for index in range(part.parts))

    def _of_part(self, whole: OpenQuery, part: KeyPart) -> Opener:
        other = copy(self)  # with the same versions of the tables
        name = part_name(whole.query, part.index)
        other.definition = msgspec.structs.replace(whole, query=name, part=part)
        return other

    def define(self, definition: OpenQuery, *, up_to_date: bool = True) -> None:
        """Open it with this definition from now on, and with the tables that it declares.

        Args:
            definition: of the query.
            up_to_date: whether its database tables are read anew.
        """
        self.definition = definition
        self.tables = TableVersions(definition.query, definition.tables, self._copies if up_to_date else None)

    async def open_at(
        self, connection: Connection, identity: Identity, *, copied_to: str = "", batch_ends: tuple[int, ...] = ()
    ) -> Opening:
        """Open the query; on a VM, first note in the audit log what it may get.

        Args:
            connection: to the host.
            identity: of the query's state.
            copied_to: where a VM has the copy of the checkpoint of a stateful query.
            batch_ends: see ``OpenQuery``.

        Raises:
            QueryRefusedError: as ``Connection.open_query`` does; on a VM also if protected fields keep the query at
                home, or if the audit log or the keys cannot be written.
            LinkLost: the link was lost.
            TimeoutError: no answer in time.
        """
        home, private = connection.name == HOME, self._private
        compressed = not home and self._config.payload.compress != "none"
        message = msgspec.structs.replace(
            self.definition,
            epoch=identity.epoch,
            tables=await self.tables.at(connection),
            code_hash=identity.code_hash,
            max_batch_runs=self._batch_runs_most,
            checkpoint_dir=self._folder_for(checkpoints(self._folder, identity)) if home else copied_to,
            batch_ends=batch_ends,
            begin_seq=identity.begin_seq,
            shares_host=connection.shared,
            result_codec="zstd" if compressed else "none",
            reads=reading_of(self._config, private) if home and asked(private, self._config) == "reference" else None,
            names_events=self._names,
        )
        opening = Opening(
            connection,
            self._config.payload,
            self._on_failed,
            divided=self.definition.part is not None,
            selects=self.definition.selections is not None,
        )
        # The listener is set before the answer, so that it misses no message right after it.
        opening.opened(await self._open(connection, message, opening.on_message))
        ready = opening.ready
        if home:
            opening.path = data_path(private, self._config, ready)
            log_path(message.query, opening.path)
        else:
            try:
                await run_to_end(lambda: self._allow(opening, connection.name, identity.epoch))
            except QueryRefusedError:
                await connection.close_query(message.query, message.epoch)
                raise
        return opening

    def checkpoints(self, identity: Identity) -> Path:
        """Return where the state is at home."""
        return checkpoints_of_part(checkpoints(self._folder, identity), self.definition.part)

    def _folder_for(self, base: Path) -> str:
        """Return the folder for a start at home, as the host gets it; that of a part is in a folder of the query."""
        part = self.definition.part
        if part is not None:
            try:
                base.mkdir(exist_ok=True)
            except OSError as error:
                raise QueryRefusedError(f"{self.definition.query} needs a folder for its state: {error}") from error
        return self._reachable(checkpoints_of_part(base, part))

    @property
    def _batch_runs_most(self) -> int:
        """How many runs a micro-batch may have: the micro-batches of all parts must be the same, so each is a run."""
        return BATCH_RUNS_MAX if self.definition.part is None else 1

    async def _open(self, connection: Connection, message: OpenQuery, listener: Listener) -> QueryReady:
        try:
            return await connection.open_query(message, listener, _OPEN_DEADLINE_S)
        except QueryRefusedError:
            self.tables.forget(connection)
            raise

    def _allow(self, opening: Opening, vm: str, epoch: int) -> None:
        """Prepare what leaves for a VM: the keys, and a line in the audit log. Blocks."""
        crossing, name = opening.crossing, self.definition.query
        if crossing.reason:
            raise QueryRefusedError(f"{name} stays at home: {crossing.reason}")
        try:
            if crossing.sealed:
                secret = create_private(self._folder / KEY, secrets.token_bytes(SECRET_BYTES))
                opening.keys = FieldKeys(secret, name)
            self._audit.note(self._clock.wall(), name, vm, epoch, crossing.forms)
        except (OSError, ValueError) as error:
            raise QueryRefusedError(f"{name} stays at home: {self._folder}: {error}") from error

    async def warm(self, connection: Connection, code_hash: str | None = None) -> None:
        """Run the query once without events on a host where it is not open, and remove it there.

        Args:
            connection: to the host.
            code_hash: of the query; None for that of the present code.

        Raises:
            CodeError: the function's module cannot be found.
            QueryRefusedError: the host cannot open it.
            LinkLost: the link was lost.
            TimeoutError: no answer in time.
        """
        folder = await run_to_end(lambda: checkpoints_of_a_trial(self._folder, self.shared))
        if code_hash is None:
            code_hash = await run_to_end(lambda: query_hash(self.definition))
        message = msgspec.structs.replace(
            self.definition,
            tables=await self.tables.at(connection),
            code_hash=code_hash,
            max_batch_runs=self._batch_runs_most,
            names_events=self._names,
            checkpoint_dir=self._folder_for(folder)
            if connection.name == HOME
            else state_folder(self.definition.query, "0"),
        )
        await self._open(connection, message, lambda *_: None)
        await connection.close_query(message.query, message.epoch)

    async def newer_tables(self, home: Connection) -> TableVersions | None:
        """Return the present versions of the tables, if they are new and the query can be opened with them.

        Raises:
            QueryRefusedError: they cannot be read, or not be used.
            LinkLost: the link was lost.
            TimeoutError: no answer in time.
        """
        found = await self.tables.newer()
        if found is None:
            return None
        await self._check(home, found)
        return found

    async def check(self, home: Connection) -> None:
        """Check that the home host can run the query; it may be open there.

        Raises:
            CodeError: the function's module cannot be found.
            QueryRefusedError: it cannot.
            LinkLost: the link was lost.
            TimeoutError: no answer in time.
        """
        await self._check(home, self.tables)

    async def _check(self, home: Connection, tables: TableVersions) -> None:
        code_hash = await run_to_end(lambda: query_hash(self.definition))
        sent = await tables.at(home)
        told = {"tables": sent, "code_hash": code_hash, "analyse_only": True, "names_events": self._names}
        asked = msgspec.structs.replace(self.definition, **told)
        try:
            await home.open_query(asked, lambda *_: None, _OPEN_DEADLINE_S)
        except QueryRefusedError:
            tables.forget(home)
            raise
        await home.close_query(asked.query, asked.epoch)

    def _reachable(self, folder: Path) -> str:
        """Return a folder for checkpoints; empty if executors do not see it: then hosts refuse stateful queries."""
        return str(folder) if self.shared or is_local(self._spark.master) else ""
