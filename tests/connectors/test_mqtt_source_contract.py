from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.connectors.mosquitto import Mosquitto
from tests.connectors.mqtt_subject import TopicsSubject
from tests.connectors.source_contract import SCHEMA, SourceContract


@pytest.fixture
def mosquitto(tmp_path: Path) -> Iterator[Mosquitto]:
    broker = Mosquitto(tmp_path / "mosquitto").start()
    yield broker
    broker.kill()


class TestMqttSource(SourceContract):
    @pytest.fixture(params=[(1, 1), (2, 1), (1, 3), (2, 3)], ids=lambda p: f"qos{p[0]}-clients{p[1]}")
    async def subject(
        self, tmp_path: Path, mosquitto: Mosquitto, request: pytest.FixtureRequest
    ) -> AsyncIterator[TopicsSubject]:
        qos, clients = request.param
        subject = TopicsSubject(tmp_path, mosquitto, qos=qos, clients=clients)
        # The broker keeps for a session what comes while the source is not there.
        source = subject.make()
        await source.open(SCHEMA)
        assert source.receiver.failure is None
        await source.close()
        yield subject
        subject.close()
