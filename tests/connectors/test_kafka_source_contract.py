from __future__ import annotations

from typing import Any

import pytest
from kafka_broker import Broker
from kafka_sources import lines, make_source, put
from source_contract import SourceContract

from gateway.sources.base import Source


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
