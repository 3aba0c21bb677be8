"""``python -m suite.wan.streams receive|send|produce ...``: the ends of a stream of events over a WAN.

A receiver, or a producer, prints how many events/s arrived after a warm-up.
"""

from __future__ import annotations

import asyncio
import sys
import time
from itertools import cycle
from pathlib import Path

import pyarrow as pa
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from infra.messages import Credit, RunMessage
from infra.payload import CodecPolicy, Decoder, Encoder
from infra.rows.jsonlines import LineDecoder
from suite.reading.decode import NEEDED, lines
from suite.row import lasts_s
from suite.wan.ends import connect, elsewhere, server_of
from suite.wan.pouring import Meter, pour

RUN_EVENTS = 1_000
WINDOW_BYTES = 16 << 20
"""What engine hosts grant."""
_WARM_UP_S, _MEASURED_S = 3.0, 6.0
_TOPIC = "goodput"


def _meter() -> Meter:
    part = min(1.0, lasts_s())
    return Meter(max(0.2, _WARM_UP_S * part), max(0.5, _MEASURED_S * part))


def runs() -> list[pa.RecordBatch]:
    """Return runs of events, with the columns that a query needs."""
    events = LineDecoder(NEEDED).decode(lines())[0]
    return [events.slice(at, RUN_EVENTS) for at in range(0, events.num_rows, RUN_EVENTS)]


def new_encoder() -> Encoder:
    """Return the encoder of a lane."""
    return Encoder(NEEDED, codecs=CodecPolicy.parse("zstd"))


async def receive(folder: Path) -> None:
    """Act as a host that decodes runs as they arrive; print its port first."""
    server, meter, decoder = server_of(folder), _meter(), Decoder(NEEDED)
    print((await server.start())[1], flush=True)
    while True:
        session, message, payload = await server.receive()
        if isinstance(message, RunMessage):
            events = decoder.decode(payload).num_rows
            await server.send(session, Credit(query="q", epoch=1, bytes=len(payload)))
            if meter.count(events):
                return


async def send(folder: Path, address: str, port: int) -> None:
    """Encode and send runs until the other end is gone."""
    encoder, events = new_encoder(), cycle(runs())
    link = await connect(folder, (address, port))
    await pour(link, lambda: encoder.encode(next(events)).payload, RUN_EVENTS, WINDOW_BYTES)


def produce(brokers: str) -> None:
    """Produce to Kafka with zstd, in large batches; the broker acknowledges each."""
    admin = AdminClient({"bootstrap.servers": brokers})
    topic = f"{_TOPIC}-{time.time_ns()}"
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result()
    settings = {"bootstrap.servers": brokers, "compression.type": "zstd", "linger.ms": 100, "acks": "all"}
    # In flight: what the WAN holds, and more.
    more = {
        "batch.size": 1 << 20,
        "queue.buffering.max.kbytes": 1 << 16,
        "max.in.flight": 64,
        "batch.num.messages": 8_000,
    }
    producer, said, meter, is_over = Producer({**settings, **more}), lines(), _meter(), False

    def delivered(error: object, _: object) -> None:
        nonlocal is_over
        if error is not None:
            raise RuntimeError(f"a record was not delivered: {error}")
        is_over = is_over or meter.count(1)

    at = 0
    while not is_over:
        try:
            producer.produce(topic, said[at % len(said)], on_delivery=delivered)
            at += 1
        except BufferError:
            producer.poll(0.01)
        if at % 1_000 == 0:
            producer.poll(0)


if __name__ == "__main__":
    role, *told = sys.argv[1:]
    if role == "receive":
        elsewhere()
        asyncio.run(receive(Path(told[0])))
    elif role == "send":
        asyncio.run(send(Path(told[0]), told[1], int(told[2])))
    else:
        produce(told[0])
