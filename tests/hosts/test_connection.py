from __future__ import annotations

import asyncio
from typing import cast

import pytest

from gateway.hosts.connection import Connection, QueryRefusedError
from infra.link.channel import LinkLost
from infra.link.client import HostLink
from infra.messages import (
    CloseQuery,
    Completed,
    Credit,
    DirectProgress,
    HostReady,
    IsolatingMessage,
    OpenQuery,
    QueryFailed,
    QueryRefused,
)
from tests.support.gateway_doubles import FakeHost, FakeLink, all_heard
from tests.support.waiting import until

OPEN = OpenQuery(query="q", epoch=1, schema_ddl="id BIGINT")
Heard = list[Completed | Credit | IsolatingMessage | QueryFailed | DirectProgress]


def connected(*, ready: bool = True) -> tuple[Connection, FakeLink]:
    link = FakeLink(ready=ready)
    return Connection("vm1", cast("HostLink", link)), link


async def test_a_host_that_is_ready_is_not_waited_for() -> None:
    connection, _ = connected(ready=True)
    asked_s = asyncio.get_running_loop().time()
    await connection.wait_ready(60.0)
    assert asyncio.get_running_loop().time() - asked_s < 30.0
    await connection.close("done")


async def test_a_host_becomes_ready_or_is_given_up() -> None:
    connection, link = connected(ready=False)
    with pytest.raises(TimeoutError, match="vm1 did not answer within 0 s"):
        await connection.wait_ready(0.0)
    link.say(HostReady(boot_s=1.0))
    await connection.wait_ready(10.0)
    await connection.close("done")


async def test_a_host_that_goes_away_ends_the_waiting_with_its_reason() -> None:
    connection, link = connected(ready=False)
    waiting = asyncio.create_task(connection.wait_ready(10.0))
    opening = asyncio.create_task(connection.open_query(OPEN, lambda *_: None, 10.0))
    await until(lambda: link.sent)
    link.lose("the cable was cut")
    for task in (waiting, opening):
        with pytest.raises(LinkLost, match="cable"):
            await task
    assert await connection.lost() == "the cable was cut"
    assert await connection.lost() == "the cable was cut"


async def test_a_query_is_opened_heard_and_closed() -> None:
    host = FakeHost("vm1")
    heard: Heard = []
    opening = asyncio.create_task(host.connection.open_query(OPEN, lambda said, _: heard.append(said), 10.0))
    await until(lambda: host.link.sent)
    host.link.say(host.ready)
    host.link.say(Credit(query="q", epoch=1, bytes=1))
    assert await opening == host.ready
    host.link.say(Credit(query="q", epoch=0, bytes=2))
    host.link.say(Credit(query="other", epoch=1, bytes=3))
    host.link.say(QueryFailed(query="q", epoch=1, reason="no more"))
    await host.all_heard()
    assert [type(said) for said in heard] == [Credit, QueryFailed]
    await host.connection.close_query("q", 1)
    host.link.say(Credit(query="q", epoch=1, bytes=4))
    await host.all_heard()
    assert len(heard) == 2
    assert [message for message, _ in host.link.sent] == [OPEN, CloseQuery(query="q", epoch=1)]
    await host.connection.close("done")
    assert host.link.closed_with == "done"


async def test_a_refusal_says_why_and_leaves_no_listener() -> None:
    connection, link = connected()
    heard: Heard = []
    opening = asyncio.create_task(connection.open_query(OPEN, lambda said, _: heard.append(said), 10.0))
    await until(lambda: link.sent)
    link.say(QueryRefused(query="q", epoch=1, reason="no such column"))
    with pytest.raises(QueryRefusedError, match="vm1 refuses q: no such column"):
        await opening
    link.say(Credit(query="q", epoch=1, bytes=1))
    await all_heard(connection, link)
    assert heard == []
    await connection.close("done")


async def test_a_query_that_is_not_answered_in_time() -> None:
    connection, link = connected()
    with pytest.raises(TimeoutError):
        await connection.open_query(OPEN, lambda *_: None, 0.0)
    link.say(QueryRefused(query="q", epoch=1, reason="too late"))
    await all_heard(connection, link)
    await connection.close("done")
    assert await connection.lost() == "done"


@pytest.mark.parametrize("error", [ValueError("no such run"), ValueError("7 bytes given back")])
async def test_a_host_that_says_what_cannot_be_is_lost_and_closed(error: Exception) -> None:
    host = FakeHost("vm1")

    def listen(*_: object) -> None:
        raise error

    opening = asyncio.create_task(host.connection.open_query(OPEN, listen, 10.0))
    await until(lambda: host.link.sent)
    host.link.say(host.ready)
    await opening
    host.link.say(Credit(query="q", epoch=1, bytes=7))
    assert str(error) in await host.connection.lost()
    await host.connection.close("done")
    assert host.link.closed_with is not None
    assert str(error) in host.link.closed_with


async def test_a_message_that_is_the_gateways_to_say_ends_the_link() -> None:
    connection, link = connected()
    link.say(OPEN)
    assert "OpenQuery" in await connection.lost()
    await connection.close("done")


async def test_cancelled_waiting_leaves_nothing_behind() -> None:
    connection, _ = connected(ready=False)
    before = asyncio.all_tasks()
    waiting = asyncio.create_task(connection.wait_ready(10.0))
    await until(lambda: len(asyncio.all_tasks() - before) == 2, what="one task waits, and one for the event")
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await until(lambda: asyncio.all_tasks() == before, what="both have ended")
    await connection.close("done")
