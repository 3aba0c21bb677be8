"""Keeps the tables that a query reads from databases as Parquet files, which are then tables like all others."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Final

import msgspec

from engines.databases.request import ANSWER, DatabaseTable, ReadTables, TablesRead
from gateway.config.connectors.tables import TableConfig, copy_of
from gateway.hosts.connection import QueryRefusedError
from infra.clock import Clock, SystemClock
from infra.payload.tablefiles import TableError
from infra.threads import run_to_end
from infra.together import wait_out

READ_MOST_S: Final = 300.0
_ENDS_S: Final = 10.0
_LOCK: Final = "databases.lock"
_NEW: Final = ".new-"
_LAST_BYTES: Final = 500
_LOG = logging.getLogger(__name__)


class DatabaseCopies:
    """Copies of the database tables of a query.

    Args:
        query: the query's name.
        tables: its tables; those of files are left alone.
        folder: for the copies.
        conf: settings of the Spark that reads them; among them where the JDBC drivers are.
        clock: tells which tables are to be read again.
        within_s: how long reading may take.
    """

    def __init__(
        self,
        query: str,
        tables: Mapping[str, TableConfig],
        folder: Path,
        conf: Mapping[str, str],
        clock: Clock,
        within_s: float = READ_MOST_S,
    ) -> None:
        self._query = query
        of_databases = {name: table for name, table in tables.items() if table.format == "jdbc"}
        self._tables = {name: _declared(name, table) for name, table in of_databases.items()}
        self._every_s = {name: table.refresh_s for name, table in of_databases.items() if table.refresh_s is not None}
        self._read_s: dict[str, float] = {}
        self._folder = folder
        self._conf = dict(conf)
        self._clock = clock
        self._within_s = within_s

    async def begin(self) -> None:
        """Read all tables; if that fails and there are copies of an earlier start, the query goes on with these.

        Raises:
            QueryRefusedError: a table cannot be read, and has no copy.
        """
        try:
            await self._read(self._tables)
        except QueryRefusedError as error:
            if not all(copy_of(self._folder, name).exists() for name in self._tables):
                raise
            _LOG.error("%s: the query goes on with the rows that were read before", error)

    async def update(self) -> None:
        """Read the tables whose ``refresh`` is over; a copy is replaced only if the rows are others.

        Raises:
            QueryRefusedError: one cannot be read. Then no copy is replaced.
        """
        now_s = self._clock.now()
        await self._read([name for name, every_s in self._every_s.items() if self._read_s[name] + every_s <= now_s])

    async def _read(self, names: Collection[str]) -> None:
        if not names:
            return
        self._read_s |= dict.fromkeys(names, self._clock.now())  # also if it fails: not at once again
        try:
            new = await run_to_end(self._new_folder)
            try:
                await self._read_into(new, names)
                await run_to_end(lambda: self._replace(new, names))
            finally:
                await run_to_end(lambda: shutil.rmtree(new, ignore_errors=True))
        except OSError as error:
            raise QueryRefusedError(f"query {self._query}: its copies of database tables: {error}") from error

    def _new_folder(self) -> Path:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for left in self._folder.glob(f"{_NEW}*"):  # by a gateway that was killed
            shutil.rmtree(left, ignore_errors=True)
        return Path(tempfile.mkdtemp(prefix=_NEW, dir=self._folder))

    async def _read_into(self, folder: Path, names: Collection[str]) -> None:
        # One program at a time for all queries of the gateway: each needs the memory of a Spark.
        lock = self._folder.parent.parent / _LOCK
        tables = tuple(self._tables[name] for name in names)
        request = ReadTables(
            tables=tables, folder=str(folder), lock=str(lock), conf=self._conf, within_s=self._within_s
        )
        with (folder / "log").open("w+b") as log:
            code = await _run(msgspec.json.encode(request), log)
            said = await run_to_end(lambda: _answer(folder))
            if said is None:
                raise QueryRefusedError(
                    f"query {self._query}: the program that reads its database tables ended with exit code {code}: "
                    f"{await run_to_end(lambda: _last_of(log))}"
                )
        if said.reason:
            which = f"table {said.failed}" if said.failed else "its database tables"
            raise QueryRefusedError(f"query {self._query}: {which}: {said.reason}")

    def _replace(self, new: Path, names: Collection[str]) -> None:
        for name in names:
            read, copy = new / f"{name}.parquet", copy_of(self._folder, name)
            if not copy.exists() or copy.read_bytes() != read.read_bytes():
                read.replace(copy)


def copy_databases(query: str, tables: Mapping[str, TableConfig], folder: Path, conf: Mapping[str, str]) -> None:
    """Read the database tables of a query once; see ``DatabaseCopies``. Blocks.

    Raises:
        TableError: one cannot be read.
    """
    try:
        asyncio.run(DatabaseCopies(query, tables, folder, conf, SystemClock()).begin())
    except QueryRefusedError as error:
        raise TableError(str(error)) from error


async def _run(request: bytes, log: IO[bytes]) -> int | None:
    """Run the program; a caller that is cancelled ends it, and Spark with it."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "engines.databases.reading",
        stdin=asyncio.subprocess.PIPE,
        stdout=log,
        stderr=log,
        start_new_session=True,
    )
    try:
        await process.communicate(request)
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await wait_out(process.wait(), _ENDS_S)
    return process.returncode


def _answer(folder: Path) -> TablesRead | None:
    try:
        return msgspec.json.decode((folder / ANSWER).read_bytes(), type=TablesRead)
    except FileNotFoundError:
        return None


def _last_of(log: IO[bytes]) -> str:
    size = log.seek(0, os.SEEK_END)
    log.seek(max(0, size - _LAST_BYTES))
    return log.read().decode(errors="replace").strip()


def _declared(name: str, table: TableConfig) -> DatabaseTable:
    login = table.login
    return DatabaseTable(
        name=name,
        url=table.url or "",
        query=table.query or "",
        table=table.table or "",
        user=login.user if login else "",
        password=login.password.get_secret_value() if login else "",
        driver=table.driver or "",
    )
