"""Sends the static tables of a query to engine hosts: the same version to each, and once to each."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

import msgspec

from gateway.hosts.connection import Connection, QueryRefusedError
from infra.messages import OpenQuery, StaticTable, TablePart
from infra.payload.tablefiles import MAX_TABLE_BYTES, PackedTable, TableError, pack, signature, unpack
from infra.threads import run_to_end

_PART_BYTES: Final = 1 << 20
"""Runs of other queries may pass between two parts."""


class Copies(Protocol):
    """Copies of tables that are elsewhere, in the files that are declared."""

    async def begin(self) -> None:
        """Make them, or keep those that are there."""

    async def update(self) -> None:
        """Make them anew."""


class TableVersions:
    """The tables of a query, in the version that they had when they were first needed.

    Args:
        query: the query's name, for messages.
        declared: the tables, without a version.
        copies: brings files up to date before they are read; None: they are the tables themselves.
        part_bytes: the size of the messages.
    """

    def __init__(
        self,
        query: str,
        declared: Sequence[StaticTable],
        copies: Copies | None = None,
        part_bytes: int = _PART_BYTES,
    ) -> None:
        self._query = query
        self._declared = declared
        self._copies = copies
        self._part_bytes = part_bytes
        self._read: dict[str, PackedTable] = {}
        self._seen: tuple[object, ...] = ()
        self._reading = asyncio.Lock()

    async def at(self, connection: Connection) -> tuple[StaticTable, ...]:
        """Send a host the versions that it does not have, and return the tables with their versions.

        Raises:
            QueryRefusedError: the files cannot be read, or are too large.
            LinkLost: the link was lost.
        """
        if not self._declared:
            return ()
        async with self._reading:
            if not self._read:
                if self._copies is not None:
                    await self._copies.begin()
                await run_to_end(self._read_all)
        for table in self._read.values():
            await self._send(connection, table)
        return with_versions(self._declared, self._read)

    async def newer(self) -> TableVersions | None:
        """Return the present versions of the tables; None if these are the present ones.

        Raises:
            QueryRefusedError: the files cannot be read, or are too large.
        """
        if self._copies is not None:
            await self._copies.update()
        found = TableVersions(self._query, self._declared, self._copies, self._part_bytes)
        return found if await run_to_end(lambda: self._differs(found)) else None

    def _differs(self, found: TableVersions) -> bool:
        if self._look() == self._seen:
            return False
        found._read_all()
        if self._fingerprints != found._fingerprints:
            return True
        self._seen = found._seen
        return False

    @property
    def _fingerprints(self) -> set[str]:
        return {table.fingerprint for table in self._read.values()}

    def _look(self) -> tuple[object, ...]:
        found = []
        for table in self._declared:
            try:
                found.append(signature(Path(table.path)))
            except TableError as error:
                raise QueryRefusedError(f"query {self._query}: table {table.name}: {error}") from error
        return tuple(found)

    def _read_all(self) -> None:
        # Files that change after this look are read again later.
        self._seen = self._look()
        try:
            self._read = read_tables(self._declared)
        except TableError as error:
            raise QueryRefusedError(f"query {self._query}: {error}") from error

    def forget(self, connection: Connection) -> None:
        """Send the versions to a host again, which has refused a query that reads them."""
        connection.tables -= self._fingerprints

    async def _send(self, connection: Connection, table: PackedTable) -> None:
        async with connection.sending_tables:
            if table.fingerprint in connection.tables:
                return
            for offset in range(0, len(table.packed), self._part_bytes):
                part = TablePart(
                    fingerprint=table.fingerprint,
                    offset=offset,
                    packed_bytes=len(table.packed),
                    raw_bytes=table.raw_bytes,
                )
                await connection.link.send(part, table.packed[offset : offset + self._part_bytes])
            connection.tables.add(table.fingerprint)


def read_tables(declared: Iterable[StaticTable]) -> dict[str, PackedTable]:
    """Read the present versions of a query's tables, by their names. Blocks.

    Raises:
        TableError: one cannot be read, or all together are too large.
    """
    found: dict[str, PackedTable] = {}
    for table in declared:
        left = MAX_TABLE_BYTES - sum(each.file_bytes for each in found.values())
        try:
            found[table.name] = pack(Path(table.path), left)
        except TableError as error:
            raise TableError(f"table {table.name}: {error}") from error
    return found


def with_versions(declared: Sequence[StaticTable], read: Mapping[str, PackedTable]) -> tuple[StaticTable, ...]:
    """Return tables as hosts get them: with the versions that were read of them, and without their paths."""
    return tuple(
        msgspec.structs.replace(table, fingerprint=read[table.name].fingerprint, path="") for table in declared
    )


def kept_here(spec: OpenQuery, read: Mapping[str, PackedTable], folder: Path) -> OpenQuery:
    """Write versions to a folder of this machine, as a host does, and return the query that reads them. Blocks.

    Raises:
        TableError: a version is damaged.
        OSError: the disk fails.
    """
    for table in read.values():
        unpack(table.fingerprint, table.packed, table.raw_bytes, folder)
    return msgspec.structs.replace(spec, tables=with_versions(spec.tables, read), tables_path=str(folder))
