"""The Kafka broker of the rows that need one."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.connectors.kafka_broker import Broker

BROKERS = "SPILLWAY_BENCH_BROKERS"
"""The environment variable that tells the sides of a row where it is."""


@contextmanager
def broker() -> Iterator[Broker]:
    """Run a broker."""
    with tempfile.TemporaryDirectory(prefix="spillway-bench-") as name:
        found = Broker(Path(name) / "kafka")
        found.start()
        try:
            yield found
        finally:
            found.stop()
