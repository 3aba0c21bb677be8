"""A process that commits to an S3 sink until it is killed, five events a run, from the sink's own progress on.

Arguments: endpoint, bucket, epoch, the number of events after which it ends.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from gateway.config.connectors.s3 import S3SinkConfig
from gateway.sinks.base import SinkUnavailableError
from gateway.sinks.choose import SinkContext, make_sink
from infra.clock import SystemClock
from tests.connectors.sink_contract import at, release

PREFIX = "killed"


async def write(endpoint: str, bucket: str, epoch: int, count: int) -> None:
    config = S3SinkConfig(type="s3", bucket=bucket, prefix=PREFIX, endpoint=endpoint)
    sink = make_sink(config, SinkContext("q", "me", epoch, True, Path("unused"), SystemClock()))
    while True:
        try:
            await sink.open()
            break
        except SinkUnavailableError as error:
            print(f"unavailable {error}", flush=True)
    seq = sink.committed.watermark()
    runs = 1
    while seq < count:
        # Cut otherwise after each try, as a delivery may that has more by then.
        runs = runs % 3 + 1
        given = [release(first, first + 4) for first in range(seq, seq + 5 * runs, 5)]
        try:
            await sink.commit(given, at(given[-1].last_seq))
        except SinkUnavailableError as error:
            print(f"unavailable {error}", flush=True)
        else:
            seq = sink.committed.watermark()
    await sink.close()


if __name__ == "__main__":
    asyncio.run(write(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
