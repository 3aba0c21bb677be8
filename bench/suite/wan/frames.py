"""Runs over a link with mutual TLS: encoded, sent, received by another process, decoded, and acknowledged."""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pyarrow.flight as flight
import zstandard

from infra.link.client import HostLink
from infra.link.keys.certificates import Credential, Purpose, issue, new_authority, new_key
from infra.link.server import HostServer
from infra.messages import CommittedMessage, Dictionary, RunMessage
from infra.payload import CodecPolicy, Decoder, Encoder
from suite.row import Row, lasts_s, rate_of
from suite.turns import OURS, Goal, Sample
from suite.wan.ends import elsewhere, linked

EVENTS, IN_FLIGHT, SEED, DIFFERENT = 1_000, 16, 17, 256
SCHEMA = pa.schema({"device": pa.string(), "at": pa.int64(), "value": pa.float64(), "unit": pa.string()})
RATE, SIZE = "events/s", "bytes an event"
FAST_BYTES_PER_S = 125e6


def batch(seed: int = SEED) -> pa.RecordBatch:
    """Return small events."""
    rng = np.random.default_rng(seed)
    return pa.RecordBatch.from_pydict(
        {
            "device": [f"device-{at}" for at in rng.integers(500, size=EVENTS).tolist()],
            "at": np.arange(EVENTS) + 1_750_000_000_000 + seed * EVENTS,
            "value": np.round(rng.normal(20, 5, EVENTS), 3),
            "unit": ["C"] * EVENTS,
        },
        SCHEMA,
    )


def batches() -> list[pa.RecordBatch]:
    """Return runs of small events; they differ, as a dictionary of one run's events would compress it to nothing."""
    return [batch(seed) for seed in range(DIFFERENT)]


async def _acknowledge(server: HostServer, decoder: Decoder) -> None:
    while True:
        session, message, payload = await server.receive()
        if isinstance(message, Dictionary):
            decoder.add_dictionary(message.field, message.dictionary_id, payload)
        elif isinstance(message, RunMessage):
            if decoder.decode(payload).num_rows != EVENTS:
                return
            await server.send(session, CommittedMessage(query="", epoch=0, last_seq=message.last_seq))


async def _sent(link: HostLink, events: Sequence[pa.RecordBatch], mode: str) -> Sample:
    """Send runs for a while; return acknowledged events per second, and bytes."""
    codecs = CodecPolicy.parse(mode)
    codecs.link_rate(FAST_BYTES_PER_S)
    encoder, sent_bytes = Encoder(SCHEMA, codecs=codecs), 0
    room, runs = asyncio.Semaphore(IN_FLIGHT), 0

    async def take() -> None:
        while True:
            await link.receive()
            room.release()

    taking = asyncio.create_task(take())
    begun_s = time.perf_counter()
    while time.perf_counter() - begun_s < lasts_s():
        await room.acquire()
        first = runs * EVENTS
        encoded = encoder.encode(events[runs % DIFFERENT])
        for new in encoded.dictionaries:
            dictionary = Dictionary(query="", field=new.field, dictionary_id=new.dictionary_id)
            await link.send(dictionary, new.data)
        message = RunMessage(query="", epoch=0, first_seq=first, last_seq=first + EVENTS - 1, attempt=0, rows=EVENTS)
        await link.send(message, encoded.payload)
        sent_bytes += len(encoded.payload)
        runs += 1
    for _ in range(IN_FLIGHT):
        await room.acquire()
    took_s = time.perf_counter() - begun_s
    taking.cancel()
    return Sample({RATE: runs * EVENTS / took_s, SIZE: sent_bytes / (runs * EVENTS)})


async def _over_link(mode: str) -> Sample:
    async with linked(_acknowledge, SCHEMA) as link:
        return await _sent(link, batches(), mode)


def ours() -> Sample:
    """Measure the gateway's link, its encoder with zstd, and a host's decoder."""
    return asyncio.run(_over_link("zstd"))


def by_auto() -> Sample:
    """Measure what ``auto`` sends on a link of 1 Gbit/s, on which it weighs bytes against CPU."""
    return asyncio.run(_over_link("auto"))


# --------------------------------------------------------------------------------------------------------- Arrow Flight


class _Sink(flight.FlightServerBase):  # type: ignore[misc]
    """Reads batches, and acknowledges each."""

    def do_put(self, _context: object, _descriptor: object, reader: object, writer: object) -> None:
        """See ``FlightServerBase``."""
        for chunk in reader:  # type: ignore[attr-defined]
            if chunk.data.num_rows != EVENTS:
                return
            writer.write(pa.py_buffer(b"1"))  # type: ignore[attr-defined]


def _flight_server(ca_pem: bytes, pair: tuple[bytes, bytes], port: multiprocessing.Queue[int]) -> None:
    elsewhere()
    server = _Sink("grpc+tls://127.0.0.1:0", tls_certificates=[pair], verify_client=True, root_certificates=ca_pem)
    port.put(server.port)
    server.serve()


@contextmanager
def _flight() -> Iterator[flight.FlightClient]:
    now = datetime.now(UTC)
    authority = new_authority(now)
    pairs = []
    for name, purpose in (("server", Purpose.HOST), ("client", Purpose.GATEWAY)):
        key = new_key()
        signed = Credential(key, issue(authority, key.public_key(), name, purpose, now))
        pairs.append((signed.certificate_pem, signed.to_pem()))
    port: multiprocessing.Queue[int] = multiprocessing.Queue()
    server = multiprocessing.Process(target=_flight_server, args=(authority.certificate_pem, pairs[0], port))
    server.start()
    try:
        yield flight.FlightClient(
            f"grpc+tls://127.0.0.1:{port.get(timeout=30)}",
            tls_root_certs=authority.certificate_pem,
            cert_chain=pairs[1][0],
            private_key=pairs[1][1],
            override_hostname="server",
        )
    finally:
        server.kill()
        server.join()


def by_flight() -> Sample:
    """Measure Arrow Flight with zstd: as many batches in flight."""
    events = batches()
    options = flight.FlightCallOptions(write_options=pa.ipc.IpcWriteOptions(compression="zstd"))
    with _flight() as client:
        writer, reader = client.do_put(flight.FlightDescriptor.for_path("bench"), SCHEMA, options)
        begun_s, sent, acknowledged = time.perf_counter(), 0, 0
        while time.perf_counter() - begun_s < lasts_s():
            writer.write_batch(events[sent % DIFFERENT])
            sent += 1
            if sent - acknowledged >= IN_FLIGHT:
                reader.read()
                acknowledged += 1
        while acknowledged < sent:
            reader.read()
            acknowledged += 1
        took_s = time.perf_counter() - begun_s
        writer.close()
    return Sample({RATE: sent * EVENTS / took_s})


def by_zstd() -> Sample:
    """Measure the limit: Arrow's IPC and zstd-1 on one core, sent nowhere."""
    events, packer = batch(), zstandard.ZstdCompressor(level=1)

    def work() -> int:
        packer.compress(events.serialize())
        return EVENTS

    return Sample({RATE: rate_of(work), SIZE: len(packer.compress(events.serialize())) / EVENTS})


ROW = Row(
    name="frames",
    title="runs over a link with mutual TLS",
    sides={OURS: ours, "Spillway, auto": by_auto, "Arrow Flight, zstd": by_flight, "serialise and zstd-1": by_zstd},
    goals=(Goal(RATE, "Arrow Flight, zstd", 2.0), Goal(RATE, "serialise and zstd-1", 0.75)),
    note="Runs of 1,000 small events, 16 in flight, over loopback; the receiver has a CPU of its own and decodes them. "
    "auto weighs bytes against CPU, on a link of 1 Gbit/s.",
)
