"""What the connectors' tests share: the real servers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kafka_broker import Broker


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A Kafka broker for the whole session: use topics of your own, and leave it running."""
    broker = Broker(tmp_path_factory.mktemp("kafka"))
    broker.start()
    yield broker
    broker.stop()
