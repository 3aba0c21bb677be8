"""A query is opened again while a VM is still opening it: the VM must not serve it as it was before."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.query.running import RunningQuery
from infra.messages import CloseQuery, OpenQuery, QueryReady
from tests.support.gateway_doubles import INPUT, RESULT, FakeHost
from tests.support.query_site import STATELESS, Engine, Site
from tests.support.waiting import until


@pytest.fixture
async def vm() -> AsyncIterator[FakeHost]:
    host = FakeHost("vm-1")
    yield host
    await host.connection.close("done")


@pytest.fixture
async def home() -> Engine:
    return Engine()


@pytest.fixture
async def query(tmp_path: Path, home: Engine) -> AsyncIterator[RunningQuery]:
    site = Site(tmp_path)
    site.write("in.jsonl", range(20))
    async with site.started(home) as query:
        yield query


def epochs(vm: FakeHost, kind: type[OpenQuery | CloseQuery]) -> list[int]:
    return [message.epoch for message, _ in vm.link.sent if isinstance(message, kind)]


def say_ready(vm: FakeHost, epoch: int) -> None:
    vm.link.say(
        QueryReady(
            query="q",
            epoch=epoch,
            input_schema=INPUT.serialize().to_pybytes(),
            result_schema=RESULT.serialize().to_pybytes(),
            plan=STATELESS,
            credit_bytes=1 << 20,
            resume_seq=0,
            resume_end_seq=0,
        )
    )


async def test_it_is_opened_there_again_as_it_is_now(query: RunningQuery, home: Engine, vm: FakeHost) -> None:
    attaching = asyncio.create_task(query.attach(vm.connection))
    await until(lambda: len(epochs(vm, OpenQuery)) == 1)
    await query.stop()
    await query.start(home.host.connection)
    (before,) = epochs(vm, OpenQuery)
    say_ready(vm, before)
    await until(lambda: len(epochs(vm, OpenQuery)) == 2)
    assert epochs(vm, CloseQuery) == [before]
    assert "vm-1" not in query.lanes
    now = epochs(vm, OpenQuery)[1]
    assert now > before
    say_ready(vm, now)
    assert await attaching
    assert "vm-1" in query.lanes


async def test_a_query_that_was_stopped_is_not_served_there(query: RunningQuery, vm: FakeHost) -> None:
    attaching = asyncio.create_task(query.attach(vm.connection))
    await until(lambda: len(epochs(vm, OpenQuery)) == 1)
    await query.stop()
    (before,) = epochs(vm, OpenQuery)
    say_ready(vm, before)
    assert not await attaching
    assert epochs(vm, CloseQuery) == [before]
