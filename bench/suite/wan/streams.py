"""``python -m suite.wan.streams receive|send|produce ...``: the ends of a stream of events over a WAN.

A receiver, or a producer, prints how many events/s arrived after a warm-up.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path

import pyarrow as pa

from gateway.core.exchange.lanes.credit import CreditWindow
from gateway.sources.rows.jsonlines import LineDecoder
from infra.clock import SystemClock
from infra.link.client import HostLink
from infra.link.keys.identity import HostIdentity
from infra.link.keys.trust import Authority, UserData, new_token
from infra.link.server import HostServer
from infra.messages import Credit, RunMessage
from infra.payload import CodecPolicy, Decoder, Encoder
from suite.reading.decode import NEEDED, lines
from suite.row import lasts_s
from suite.wan.ends import HOST, RUNTIME, elsewhere

RUN_EVENTS = 1_000
WINDOW_BYTES = 16 << 20
"""What engine hosts grant."""
_WARM_UP_S, _MEASURED_S = 4.0, 8.0
_TOPIC = "goodput"


class Meter:
    """Counts events from the end of the warm-up on."""

    def __init__(self) -> None:
        self._warm_up_s = max(0.2, _WARM_UP_S * min(1.0, lasts_s()))
        self._measured_s = max(0.5, _MEASURED_S * min(1.0, lasts_s()))
        self._begun_s: float | None = None
        self._counted_s: float | None = None
        self._events = 0

    def count(self, events: int) -> bool:
        """Count; print the rate and return True when the time is over."""
        now_s = time.monotonic()
        if self._begun_s is None:
            self._begun_s = now_s
        if self._counted_s is None:
            if now_s - self._begun_s >= self._warm_up_s:
                self._counted_s = now_s
            return False
        self._events += events
        if now_s - self._counted_s < self._measured_s:
            return False
        print(json.dumps(self._events / (now_s - self._counted_s)), flush=True)
        return True


def runs() -> list[pa.RecordBatch]:
    """Return runs of events, with the columns that a query needs."""
    events = LineDecoder(NEEDED).decode(lines())[0]
    return [events.slice(at, RUN_EVENTS) for at in range(0, events.num_rows, RUN_EVENTS)]


def new_encoder() -> Encoder:
    """Return the encoder of a lane."""
    return Encoder(NEEDED, codecs=CodecPolicy.parse("zstd"))


def prepare(folder: Path, address: str) -> None:
    """Write the keys of both ends."""
    authority = Authority.open(folder / "gateway")
    user_data = UserData(host=HOST, ca_pem=authority.ca_pem, token=new_token(), listen_host=address)
    identity = HostIdentity.open(user_data, folder / "host")
    identity.install(authority.sign(identity.csr(), HOST))
    (folder / "user-data.json").write_text(user_data.to_json())


async def receive(folder: Path) -> None:
    """Act as a host that decodes runs as they arrive; print its port first."""
    user_data = UserData.from_json((folder / "user-data.json").read_bytes())
    server = HostServer(HostIdentity.open(user_data, folder / "host"), user_data, RUNTIME, clock=SystemClock())
    print((await server.start())[1], flush=True)
    meter, decoder = Meter(), Decoder(NEEDED)
    while True:
        session, message, payload = await server.receive()
        if isinstance(message, RunMessage):
            events = decoder.decode(payload).num_rows
            await server.send(session, Credit(query="q", epoch=1, bytes=len(payload)))
            if meter.count(events):
                return


async def send(folder: Path, address: str, port: int) -> None:
    """Act as a gateway that always has a run to send, within the window."""
    authority = Authority.open(folder / "gateway")
    link = await HostLink.connect((address, port), authority, HOST, "s", clock=SystemClock())
    window, given = CreditWindow(WINDOW_BYTES), asyncio.Event()
    encoder, events, sent = new_encoder(), runs(), 0

    async def hear() -> None:
        while True:
            message, _ = await link.receive()
            if isinstance(message, Credit):
                window.give(message.bytes)
                given.set()

    hearing = asyncio.create_task(hear())
    while not hearing.done():
        payload = encoder.encode(events[sent % len(events)]).payload
        while not window.take(len(payload)):
            given.clear()
            await given.wait()
        first = sent * RUN_EVENTS
        last = first + RUN_EVENTS - 1
        await link.send(RunMessage(query="q", epoch=1, first_seq=first, last_seq=last, attempt=0, rows=1), payload)
        sent += 1


def produce(brokers: str) -> None:
    """Produce to Kafka with zstd, in large batches; the broker acknowledges each."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

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
    producer, said, meter, is_over = Producer({**settings, **more}), lines(), Meter(), False

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
