"""The Kafka sink against the contract of all sinks, with a real broker."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.sinks.base import Sink
from tests.connectors.kafka_broker import Broker
from tests.connectors.kafka_sinks import make_sink, values
from tests.connectors.sink_contract import HandoverContract, NotedHandover, SinkContract


class KafkaSubject:
    """A topic of one partition, so that the order of release can be read back."""

    exactly_once = True
    fences = True

    def __init__(self, broker: Broker, topic: str) -> None:
        self._broker = broker
        self._topic = topic
        self._made: list[Sink] = []

    def make(self, *, owner: str = "me", epoch: int = 1, handover: NotedHandover | None = None) -> Sink:
        # With a handover each release takes a transaction, so that a commit takes several steps.
        most = 32 * 2**20 if handover is None else 1
        sink = make_sink(
            self._broker.brokers, self._topic, owner=owner, epoch=epoch, handover=handover, transaction_bytes=most
        )
        self._made.append(sink)
        return sink

    async def rows(self) -> list[dict[str, Any]]:
        return await values(self._broker, self._topic)

    async def close(self) -> None:
        for sink in self._made:
            await sink.close()


class TestKafkaSink(SinkContract, HandoverContract):
    @pytest.fixture
    async def subject(self, broker: Broker) -> Any:
        subject = KafkaSubject(broker, await broker.create_topic())
        yield subject
        await subject.close()
