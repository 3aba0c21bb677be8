"""An MQTT source with a real mosquitto, for tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gateway.config.connectors.mqtt import MqttSourceConfig
from gateway.journal.replica import Replica
from gateway.sources.mqtt.mqttsource import MqttSource, make_mqtt_source
from gateway.sources.mqtt.session import RECEIVE_MAX
from infra.clock import SystemClock
from tests.connectors.mosquitto import Mosquitto, Peer

TOPIC = "plant/power"


def make_source(
    folder: Path, port: int, *, receive_max: int = RECEIVE_MAX, replica: Replica | None = None, **said: Any
) -> MqttSource:
    """Return a source with this folder and a broker on this machine; ``said`` is added to its config."""
    told = {"type": "mqtt", "host": "127.0.0.1", "port": port, "topics": ["plant/#"], **said}
    config = MqttSourceConfig.model_validate(told)
    return make_mqtt_source(
        config,
        folder,
        query="q",
        owner="owner",
        clock=SystemClock(),
        strict=False,
        receive_max=receive_max,
        replica=replica,
    )


class TopicsSubject:
    """Topics to which the source has subscribed before any message is published.

    Args:
        folder: for the journal and the sessions.
        mosquitto: a running broker.
        said: is added to the source's config.
    """

    finite = False

    def __init__(self, folder: Path, mosquitto: Mosquitto, **said: Any) -> None:
        self.folder = folder
        self._mosquitto = mosquitto
        self._said = said
        self._qos = said.get("qos", 1)
        self.ordered = said.get("clients", 1) == 1
        self._peer = Peer(mosquitto.port)

    def make(self) -> MqttSource:
        """Return a source, not opened."""
        return make_source(self.folder, self._mosquitto.port, **self._said)

    async def put(self, rows: list[dict[str, Any]]) -> None:
        """Publish, and return when the broker has accepted the messages."""
        self._peer.publish(TOPIC, [json.dumps(row).encode() for row in rows], self._qos)

    async def put_undecodable(self, raw: bytes) -> None:
        """Publish bytes that are not an event."""
        self._peer.publish(TOPIC, [raw], self._qos)

    def close(self) -> None:
        """Disconnect."""
        self._peer.close()
