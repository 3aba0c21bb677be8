"""A process that commits to a Kafka sink until it is killed, five events a run, from the sink's own progress on.

Arguments: brokers, topic, epoch, the number of events after which it ends. It prints ``open`` when it begins to write,
each watermark that it has committed, and the reason if it has to stop.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from gateway.sinks.base import FencedError, SinkUnavailableError
from tests.connectors.kafka_sinks import make_sink
from tests.connectors.sink_contract import at, release

RUN_EVENTS = 5
COMMIT_RUNS = 3


async def write(brokers: str, topic: str, epoch: int, count: int) -> None:
    sink = make_sink(brokers, topic, epoch=epoch)
    await sink.open()
    seq = sink.committed.watermark()
    print(f"open {seq}", flush=True)
    while seq < count:
        given: list[Any] = []
        for _ in range(COMMIT_RUNS):
            given.append(release(seq, seq + RUN_EVENTS - 1))
            seq += RUN_EVENTS
        try:
            await sink.commit(given, at(seq - 1))
        except SinkUnavailableError as error:
            print(f"unavailable {error}", flush=True)
            seq = given[0].first_seq
            await asyncio.sleep(0.05)
            continue
        print(f"committed {seq}", flush=True)
    await sink.close()


def main() -> None:
    brokers, topic, epoch, count = sys.argv[1:]
    try:
        asyncio.run(write(brokers, topic, int(epoch), int(count)))
    except FencedError as error:
        print(f"fenced {error}", flush=True)
        sys.exit(3)


if __name__ == "__main__":
    main()
