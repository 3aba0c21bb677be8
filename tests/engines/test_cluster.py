"""The same host with a standalone cluster whose executors see neither the driver's disk nor this project."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

import engines
from gateway.hosts.mastercheck import see_master
from infra.clock import SystemClock
from infra.messages import OpenQuery, QueryRefused
from tests.engines.host_site import host_process
from tests.engines.spark_cluster import cluster

pytestmark = pytest.mark.spark

USER = Path(__file__).parent / "user"
SHOUT = OpenQuery(
    query="shout",
    epoch=1,
    schema_ddl="id BIGINT, name STRING",
    function="user_functions:shout",
    code_path=str(USER),
    max_batch_runs=3,
)


def rows(first: int) -> list[dict[str, object]]:
    return [{"id": number, "name": f"n{number}" if number % 7 else None} for number in range(first, first + 100)]


async def test_runs_reach_executors_that_have_only_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    driver = tmp_path / "driver"
    driver.mkdir()
    hidden = [driver, USER, Path(engines.__path__[0])]
    with cluster(tmp_path / "cluster", hidden) as spark:
        see_master(spark.master, SystemClock())
        async with host_process(driver, master=spark.master) as host, host.gateway() as gateway:
            await gateway.until_ready()
            query = await gateway.open(SHOUT)
            for first in range(0, 600, 100):
                await query.send(first, rows(first))
            found = {message.first_seq: batch.to_pylist() for message, batch in await query.completed(6)}
            for first in range(0, 600, 100):
                assert found[first] == [{"id": n, "name": f"+n{n}"} for n in range(first, first + 100) if n % 7]

            # What judges rows in the executors' JVM comes to them from the driver.
            sql = "SELECT CAST(name AS INT) AS n FROM events"
            cast = await gateway.open(OpenQuery(query="c", epoch=1, schema_ddl="name STRING", sql=sql))
            await cast.send(0, [{"name": "x" if row in (3, 40) else str(row)} for row in range(50)])
            ((message, batch),) = await cast.completed(1)
            assert [poison.row for poison in message.poison] == [3, 40]
            assert batch.to_pylist() == [{"n": row} for row in range(50) if row not in (3, 40)]

            # State needs a folder that executors see.
            distinct = OpenQuery(query="d", epoch=1, schema_ddl="id INT", sql="SELECT DISTINCT id FROM events")
            await gateway.link.send(distinct)
            refused, _ = await gateway.expect(QueryRefused)
            assert "set private.spark.checkpoints to a folder" in refused.reason
            await gateway.link.send(msgspec.structs.replace(distinct, checkpoint_dir=str(tmp_path / "none" / "state")))
            refused, _ = await gateway.expect(QueryRefused)
            assert f"the folder {tmp_path / 'none'} does not exist: create it, or mount it" in refused.reason
            if os.geteuid() == 0:
                state = driver / "state"
                await gateway.link.send(msgspec.structs.replace(distinct, checkpoint_dir=str(state)))
                refused, _ = await gateway.expect(QueryRefused)
                assert f"do not share {state} with this machine (on worker-1: [Errno 2]" in refused.reason
                assert list(state.iterdir()) == []
