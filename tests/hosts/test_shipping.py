"""Each host gets the same version of a table, once."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from gateway.hosts.connection import QueryRefusedError
from gateway.hosts.shipping import TableVersions
from infra.messages import StaticTable, TablePart
from infra.payload.tablefiles import unpack
from tests.support.gateway_doubles import FakeHost


def customers(file: Path) -> StaticTable:
    return StaticTable(name="customers", format="csv", schema_ddl="id INT, name STRING", path=str(file))


def lines(count: int) -> str:
    return "".join(f"{number},{number * 7919 % 10007}\n" for number in range(count))


def parts(host: FakeHost) -> list[tuple[TablePart, bytes]]:
    return [(message, payload) for message, payload in host.link.sent if isinstance(message, TablePart)]


async def test_two_hosts_get_the_version_of_the_first_time_once_each(tmp_path: Path) -> None:
    file = tmp_path / "customers.csv"
    file.write_text(lines(2000))
    versions = TableVersions("q", (customers(file),), part_bytes=1000)
    home, vm = FakeHost("home"), FakeHost("vm1")
    (first,), (again,) = await asyncio.gather(versions.at(home.connection), versions.at(home.connection))
    file.write_text("1,changed\n")
    (away,) = await versions.at(vm.connection)
    assert first == again == away
    assert (first.name, first.schema_ddl, len(first.fingerprint)) == ("customers", "id INT, name STRING", 64)
    assert first.path == "", "hosts are not told where the gateway has its files"
    assert parts(home) == parts(vm)
    assert len(parts(vm)) > 3
    packed = b"".join(payload for _, payload in parts(vm))
    unpack(first.fingerprint, packed, parts(vm)[0][0].raw_bytes, tmp_path / "host")
    assert (tmp_path / "host" / first.fingerprint / "customers.csv").read_text() == lines(2000)
    versions.forget(vm.connection)
    await versions.at(vm.connection)
    assert len(parts(vm)) == 2 * len(parts(home))
    for host in (home, vm):
        await host.connection.close("done")


async def test_a_host_that_has_the_version_is_sent_nothing(tmp_path: Path) -> None:
    (tmp_path / "customers.csv").write_text(lines(10))
    declared = (customers(tmp_path / "customers.csv"),)
    one, other = FakeHost("vm1"), FakeHost("vm2")
    (table,) = await TableVersions("q", declared).at(one.connection)
    other.connection.tables.add(table.fingerprint)
    assert await TableVersions("other", declared).at(other.connection) == (table,)
    assert parts(other) == []
    for host in (one, other):
        await host.connection.close("done")


async def test_a_table_that_cannot_be_read_refuses_the_query(tmp_path: Path) -> None:
    host = FakeHost("vm1")
    versions = TableVersions("q", (customers(tmp_path / "gone.csv"),))
    with pytest.raises(QueryRefusedError, match=r"query q: table customers: .*gone\.csv cannot be read"):
        await versions.at(host.connection)
    (tmp_path / "gone.csv").write_text("1,Ann\n")
    assert len(await versions.at(host.connection)) == 1
    assert await TableVersions("q", ()).at(host.connection) == ()
    await host.connection.close("done")


async def test_new_content_is_a_newer_version_and_a_touch_is_none(tmp_path: Path) -> None:
    host, file = FakeHost("vm1"), tmp_path / "c.csv"
    file.write_text("1,Ann\n")
    versions = TableVersions("q", (customers(file),))
    (before,) = await versions.at(host.connection)
    assert await versions.newer() is None
    os.utime(file, ns=(1, 1))
    assert await versions.newer() is None
    file.write_text("1,Bob\n")
    assert await versions.newer() is not None, "the host may have been away"
    newer = await versions.newer()
    assert newer is not None
    (after,) = await newer.at(host.connection)
    assert before.fingerprint != after.fingerprint
    assert await versions.at(host.connection) == (before,)
    file.unlink()
    with pytest.raises(QueryRefusedError, match="cannot be read"):
        await newer.newer()
    await host.connection.close("done")
