"""An MQTT sink and its broker: ids, an unavailable broker, and a broker that refuses."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.config.connectors.mqtt import MqttSinkConfig
from gateway.connectors.mqttclient import IN_FLIGHT_MAX
from gateway.sinks.base import SinkError, SinkUnavailableError
from gateway.sinks.mqttsink import MqttSink
from gateway.sinks.progress import ProgressFile
from tests.connectors.mosquitto import Mosquitto, Peer, id_of, until
from tests.connectors.mqtt_trust import OldBroker, RefusingBroker
from tests.connectors.sink_contract import at, release


@pytest.fixture
def mosquitto(tmp_path: Path) -> Iterator[Mosquitto]:
    broker = Mosquitto(tmp_path / "mosquitto").start()
    yield broker
    broker.kill()


async def opened(folder: Path, port: int, **said: Any) -> MqttSink:
    told = {"type": "mqtt", "host": "127.0.0.1", "port": port, "topic": "out", **said}
    progress = ProgressFile(folder / "progress.json", "me")
    sink = MqttSink(MqttSinkConfig.model_validate(told), progress, query="q", owner="me")
    await sink.open()
    return sink


async def test_each_row_has_an_id_that_says_where_it_is_from(tmp_path: Path, mosquitto: Mosquitto) -> None:
    with Peer(mosquitto.port) as reader:
        reader.subscribe("out")
        sink = await opened(tmp_path, mosquitto.port)
        await sink.commit([release(0, 1), release(2, 4)], at(4))
        until(lambda: len(reader.received) == 5, "the rows came")
        ids = [id_of(message) for message in reader.received]
        assert ids == ["me-0-1-0", "me-0-1-1", "me-2-4-0", "me-2-4-1", "me-2-4-2"]
        await sink.close()


@pytest.mark.parametrize("qos", [1, 2])
async def test_a_broker_that_goes_and_comes(tmp_path: Path, mosquitto: Mosquitto, qos: int) -> None:
    mosquitto.stop()
    sink = await opened(tmp_path, mosquitto.port, qos=qos)
    with pytest.raises(SinkUnavailableError, match=rf"127\.0\.0\.1:{mosquitto.port} cannot be reached"):
        await sink.commit([release(0, 4)], at(4))
    assert list(sink.committed) == []
    mosquitto.start()
    await sink.commit([release(0, 4)], at(4))
    mosquitto.freeze()
    writing = asyncio.create_task(sink.commit([release(5, 5000)], at(5000)))
    await asyncio.sleep(0)
    mosquitto.kill()
    with pytest.raises(SinkUnavailableError):
        await writing
    mosquitto.start()
    with Peer(mosquitto.port) as reader:
        reader.subscribe("out")
        await sink.commit([release(5, 5000)], at(5000))
        assert list(sink.committed) == [(0, 5000)]
        until(lambda: len(reader.received) >= 4996, "the rows came")
    await sink.close()


async def test_only_so_many_are_in_flight(tmp_path: Path, mosquitto: Mosquitto) -> None:
    sink = await opened(tmp_path, mosquitto.port)
    await sink.commit([release(0, 0)], at(0))
    assert sink.client is not None
    assert sink.client.limits.receive_max == 20
    most = 0
    writing = asyncio.create_task(sink.commit([release(1, 2000)], at(2000)))
    while not writing.done():
        most = max(most, sink.client.unanswered_count)
        await asyncio.sleep(0)
    assert 1 < most <= min(20, IN_FLIGHT_MAX)
    await sink.close()


@pytest.mark.parametrize("qos", [1, 2])
async def test_a_topic_that_may_not_be_written_is_told(tmp_path: Path, qos: int) -> None:
    (tmp_path / "rights").write_text("topic read #\n")
    mosquitto = Mosquitto(tmp_path / "mosquitto", [f"acl_file {tmp_path / 'rights'}"]).start()
    try:
        sink = await opened(tmp_path, mosquitto.port, qos=qos)
        with pytest.raises(SinkUnavailableError, match=r"did not accept a result for out \(.*\): check that this user"):
            await sink.commit([release(0, 4)], at(4))
        assert list(sink.committed) == []
        await sink.close()
    finally:
        mosquitto.kill()


async def test_what_a_broker_refuses_at_qos_2_does_not_count_as_delivered(tmp_path: Path) -> None:
    async with RefusingBroker() as broker:
        sink = await opened(tmp_path, broker.port, qos=2)
        with pytest.raises(SinkUnavailableError, match=r"did not accept a result for out \(Not authorized\)"):
            await sink.commit([release(0, 4)], at(4))
        assert list(sink.committed) == []
        assert broker.released == []
        await sink.close()


async def test_a_broker_that_can_never_take_it_is_told(tmp_path: Path, mosquitto: Mosquitto) -> None:
    small = Mosquitto(tmp_path / "small", ["max_packet_size 100"]).start()
    try:
        sink = await opened(tmp_path / "a", small.port)
        with pytest.raises(SinkError, match=r"result me-0-9-0 takes .* takes at most 100 in a message"):
            await sink.commit([release(0, 9)], at(9))
        await sink.close()
    finally:
        small.kill()
    async with OldBroker(mosquitto.port) as old:
        sink = await opened(tmp_path / "b", old.port)
        with pytest.raises(SinkError, match="does not support MQTT 5"):
            await sink.commit([release(0, 9)], at(9))
        await sink.close()
