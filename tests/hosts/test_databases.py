"""The copies of a query's database tables: read by a real Spark from a real database, whatever fails."""

from __future__ import annotations

import asyncio
import re
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from gateway.config.connectors.tables import TableConfig, copy_of
from gateway.hosts.connection import QueryRefusedError
from gateway.hosts.databases import DatabaseCopies
from tests.leaping_clock import LeapingClock
from tests.support.derby import Derby

PASSWORD = "not for the disk"


@pytest.fixture
def silent() -> Iterator[int]:
    """The port of a server that accepts connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def copies(folder: Path, clock: LeapingClock, within_s: float = 300.0, **table: Any) -> DatabaseCopies:
    login = {"user": "reader", "password": PASSWORD}
    config = TableConfig.model_validate({"format": "jdbc", "table": "prices", "login": login, "refresh": "2m", **table})
    return DatabaseCopies("q", {"prices": config}, folder / "q" / "tables", {}, clock, within_s)


async def test_the_rows_are_copied_and_kept_when_the_database_is_gone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    derby, clock = Derby(tmp_path / "db"), LeapingClock()
    derby.run(("CREATE TABLE reader.prices (product INT, price INT)", "INSERT INTO reader.prices VALUES (1, 10)"))
    kept = copies(tmp_path, clock, url=derby.url)
    await kept.begin()
    copy = copy_of(tmp_path / "q" / "tables", "prices")
    assert pq.read_table(copy).to_pylist() == [{"PRODUCT": 1, "PRICE": 10}]
    assert [path.name for path in copy.parent.iterdir()] == [copy.name]
    derby.run(("INSERT INTO reader.prices VALUES (2, 20)",))
    await kept.update()
    assert pq.read_table(copy).num_rows == 1, "its refresh is not over"
    await clock.sleep_until(clock.now() + 120)
    await kept.update()
    assert pq.read_table(copy).num_rows == 2
    shutil.rmtree(tmp_path / "db")
    await kept.begin()
    assert re.search("/db' not found.*: the query goes on with the rows that were read before", caplog.text)
    assert pq.read_table(copy).num_rows == 2
    assert PASSWORD.encode() not in b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())


async def test_a_database_that_does_not_answer_is_given_up(tmp_path: Path, silent: int) -> None:
    url = f"jdbc:hive2://127.0.0.1:{silent}/"
    kept = copies(tmp_path, LeapingClock(), 8.0, url=url, driver="org.apache.hive.jdbc.HiveDriver")
    with pytest.raises(QueryRefusedError, match="the database did not answer within 8 s"):
        await kept.begin()


async def test_a_caller_that_is_cancelled_ends_the_program(tmp_path: Path, silent: int) -> None:
    url = f"jdbc:hive2://127.0.0.1:{silent}/"
    kept = copies(tmp_path, LeapingClock(), url=url)
    task = asyncio.create_task(kept.begin())
    lock = tmp_path / "databases.lock"
    async with asyncio.timeout(60):
        while not lock.exists():
            await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not list((tmp_path / "q" / "tables").iterdir())
