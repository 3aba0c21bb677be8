"""A running query over a topic that was deleted and created again between two starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.statefiles import StateError
from tests.connectors.kafka_broker import Broker
from tests.connectors.kafka_sources import lines, put
from tests.connectors.kafka_topics import made, made_anew
from tests.support.query_site import Engine, Site
from tests.support.waiting import until


async def test_it_is_begun_at_its_start_or_refused(
    broker: Broker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    site, topic = Site(tmp_path), await made(broker)
    source = {"source": {"type": "kafka", "brokers": broker.brokers, "topics": [topic], "group": topic}}

    async def deliver(ids: range, count: int) -> None:
        await put(broker, topic, lines([{"id": i, "text": "x"} for i in ids]))
        async with site.started(Engine(), **source) as query:
            await until(lambda: len(site.ids()) >= count or query.failure() is not None)

    await deliver(range(20), 20)
    await made_anew(broker, topic)
    await deliver(range(100, 140), 60)
    assert site.ids() == [*range(20), *range(100, 140)]
    assert f"({topic} was deleted and created again)" in caplog.text
    assert "as seq 20" in caplog.text

    await put(broker, topic, lines([{"id": 200, "text": "x"}]))
    async with site.started(Engine(silent=True), **source) as query:
        await until(lambda: query.tally.events > 0)
    await made_anew(broker, topic)
    async with site.started(Engine(), **source) as query:
        await until(lambda: query.failure() is not None)
        assert isinstance(query.failure(), StateError)
        assert "1 events that were read from the topics" in str(query.failure())
