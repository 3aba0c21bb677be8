from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from engines.streaming.feed import FeedServer
from tests.engines.stream_bench import Bench


@pytest.fixture(scope="session")
def feeds() -> Iterator[FeedServer]:
    server = FeedServer()
    yield server
    server.close()


@pytest.fixture
def bench(spark: SparkSession, feeds: FeedServer) -> Iterator[Bench]:
    """Opens streams in the shared session; all are closed when the test ends."""
    bench = Bench(spark, feeds)
    yield bench
    bench.close()
