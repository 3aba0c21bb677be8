"""``python quix.py BROKERS TOPIC EVENTS``: reads a topic with Quix Streams; prints events/s."""

from __future__ import annotations

import sys
import uuid

from quixstreams import Application

from suite.reading.frameworks.taken import Taken


def main(brokers: str, topic: str, events: int) -> None:
    """Read until all events are there."""
    app = Application(broker_address=brokers, consumer_group=str(uuid.uuid4()), auto_offset_reset="earliest")
    taken = Taken(events)

    def take(event: dict[str, object]) -> None:
        if per_s := taken.add(event):
            print(f"\nevents/s: {per_s}", flush=True)
            app.stop()

    app.dataframe(app.topic(topic, value_deserializer="json")).update(take)
    app.run()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
