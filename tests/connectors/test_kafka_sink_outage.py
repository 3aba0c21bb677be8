"""Brokers restart, die, or never answer: the sink finds out the outcome before it writes anything again."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial

import pytest

from gateway.sinks.base import SinkUnavailableError
from gateway.sinks.kafka import producer
from gateway.sinks.kafka.kafkasink import KafkaSink
from tests.connectors.kafka_broker import Broker
from tests.connectors.kafka_relay import END_TXN, Mishap, Relay, RelayedBroker
from tests.connectors.kafka_sinks import make_sink, records, values
from tests.connectors.sink_contract import at, release, row

SEED = 20261121
TRIES_S = 150.0


@pytest.fixture(scope="module")
def relayed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RelayedBroker]:
    """A broker only for this module: it is killed, and it has the relay's listener."""
    broker = RelayedBroker(tmp_path_factory.mktemp("relayed"))
    broker.start()
    yield broker
    broker.stop()


@pytest.fixture
async def relay(relayed: RelayedBroker) -> AsyncIterator[Relay]:
    async with Relay(relayed.relay_port, relayed.inner_port) as relay:
        yield relay


async def until_it_works(action: Callable[[], Awaitable[None]]) -> int:
    """Repeat an action as the delivery does; return how often it failed."""
    failures = 0
    async with asyncio.timeout(TRIES_S):
        while True:
            try:
                await action()
            except (SinkUnavailableError, OSError):
                failures += 1
                await asyncio.sleep(0.1)
            else:
                return failures


async def commit_in_a_row(sink: KafkaSink, count: int, on_commit: Callable[[int], None] = lambda _: None) -> None:
    """Commit runs of five events, each until it is committed."""
    for number in range(count):
        first = 5 * number
        await until_it_works(partial(sink.commit, [release(first, first + 4)], at(first + 4)))
        on_commit(number)


@pytest.mark.parametrize("end", [Broker.stop, Broker.kill])
async def test_a_broker_that_goes_and_comes_back(relayed: RelayedBroker, end: Callable[[Broker], None]) -> None:
    topic = await relayed.create_topic()
    sink = make_sink(relayed.brokers, topic)
    await sink.open()
    under_way, again = asyncio.Event(), asyncio.Event()
    writing = asyncio.create_task(
        commit_in_a_row(sink, 60, lambda number: {10: under_way, 40: again}.get(number, asyncio.Event()).set())
    )
    for moment in (under_way, again):
        await moment.wait()
        await asyncio.to_thread(end, relayed)
        await asyncio.to_thread(relayed.start)
    await writing
    assert list(sink.committed) == [(0, 299)]
    assert await values(relayed, topic) == [row(n) for n in range(300)]
    await sink.close()


@pytest.mark.parametrize("mishap", ["lose request", "lose answer"])
async def test_the_connection_breaks_while_it_commits(relayed: RelayedBroker, relay: Relay, mishap: Mishap) -> None:
    topic = await relayed.create_topic()
    sink = make_sink(relayed.relayed_brokers, topic)
    await sink.open()
    for number in range(4):
        relay.arm(mishap, END_TXN)
        first = 5 * number
        await until_it_works(partial(sink.commit, [release(first, first + 4)], at(first + 4)))
        assert relay.happened.is_set()
        assert await values(relayed, topic) == [row(n) for n in range(first + 5)]
    await sink.close()


@pytest.mark.parametrize("anew", [False, True], ids=["the same sink", "a new sink"])
@pytest.mark.parametrize("mishap", ["lose request", "lose answer"])
async def test_nobody_heard_how_a_commit_ended(
    relayed: RelayedBroker, relay: Relay, mishap: Mishap, anew: bool
) -> None:
    topic = await relayed.create_topic()
    sink = make_sink(relayed.relayed_brokers, topic, silence_s=1.0)
    await sink.open()
    await sink.commit([release(0, 4)], at(4))
    relay.arm(mishap, END_TXN, then_down=True)
    with pytest.raises(SinkUnavailableError):
        await sink.commit([release(5, 9)], at(9))
    assert relay.happened.is_set()
    assert list(sink.committed) == [(0, 4)], "it may be in, but nobody knows"
    # While the brokers are away it says so, as often as it is asked.
    with pytest.raises(SinkUnavailableError):
        await sink.commit([release(5, 9)], at(9))
    relay.up()
    if anew:
        await sink.close()
        sink = make_sink(relayed.relayed_brokers, topic, epoch=2, silence_s=1.0)
        await sink.open()
        assert list(sink.committed) == [(0, 9 if mishap == "lose answer" else 4)]
    await until_it_works(lambda: sink.commit([release(5, 9), release(10, 14)], at(14)))
    assert list(sink.committed) == [(0, 14)]
    assert await values(relayed, topic) == [row(n) for n in range(15)]
    # What was settled was not written a second time and hidden: there is one attempt more only if it was lost.
    everything = await records(relayed, topic, isolation="read_uncommitted")
    assert len(everything) == (20 if mishap == "lose request" else 15)
    await sink.close()


async def test_connections_that_break_again_and_again(relayed: RelayedBroker, relay: Relay) -> None:
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    topic = await relayed.create_topic(partitions=1)
    sink = make_sink(relayed.relayed_brokers, topic)
    await sink.open()

    def change(_: int) -> None:
        relay.lose_each = chance.choice([0, 13, 17, 23, 31, 47])

    await commit_in_a_row(sink, 80, change)
    relay.lose_each = 0
    assert list(sink.committed) == [(0, 399)]
    assert await values(relayed, topic) == [row(n) for n in range(400)]
    await sink.close()


async def test_a_transaction_that_took_too_long_is_no_take_over(
    relayed: RelayedBroker, relay: Relay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producer, "TRANSACTION_TIMEOUT_MS", 2000)
    topic = await relayed.create_topic()
    sink = make_sink(relayed.relayed_brokers, topic)
    await sink.open()
    relay.arm("hold request", END_TXN)
    writing = asyncio.create_task(sink.commit([release(0, 4)], at(4)))
    await relay.happened.wait()
    # A reader of committed records gets to the end when the brokers have given the transaction up.
    assert await values(relayed, topic) == []
    relay.release.set()
    with pytest.raises(SinkUnavailableError, match="took too long"):
        await writing
    await until_it_works(lambda: sink.commit([release(0, 4)], at(4)))
    assert await values(relayed, topic) == [row(n) for n in range(5)]
    await sink.close()


async def test_it_cannot_be_opened_while_the_brokers_are_away(
    relayed: RelayedBroker, relay: Relay, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = await relayed.create_topic()
    sink = make_sink(relayed.relayed_brokers, topic)
    await asyncio.to_thread(relayed.kill)
    try:
        with pytest.raises(SinkUnavailableError, match=r"cannot be (opened|asked)"):
            await sink.open()
    finally:
        await asyncio.to_thread(relayed.start)
    await until_it_works(sink.open)
    await sink.commit([release(0, 4)], at(4))
    assert await values(relayed, topic) == [row(n) for n in range(5)]
    await sink.close()
