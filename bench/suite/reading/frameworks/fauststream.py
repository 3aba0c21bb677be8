"""``python fauststream.py BROKERS TOPIC EVENTS FOLDER``: reads a topic with Faust; prints events/s."""

from __future__ import annotations

import os
import sys
import uuid

import faust

from suite.reading.frameworks.taken import Taken


def main(brokers: str, topic: str, events: int, folder: str) -> None:
    """Read until all events are there; the process then ends at once, as nothing is to be kept."""
    app = faust.App(
        f"bench-{uuid.uuid4()}",
        broker=f"kafka://{brokers}",
        datadir=folder,
        consumer_auto_offset_reset="earliest",
        topic_disable_leader=True,
        web_enabled=False,
    )
    taken = Taken(events)

    async def take(stream: faust.StreamT[dict[str, object]]) -> None:
        async for event in stream:
            if per_s := taken.add(event):
                print(f"\nevents/s: {per_s}", flush=True)
                os._exit(0)

    app.agent(app.topic(topic, value_serializer="json"))(take)
    faust.Worker(app, loglevel="error", redirect_stdouts=False).execute_from_commandline()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4])
