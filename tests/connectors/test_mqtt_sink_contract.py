from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.config.connectors.mqtt import MqttSinkConfig
from gateway.sinks.base import Sink
from gateway.sinks.mqttsink import MqttSink
from gateway.sinks.progress import ProgressFile
from tests.connectors.mosquitto import Mosquitto, Peer, id_of, until
from tests.connectors.sink_contract import SinkContract


class TopicSubject:
    """A topic and a client that subscribed to it before; each message counts once, by its id."""

    exactly_once = False
    fences = False

    def __init__(self, folder: Path, port: int, qos: int) -> None:
        self._folder = folder
        self._reader = Peer(port)
        self._reader.subscribe("results/#")
        self._writer = Peer(port)
        self._config = MqttSinkConfig.model_validate(
            {"type": "mqtt", "host": "127.0.0.1", "port": port, "topic": "results/q", "qos": qos}
        )

    def make(self, *, owner: str = "me", epoch: int = 1) -> Sink:
        progress = ProgressFile(self._folder / "progress.json", owner)
        return MqttSink(self._config, progress, query="q", owner=owner)

    async def rows(self) -> list[dict[str, Any]]:
        marks = sum(message.topic == "results/mark" for message in self._reader.received)
        self._writer.publish("results/mark", [b""], 2)
        until(lambda: sum(m.topic == "results/mark" for m in self._reader.received) > marks, "the mark came")
        messages = [message for message in self._reader.received if message.topic == "results/q"]
        by_id = {id_of(message): message.payload for message in messages}
        return [json.loads(payload) for payload in by_id.values()]

    def close(self) -> None:
        self._reader.close()
        self._writer.close()


@pytest.fixture(scope="module")
def mosquitto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mosquitto]:
    broker = Mosquitto(tmp_path_factory.mktemp("mosquitto")).start()
    yield broker
    broker.kill()


class TestMqttSink(SinkContract):
    @pytest.fixture(params=[1, 2])
    def subject(self, tmp_path: Path, mosquitto: Mosquitto, request: pytest.FixtureRequest) -> Iterator[TopicSubject]:
        subject = TopicSubject(tmp_path, mosquitto.port, request.param)
        yield subject
        subject.close()
