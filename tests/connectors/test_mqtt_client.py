"""The behaviour of aiomqtt and paho with a real broker, and of the code that is built on them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import aiomqtt
import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from gateway.connectors.heldpaho import Arrival
from gateway.connectors.mqttbroker import Broker
from gateway.connectors.mqttclient import BrokerError, MessageReleased, MqttClient
from tests.connectors.mosquitto import Mosquitto, Peer
from tests.support.waiting import until

DEADLINE_S = 60.0


@pytest.fixture
def mosquitto(tmp_path: Path) -> Iterator[Mosquitto]:
    broker = Mosquitto(tmp_path / "mosquitto").start()
    yield broker
    broker.kill()


def client(mosquitto: Mosquitto, *, session_s: int = 3600, **said: Any) -> MqttClient:
    return MqttClient(Broker("127.0.0.1", mosquitto.port), "held", session_s=session_s, **said)


async def taken(client: MqttClient, count: int) -> list[Arrival | MessageReleased]:
    items: list[Arrival | MessageReleased] = []
    async with asyncio.timeout(DEADLINE_S):
        while len(items) < count:
            items += await client.take()
    return items


def arrivals(items: Sequence[Arrival | MessageReleased]) -> list[Arrival]:
    return [item for item in items if isinstance(item, Arrival)]


def payloads(items: Sequence[Arrival | MessageReleased]) -> list[bytes]:
    return [item.payload for item in arrivals(items)]


@pytest.mark.parametrize("qos", [1, 2])
async def test_what_is_not_acknowledged_comes_again_marked_as_such(mosquitto: Mosquitto, qos: int) -> None:
    async with client(mosquitto) as first:
        await first.subscribe("t/#", qos)
        with Peer(mosquitto.port) as peer:
            peer.publish("t/a", [b"one", b"two", b"three"], qos)
        items = await taken(first, 3)
        assert [(item.qos, item.again) for item in items if isinstance(item, Arrival)] == [(qos, False)] * 3
        assert isinstance(items[0], Arrival)
        first.acknowledge(arrivals(items[:1]))
        if qos == 2:
            assert await taken(first, 1) == [MessageReleased(items[0].packet_id)]
    async with client(mosquitto) as second:
        assert second.session_present
        again = await taken(second, qos + 1)
        assert payloads(again) == [b"two", b"three"]
        assert [item.again for item in again if isinstance(item, Arrival)] == [True, True]
        ids = [item.packet_id for item in items[1:]]
        assert [item.packet_id for item in again if isinstance(item, Arrival)] == ids
        # Its PUBCOMP was held back too, so the broker asks again.
        assert [item for item in again if isinstance(item, MessageReleased)] == [MessageReleased(items[0].packet_id)][
            : qos - 1
        ]


async def test_acknowledged_messages_do_not_come_again(mosquitto: Mosquitto) -> None:
    async with client(mosquitto) as first:
        await first.subscribe("t/#", 2)
        with Peer(mosquitto.port) as peer:
            peer.publish("t/a", [b"one", b"two"], 2)
            peer.publish("t/a", [b"three"], 1)
        first.acknowledge(arrivals(await taken(first, 3)))
        for release in await taken(first, 2):
            assert isinstance(release, MessageReleased)
            first.complete(release)
    async with client(mosquitto) as second:
        with Peer(mosquitto.port) as peer:
            peer.publish("t/a", [b"four"], 2)
        assert payloads(await taken(second, 1)) == [b"four"]


@pytest.mark.parametrize("version", [aiomqtt.ProtocolVersion.V5, aiomqtt.ProtocolVersion.V311])
@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_messages_with_and_without_properties_arrive_alike(
    mosquitto: Mosquitto, qos: int, version: aiomqtt.ProtocolVersion
) -> None:
    said = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
    said.UserProperty = ("from", "a test")
    sent = [b"", b"\0", b"\x26\0", bytes(40_000), "a £".encode()]
    async with client(mosquitto, version=version) as held:
        await held.subscribe("t/#", qos)
        with Peer(mosquitto.port) as peer:
            for payload in sent:
                peer.publish("t/ü", [payload], qos)
                peer.publish("t/ü", [payload], qos, properties=said)
        items = arrivals(await taken(held, 2 * len(sent)))
        assert payloads(items) == [payload for payload in sent for _ in range(2)]
        assert [(item.topic, item.qos, item.again) for item in items] == [("t/ü", qos, False)] * 10
        assert len({item.packet_id for item in items}) == (10 if qos else 1)
        held.acknowledge(items)
        if qos == 2:
            assert await taken(held, 10) == [MessageReleased(item.packet_id) for item in items]


async def test_the_broker_hears_how_many_may_be_in_flight(mosquitto: Mosquitto) -> None:
    async with client(mosquitto, receive_max=4) as held:
        await held.subscribe("t/#", 1)
        with Peer(mosquitto.port) as peer:
            peer.publish("t/a", [b"%d" % n for n in range(50)])
            peer.publish("t/b", [b"not counted"], 0)
        items = await taken(held, 5)
        # QoS 0 is not limited: what was published last came, and all that waits for an answer was overtaken by it.
        assert payloads(items) == [b"0", b"1", b"2", b"3", b"not counted"]
        items.pop()
        answered = 0
        while len(items) < 50:
            # mosquitto 2.0 sends four messages for each acknowledgement, so that more and more are in flight.
            held.acknowledge(arrivals(items[answered:]))
            answered = len(items)
            items += await taken(held, 1)
        assert payloads(items) == [b"%d" % n for n in range(50)]


async def test_reading_pauses_when_much_waits_to_be_taken(mosquitto: Mosquitto) -> None:
    async with client(mosquitto, inbox_bytes=100_000) as held:
        await held.subscribe("t/#", 0)
        with Peer(mosquitto.port) as peer:
            peer.publish("t/a", [bytes(10_000)] * 200, 0)
            peer.publish("t/a", [b"last"], 1)
        await until(lambda: held.paused)
        first = await held.take()
        assert 1 < len(first) <= 12
        items = first
        while payloads(items)[-1] != b"last":
            more = await taken(held, 1)
            assert len(more) <= 12
            items += more
        assert len(items) == 201


async def test_a_lost_connection_is_told_after_what_cannot_come_again(mosquitto: Mosquitto) -> None:
    async with client(mosquitto) as held:
        await held.subscribe("t/#", 1)
        with Peer(mosquitto.port) as peer:
            peer.publish("t/a", [b"comes again"], 1)
            peer.publish("t/a", [b"once only"], 0)
        await until(lambda: held.waiting_count >= 2)
        mosquitto.kill()
        await until(lambda: held.lost)
        assert payloads(await held.take()) == [b"once only"]
        with pytest.raises(BrokerError, match="closed the connection"):
            await held.take()


async def test_a_broker_that_is_not_there_is_named(mosquitto: Mosquitto) -> None:
    mosquitto.stop()
    with pytest.raises(BrokerError, match=f"127.0.0.1:{mosquitto.port} cannot be reached"):
        await client(mosquitto).__aenter__()


async def test_a_broker_that_does_not_answer_is_given_up(mosquitto: Mosquitto) -> None:
    mosquitto.freeze()
    with pytest.raises(BrokerError, match="cannot be reached"):
        await client(mosquitto, answer_s=0.3).__aenter__()
    mosquitto.thaw()
    async with client(mosquitto) as held:
        await held.subscribe("t/#", 1)


async def test_connecting_can_be_cancelled(mosquitto: Mosquitto) -> None:
    asked, end = asyncio.Event(), asyncio.Event()

    async def be_silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        asked.set()
        await end.wait()
        writer.close()

    server = await asyncio.start_server(be_silent, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        stuck = asyncio.create_task(MqttClient(Broker("127.0.0.1", port), "held", session_s=0).__aenter__())
        await asyncio.wait_for(asked.wait(), DEADLINE_S)
        stuck.cancel()
        with pytest.raises(asyncio.CancelledError):
            await stuck
        end.set()
    async with client(mosquitto) as held:
        await held.subscribe("t/#", 1)


async def test_a_server_that_hangs_up_is_no_long_wait() -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        with pytest.raises(BrokerError, match="closed the connection instead of answering"):
            await MqttClient(Broker("127.0.0.1", port), "held", session_s=0).__aenter__()


async def test_version_3_1_1_keeps_a_session_too(mosquitto: Mosquitto) -> None:
    old = aiomqtt.ProtocolVersion.V311
    broker = Broker("127.0.0.1", mosquitto.port)
    async with MqttClient(broker, "held", session_s=3600, version=old) as first:
        assert not first.session_present
        await first.subscribe("t/#", 2)
    with Peer(mosquitto.port) as peer:
        peer.publish("t/a", [b"meanwhile"], 2)
    async with MqttClient(broker, "held", session_s=3600, version=old) as second:
        assert second.session_present
        assert payloads(await taken(second, 1)) == [b"meanwhile"]
