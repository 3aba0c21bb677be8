"""``python quix.py BROKERS TOPIC EVENTS FOLDER``: reads a topic with Quix Streams; prints events/s."""

from __future__ import annotations

import sys
import uuid

from quixstreams import Application

from suite.reading.frameworks.taken import Taken


def main(brokers: str, topic: str, events: int, folder: str) -> None:
    """Read until all events are there."""
    group = str(uuid.uuid4())
    app = Application(broker_address=brokers, consumer_group=group, auto_offset_reset="earliest", state_dir=folder)
    taken = Taken(events)

    def take(event: dict[str, object]) -> None:
        if per_s := taken.add(event):
            print(f"\nevents/s: {per_s}", flush=True)
            app.stop()

    app.dataframe(app.topic(topic, value_deserializer="json")).update(take)
    app.run()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4])
