"""What a hop over the link adds at 10,000 events/s: out to an engine that answers at once, back, and in order."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import socket
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from pathlib import Path

import aiomqtt
import nats
import numpy as np
import pyarrow as pa

from gateway.core.exchange.reorder import Reorderer
from infra.link.client import HostLink
from infra.link.server import HostServer
from infra.messages import Completed, RunMessage
from infra.payload import CodecPolicy, Decoder, Encoder
from infra.together import end_tasks
from suite.natsserver import NatsServer
from suite.row import Row, SideError, lasts_s
from suite.turns import OURS, Goal, Sample
from suite.wan.ends import elsewhere, linked
from suite.wan.frames import SCHEMA, batch
from tests.connectors.mosquitto import Mosquitto

EVENTS, RUNS_PER_S, SETTLE_RUNS = 100, 100, 20
P50, P99 = "ms, median", "ms, 99 %"
_MQTT, _NATS, _TOPIC = "SPILLWAY_BENCH_MQTT", "SPILLWAY_BENCH_NATS", "bench.hop"
_WITHIN_S = 60.0
_CODECS = CodecPolicy.parse("none")

Send = Callable[[int], Awaitable[None]]
"""Sends the run with a number."""


@contextmanager
def around() -> Iterator[Mapping[str, str]]:
    """Run a mosquitto and a NATS server."""
    with tempfile.TemporaryDirectory(prefix="spillway-bench-") as name, NatsServer() as there:
        broker = Mosquitto(Path(name)).start()
        try:
            yield {_MQTT: str(broker.port), _NATS: there.url}
        finally:
            broker.stop()


def _frame() -> bytes:
    """Return what the link sends for a run."""
    return bytes(Encoder(SCHEMA, codecs=_CODECS).encode(batch().slice(0, EVENTS)).payload)


async def _paced(send: Send, came: asyncio.Queue[float]) -> Sample:
    """Send runs at an even rate; ``came`` gets the time of each answer, in the order of the runs."""
    runs = SETTLE_RUNS + max(20, int(3 * RUNS_PER_S * min(1.0, lasts_s())))
    begun_s, sent_s = time.perf_counter(), []
    for run in range(runs):
        await asyncio.sleep(begun_s + run / RUNS_PER_S - time.perf_counter())
        sent_s.append(time.perf_counter())
        await send(run)
    async with asyncio.timeout(_WITHIN_S):
        came_s = [await came.get() for _ in range(runs)]
    taken_ms = 1e3 * (np.array(came_s) - np.array(sent_s))[SETTLE_RUNS:]
    return Sample({P50: float(np.median(taken_ms)), P99: float(np.quantile(taken_ms, 0.99))})


# ---------------------------------------------------------------------------------------------------------------- ours


async def _answer(server: HostServer, decoder: Decoder) -> None:
    encoder = Encoder(SCHEMA, codecs=_CODECS)
    while True:
        session, message, payload = await server.receive()
        if isinstance(message, RunMessage):
            results = encoder.encode(decoder.decode(payload))
            done = Completed(
                query="",
                epoch=0,
                first_seq=message.first_seq,
                last_seq=message.last_seq,
                attempt=0,
                rows=results.rows,
                batch_id=0,
                batch_s=0.0,
            )
            await server.send(session, done, results.payload)


async def _take(link: HostLink, came: asyncio.Queue[float]) -> None:
    decoder, order = Decoder(SCHEMA), Reorderer[pa.RecordBatch](flush_s=None)
    while True:
        message, payload = await link.receive()
        if isinstance(message, Completed):
            now_s = time.perf_counter()
            for released in order.complete(message.first_seq, message.last_seq, decoder.decode(payload), now_s):
                if released.item.num_rows != EVENTS:
                    raise SideError(f"{released.item.num_rows} rows came of {EVENTS}")
                came.put_nowait(time.perf_counter())


async def _by_link() -> Sample:
    events, encoder = batch().slice(0, EVENTS), Encoder(SCHEMA, codecs=_CODECS)
    came = asyncio.Queue[float]()
    async with linked(_answer, SCHEMA) as link:

        async def send(run: int) -> None:
            first = run * EVENTS
            message = RunMessage(
                query="", epoch=0, first_seq=first, last_seq=first + EVENTS - 1, attempt=0, rows=EVENTS
            )
            await link.send(message, encoder.encode(events).payload)

        taking = asyncio.create_task(_take(link, came))
        try:
            return await _paced(send, came)
        finally:
            await end_tasks(taking)


def ours() -> Sample:
    """Measure the gateway's encoder, its link with mutual TLS, both decoders, and the reorder buffer."""
    return asyncio.run(_by_link())


# ------------------------------------------------------------------------------------------------------------- others


def _echo_server(port: multiprocessing.Queue[int]) -> None:
    elsewhere()
    asyncio.run(_echo(port))


async def _echo(port: multiprocessing.Queue[int]) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            writer.write(data)

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port.put(server.sockets[0].getsockname()[1])
    await server.serve_forever()


async def _by_echo(port: int) -> Sample:
    frame, came = _frame(), asyncio.Queue[float]()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    async def send(_: int) -> None:
        writer.write(frame)
        await writer.drain()

    async def take() -> None:
        while True:
            await reader.readexactly(len(frame))
            came.put_nowait(time.perf_counter())

    taking = asyncio.create_task(take())
    try:
        return await _paced(send, came)
    finally:
        await end_tasks(taking)
        writer.close()


def by_echo() -> Sample:
    """Measure the limit: asyncio sends the same bytes to another process, which sends them back; no TLS."""
    port: multiprocessing.Queue[int] = multiprocessing.Queue()
    server = multiprocessing.Process(target=_echo_server, args=(port,))
    server.start()
    try:
        return asyncio.run(_by_echo(port.get(timeout=30)))
    finally:
        server.kill()
        server.join()


@asynccontextmanager
async def _by_mosquitto(came: asyncio.Queue[float]) -> AsyncIterator[Send]:
    frame = _frame()
    async with aiomqtt.Client("127.0.0.1", int(os.environ[_MQTT])) as client:
        await client.subscribe(_TOPIC)

        async def take() -> None:
            async for _ in client.messages:
                came.put_nowait(time.perf_counter())

        async def send(_: int) -> None:
            await client.publish(_TOPIC, frame)

        taking = asyncio.create_task(take())
        yield send
        await end_tasks(taking)


@asynccontextmanager
async def _by_nats(came: asyncio.Queue[float]) -> AsyncIterator[Send]:
    frame, client = _frame(), await nats.connect(os.environ[_NATS])

    async def take(_: object) -> None:
        came.put_nowait(time.perf_counter())

    await client.subscribe(_TOPIC, cb=take)

    async def send(_: int) -> None:
        await client.publish(_TOPIC, frame)
        await client.flush()

    yield send
    await client.close()


def _hop(opened: Callable[[asyncio.Queue[float]], AbstractAsyncContextManager[Send]]) -> Sample:
    async def measured() -> Sample:
        came = asyncio.Queue[float]()
        async with opened(came) as send:
            return await _paced(send, came)

    return asyncio.run(measured())


def by_mosquitto() -> Sample:
    """Measure one hop through mosquitto, QoS 0."""
    return _hop(_by_mosquitto)


def by_nats() -> Sample:
    """Measure one hop through a NATS server."""
    return _hop(_by_nats)


ECHO = "asyncio echo"
ROW = Row(
    name="latency",
    title="what a hop adds: 10,000 events/s in runs of 100, over loopback",
    sides={OURS: ours, "mosquitto": by_mosquitto, "NATS": by_nats, ECHO: by_echo},
    goals=(
        Goal(P50, ECHO, 1.3, at_least=False),
        Goal(P99, ECHO, 1.5, at_least=False),
        *(Goal(P50, peer, 1.0, at_least=False) for peer in ("mosquitto", "NATS")),
    ),
    note="From a complete run to its results in order: encoded as for an engine at home, sent with mutual TLS, "
    "decoded, encoded again and sent back by an engine that does nothing else, decoded, and put in order. The others "
    "carry the same bytes, without TLS; mosquitto and NATS one way, the echo both ways.",
    around=around,
)
