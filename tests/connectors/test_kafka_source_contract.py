from __future__ import annotations

from typing import Any

import pytest

from gateway.sources.base import Source
from tests.connectors.kafka_broker import Broker
from tests.connectors.kafka_sources import lines, make_source, put
from tests.connectors.source_contract import SourceContract


class TopicSubject:
    finite = False

    def __init__(self, broker: Broker, topic: str, *, ordered: bool) -> None:
        self._broker = broker
        self._topic = topic
        self.ordered = ordered

    async def put(self, rows: list[dict[str, Any]]) -> None:
        await put(self._broker, self._topic, lines(rows))

    async def put_undecodable(self, raw: bytes) -> None:
        await put(self._broker, self._topic, [raw])

    def make(self) -> Source:
        return make_source(self._broker, self._topic)


class TestKafkaSource(SourceContract):
    @pytest.fixture(params=[1, 3], ids=["one-partition", "three-partitions"])
    async def subject(self, broker: Broker, request: pytest.FixtureRequest) -> TopicSubject:
        topic = await broker.create_topic(partitions=request.param)
        return TopicSubject(broker, topic, ordered=request.param == 1)
