"""The same host with a standalone cluster whose executors see neither the driver's disk nor this project."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

import engines
from engines.streaming.checkpoints import ResumePoint, progress_of
from gateway.hosts.mastercheck import see_master
from infra.clock import SystemClock
from infra.messages import CommittedMessage, Completed, OpenQuery, QueryFailed, QueryRefused
from tests.engines.host_site import Gateway, host_process
from tests.engines.spark_cluster import Cluster, cluster

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
TOTALS = msgspec.structs.replace(SHOUT, query="totals", function="user_functions:totals")
PURSES = msgspec.structs.replace(
    SHOUT, query="purses", function="user_functions:purses", schema_ddl="id INT, name STRING, amount INT"
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
            await gateway.link.send(TOTALS)
            refused, _ = await gateway.expect(QueryRefused)
            assert "set private.spark.checkpoints to a folder" in refused.reason
            await gateway.link.send(msgspec.structs.replace(TOTALS, checkpoint_dir=str(tmp_path / "none" / "totals")))
            refused, _ = await gateway.expect(QueryRefused)
            assert f"the folder {tmp_path / 'none'} does not exist: create it, or mount it" in refused.reason
            (shared := tmp_path / "shared").mkdir()
            await with_bad_rows(shared, gateway)
            await with_state(shared, spark, gateway, hidden)


async def with_bad_rows(folder: Path, gateway: Gateway) -> None:
    """A row that fails over the state is found over copies of it, which executors see, too."""
    query = await gateway.open(msgspec.structs.replace(PURSES, checkpoint_dir=str(folder / "purses")))
    await query.send(0, [{"id": 0, "name": "n", "amount": 10}])
    ((_, batch),) = await query.completed(1)
    assert batch.to_pylist() == [{"name": "n", "total": 10}]
    await gateway.link.send(CommittedMessage(query="purses", epoch=1, last_seq=0))
    await query.send(1, [{"id": n, "name": "n", "amount": amount} for n, amount in ((1, -11), (2, -10))])
    ((message, batch),) = await query.completed(1)
    assert [bad.row for bad in message.poison] == [0]
    assert "n owes 1" in message.poison[0].reason
    assert batch.to_pylist() == [{"name": "n", "total": 0}]
    await gateway.link.send(CommittedMessage(query="purses", epoch=1, last_seq=2))


async def with_state(shared: Path, spark: Cluster, gateway: Gateway, hidden: Sequence[Path]) -> None:
    """A stateful query runs until an executor joins that does not share the folder of its state."""
    totals = msgspec.structs.replace(TOTALS, checkpoint_dir=str(shared / "totals"))
    query = await gateway.open(totals)
    await query.send(0, [{"id": number, "name": "n"} for number in range(60)])
    ((_, batch),) = await query.completed(1)
    assert batch.to_pylist() == [{"name": "n", "total": sum(range(tens + 1))} for tens in range(0, 60, 10)]
    await gateway.link.send(CommittedMessage(query="totals", epoch=1, last_seq=59))
    if os.geteuid() != 0:
        return
    spark.add([*hidden, shared])
    failed = None
    for seq in range(60, 2000):
        await query.send(seq, [{"id": seq, "name": "n"}])
        message, _ = await gateway.expect(Completed | QueryFailed)  # type: ignore[arg-type]
        if isinstance(message, QueryFailed):
            failed = message.reason
            break
        await gateway.link.send(CommittedMessage(query="totals", epoch=1, last_seq=seq))
    assert failed is not None
    assert "on worker-2: [Errno 2]" in failed
    assert "worker-1" not in failed
    await gateway.link.send(msgspec.structs.replace(totals, epoch=2))
    refused, _ = await gateway.expect(QueryRefused)
    assert f"do not share {shared / 'totals'} with this machine (on worker-2: [Errno 2]" in refused.reason
    # Nothing of the batch that failed is in the state.
    assert [path.name for path in (shared / "totals").iterdir()] == ["1"]
    assert progress_of(shared / "totals" / "1") == ResumePoint(seq, seq + 1)
