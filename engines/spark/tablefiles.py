"""The static tables that a gateway has sent to this host, and the views of them that queries read."""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Collection, Iterable
from pathlib import Path

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import input_file_name

from engines.spark.sparkconf import is_local
from engines.threads import in_thread
from infra.messages import OpenQuery, StaticTable, TablePart
from infra.payload.tablefiles import MAX_PACKED_BYTES, TableError, unpack

_log = logging.getLogger("spillway.host")

TABLES = "spillway-tables"
"""The folder of the tables; the plan of a query shows by it that a table is a declared one."""
_ARRIVING_MOST = 4
_BAD = "spillway_bad_line"
"""The column in which Spark puts a line that does not fit the schema."""
_SHOWN = 80


class TableFiles:
    """The versions of tables that are on this host.

    A version stays until the query that read it is opened with other versions, if no other query reads it. All are
    removed when the host begins.

    Args:
        workdir: of the host.
        held: gets the fingerprint of each complete version.

    Attributes:
        folder: where the versions are.
    """

    def __init__(self, workdir: Path, held: set[str]) -> None:
        self.folder = workdir / TABLES
        shutil.rmtree(self.folder, ignore_errors=True)
        self._held = held
        self._arriving: dict[str, bytearray] = {}
        self._failed: dict[str, str] = {}
        # Of each query the versions of its last opening, and of those that have failed since.
        self._used: dict[str, set[str]] = {}
        self._changed = asyncio.Condition()

    async def take(self, part: TablePart, payload: bytes) -> None:
        """Take the next part of a version; write it to the disk once it is complete."""
        version = part.fingerprint
        if part.offset == 0:
            self._arriving.pop(version, None)
            if len(self._arriving) >= _ARRIVING_MOST:
                del self._arriving[next(iter(self._arriving))]
            self._arriving[version] = bytearray()
        arrived = self._arriving.get(version)
        if arrived is None or len(arrived) != part.offset or part.packed_bytes > MAX_PACKED_BYTES:
            await self._fails(version, "its parts arrived in another order")
            return
        arrived += payload
        if len(arrived) >= part.packed_bytes:
            del self._arriving[version]
            await self._complete(part, bytes(arrived))

    async def _complete(self, part: TablePart, packed: bytes) -> None:
        try:
            await in_thread(unpack, part.fingerprint, packed, part.raw_bytes, self.folder)
        except (TableError, OSError) as error:
            await self._fails(part.fingerprint, str(error))
            return
        _log.info("table %s has arrived: %d bytes, %d packed", part.fingerprint[:12], part.raw_bytes, len(packed))
        async with self._changed:
            self._failed.pop(part.fingerprint, None)
            self._held.add(part.fingerprint)
            self._changed.notify_all()

    async def _fails(self, version: str, reason: str) -> None:
        async with self._changed:
            self._arriving.pop(version, None)
            self._failed[version] = reason
            self._changed.notify_all()

    async def wait(self, query: str, tables: Collection[StaticTable]) -> None:
        """Return once all versions that a query is opened with are here.

        Raises:
            TableError: one cannot be stored.
        """
        self._used.setdefault(query, set()).update(table.fingerprint for table in tables)
        for table in tables:
            version = table.fingerprint
            async with self._changed:
                await self._changed.wait_for(lambda version=version: version in self._held or version in self._failed)  # type: ignore[misc]
                if version not in self._held:
                    raise TableError(f"table {table.name}: {self._failed.pop(version)}")

    async def opened(self, spec: OpenQuery) -> tuple[str, ...]:
        """Note that a query is open; remove and return the versions of its earlier openings that no query reads now."""
        if spec.analyse_only:
            return ()
        before = self._used.get(spec.query, set())
        self._used[spec.query] = {table.fingerprint for table in spec.tables}
        unused = (before - set[str]().union(*self._used.values())) & self._held
        self._held -= unused
        for version in unused:
            # The same version may arrive again while it is removed.
            gone = (self.folder / version).rename(self.folder / f".gone-{version}")
            await in_thread(shutil.rmtree, gone, True)
        return tuple(sorted(unused))


def make_views(session: SparkSession, tables: Iterable[StaticTable], folder: str) -> None:
    """Make a view of each table, which joins send to all tasks rather than moving the events."""
    for table in tables:
        _rows(session, table, folder).hint("broadcast").createOrReplaceTempView(table.name)


def why_unusable(session: SparkSession, table: StaticTable, folder: str) -> str:
    """Return why the rows of a table cannot be used; empty if they can.

    All are read once, so that a bad one is found now and not by the first events.

    Raises:
        PySparkException: a file cannot be read.
    """
    if table.format == "parquet":
        _rows(session, table, folder).write.format("noop").mode("overwrite").save()
        return ""
    if table.header and (wrong := _why_other_names(session, table, folder)):
        return wrong
    marked = msgspec.structs.replace(table, schema_ddl=f"{table.schema_ddl}, {_BAD} STRING")
    rows = _rows(session, marked, folder)
    bad = rows.where(rows[_BAD].isNotNull()).select("*", input_file_name()).first()
    if bad is None:
        return ""
    file, line = Path(bad[-1]).name, str(bad[_BAD])
    line = line if len(line) <= _SHOWN else f"{line[: _SHOWN - 1]}…"
    return f"{file}: this line does not fit the schema {table.schema_ddl}: {line}"


def _why_other_names(session: SparkSession, table: StaticTable, folder: str) -> str:
    said = _rows(session, table, folder).columns
    found = _rows(session, msgspec.structs.replace(table, schema_ddl=""), folder).columns
    if [name.lower() for name in found] == [name.lower() for name in said]:
        return ""
    return f"the first line names the columns {', '.join(found)}, but schema names {', '.join(said)}: make them equal"


def count_rows(session: SparkSession, tables: Iterable[StaticTable], folder: str) -> dict[str, int]:
    """Return how many rows each table has."""
    return {table.name: _rows(session, table, folder).count() for table in tables}


def _rows(session: SparkSession, table: StaticTable, folder: str) -> DataFrame:
    reader = session.read.format(table.format)
    if table.schema_ddl:
        reader = reader.schema(table.schema_ddl)
    if table.format == "csv":
        reader = reader.option("header", table.header)
        # Spark would take the columns by their place, whatever the first lines of the files call them.
        reader = reader.option("enforceSchema", not table.header)
        # A quote within a quoted value is written twice, as everywhere but in Spark's own default.
        reader = reader.option("escape", '"')
    reader = reader.option("columnNameOfCorruptRecord", _BAD)
    return reader.load(Path(folder, table.fingerprint).as_uri())


def why_no_tables_there(master: str, tables: Collection[StaticTable]) -> str:
    """Return why a query cannot read its tables with a master; empty if it can."""
    if not tables or is_local(master):
        return ""
    return f"tables need a Spark on one machine (local[n]): the executors of {master} do not see the files of this host"
