"""A host works through more rows than its memory holds."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest
from py4j.java_gateway import JavaObject

from engines.spark.proxies import free_dropped
from infra.loading import NEW_OBJECTS_MOST
from infra.messages import OpenQuery
from tests.engines.host_site import host_process
from tests.engines.stream_bench import Bench

pytestmark = pytest.mark.spark

RUNS, ROWS, TEXT = 120, 8, "x" * (1 << 20)
SPEC = OpenQuery(
    query="sizes", epoch=1, schema_ddl="id BIGINT, name STRING", sql="SELECT id, length(name) AS n FROM events"
)


@pytest.mark.xdist_group("engines/test_memory.py")
async def test_rows_that_are_answered_leave_the_memory_of_a_host(tmp_path: Path) -> None:
    """960 MiB of rows pass through a heap of 512 MiB."""
    async with (
        host_process(tmp_path, master="local[1]", spark_conf={"spark.driver.memory": "512m"}) as host,
        host.gateway() as gateway,
    ):
        await gateway.until_ready()
        query = await gateway.open(SPEC)
        for run in range(RUNS):
            first = run * ROWS
            await query.send(first, [{"id": first + row, "name": TEXT} for row in range(ROWS)])
            ((message, batch),) = await query.completed(1)
            assert message.first_seq == first
            assert batch.column("n").to_pylist() == [len(TEXT)] * ROWS


@pytest.fixture
def _seldom() -> Iterator[None]:
    threshold = gc.get_threshold()
    gc.set_threshold(NEW_OBJECTS_MOST)
    yield
    gc.set_threshold(*threshold)


@pytest.mark.usefixtures("_seldom")
def test_proxies_of_micro_batches_that_have_ended_are_freed(bench: Bench) -> None:
    running = bench.open("SELECT id FROM events")

    def alive(runs: range) -> int:
        for run in runs:
            running.put(run, [{"id": run}])
            running.results(run + 1)
        return sum(isinstance(each, JavaObject) for each in gc.get_objects())

    gc.collect()
    before = alive(range(2))
    assert alive(range(2, 60)) > before + 100, "nothing is kept: this test is of no use"
    free_dropped()
    assert alive(range(60, 61)) < before + 100
