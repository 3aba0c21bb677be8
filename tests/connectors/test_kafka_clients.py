"""How clients of Kafka are closed."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.connectors.kafkaclients import close_client
from gateway.sinks.kafka.producer import discard_producer


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


class StubbornProducer:
    """Stands for a client of aiokafka whose sender does not end before ``may_end``, however often it is cancelled."""

    def __init__(self) -> None:
        self.may_end = asyncio.Event()
        self.cancellations = 0
        self.client_closed = False
        self.sender = asyncio.create_task(self._send())
        self._sender = SimpleNamespace(sender_task=self.sender)
        self._txn_manager = SimpleNamespace(is_in_transaction=lambda: False)
        self._message_accumulator = SimpleNamespace(fail_all=lambda _: None)
        self.client = self

    async def _send(self) -> None:
        while not self.may_end.is_set():
            try:
                await self.may_end.wait()
            except asyncio.CancelledError:
                self.cancellations += 1

    async def stop(self) -> None:
        raise OSError("the brokers are away")

    async def close(self) -> None:
        self.client_closed = True


async def test_a_producer_whose_sender_does_not_end_is_abandoned(caplog: pytest.LogCaptureFixture) -> None:
    producer: Any = StubbornProducer()
    await asyncio.wait_for(discard_producer(producer), 60.0)
    assert producer.client_closed
    assert not producer.sender.done()
    assert 2 <= producer.cancellations <= 100
    assert "the sender of a Kafka producer did not end" in caplog.text
    producer.may_end.set()
    await producer.sender
