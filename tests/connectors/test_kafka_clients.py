"""How clients of Kafka are closed."""

from __future__ import annotations

import asyncio

import pytest

from gateway.connectors.kafkaclients import close_client


async def test_a_client_is_closed_though_who_closes_it_is_cancelled() -> None:
    begun, may_end = asyncio.Event(), asyncio.Event()
    closed = False

    async def close() -> None:
        nonlocal closed
        begun.set()
        await may_end.wait()
        closed = True

    closing = asyncio.create_task(close_client(close()))
    await begun.wait()
    closing.cancel()
    asyncio.get_running_loop().call_soon(may_end.set)
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert closed


async def test_what_goes_wrong_is_told() -> None:
    async def fail() -> None:
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        await close_client(fail())
