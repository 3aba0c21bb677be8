from __future__ import annotations

import asyncio
import hashlib
import random
import socket
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from infra.clock import SystemClock
from infra.link.shaper import ShapedRelay
from tests.link.link_site import Site, run, within
from tests.support.waiting import until

TRIES = 8
# So often in a row a sender is looked at that has not moved, before it is taken to stand still.
STILL_LOOKS = 200
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def relayed(serve: Serve, delay_s: float, rate_bytes_per_s: float) -> AsyncIterator[tuple[ShapedRelay, int]]:
    """A server behind a relay; yields the relay and its port."""
    tasks: list[asyncio.Task[None]] = []

    async def serve_and_abort(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
            writer.close()
            await writer.wait_closed()
        finally:
            writer.transport.abort()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.append(asyncio.create_task(serve_and_abort(reader, writer)))

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    relay = ShapedRelay(server.sockets[0].getsockname(), delay_s, rate_bytes_per_s, SystemClock())
    _, port = await relay.start()
    try:
        yield relay, port
    finally:
        await relay.close()
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def dialled(port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def test_each_way_is_delayed() -> None:
    arrived_s: list[float] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(4)
        arrived_s.append(time.monotonic())
        writer.write(b"pong")

    async with relayed(answer, 0.05, 1e9) as (_, port), dialled(port) as (reader, writer):
        sent_s = time.monotonic()
        writer.write(b"ping")
        assert await within(reader.readexactly(4)) == b"pong"
        back_s = time.monotonic()
    assert arrived_s[0] - sent_s >= 0.05
    assert back_s - arrived_s[0] >= 0.05


@pytest.mark.parametrize("delay_s", [0.0, 0.035])
async def test_the_rate_is_kept_and_the_bytes_are_intact(delay_s: float) -> None:
    shares: list[float] = []
    # A machine that stood still for a third of a second has more than one try; too fast it never is.
    while not shares or (max(shares) < 0.6 and len(shares) < TRIES):
        shares.append(await carried(delay_s, 2_000_000))
    assert 0.6 <= max(shares) <= 1.1


async def carried(delay_s: float, rate_bytes_per_s: int) -> float:
    """Check that bytes arrive intact; return which part of the rate they had."""
    payload = random.Random(7).randbytes(1_000_000)
    finished: asyncio.Future[tuple[str, float]] = asyncio.get_running_loop().create_future()

    async def swallow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received = await reader.read(-1)
        finished.set_result((hashlib.sha256(received).hexdigest(), time.monotonic()))

    async with relayed(swallow, delay_s, rate_bytes_per_s) as (relay, port), dialled(port) as (_, writer):
        start_s = time.monotonic()
        writer.write(payload)
        writer.write_eof()
        digest, end_s = await within(finished)
        assert digest == hashlib.sha256(payload).hexdigest()
        assert (relay.counts.up_bytes, relay.counts.down_bytes) == (len(payload), 0)
    return len(payload) / (end_s - start_s - delay_s) / rate_bytes_per_s


async def test_all_connections_together_keep_the_rate() -> None:
    done = asyncio.Semaphore(0)

    async def swallow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(-1)
        done.release()

    async with relayed(swallow, 0.0, 2_000_000) as (_, port), AsyncExitStack() as stack:
        start_s = time.monotonic()
        for _ in range(4):
            _, writer = await stack.enter_async_context(dialled(port))
            writer.write(bytes(200_000))
            writer.write_eof()
        for _ in range(4):
            await within(done.acquire())
        assert time.monotonic() - start_s >= 800_000 / 2_000_000 * 0.9


async def test_small_traffic_passes_beside_bulk() -> None:
    async def answer_pings(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            if data == b"ping":
                writer.write(b"pong")

    async with (
        relayed(answer_pings, 0.0, 1_000_000) as (relay, port),
        dialled(port) as (_, bulk),
        dialled(port) as (reader, writer),
    ):
        bulk.write(bytes(3_000_000))
        await until(lambda: relay.counts.up_bytes > 50_000)
        writer.write(b"ping")
        assert await within(reader.readexactly(4)) == b"pong"
        assert relay.counts.up_bytes < 1_500_000, "the small message waited behind the bulk"


async def test_a_reader_that_stops_stops_the_sender() -> None:
    written_bytes = 0

    async def never_read(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    async with relayed(never_read, 0.0, 1e9) as (relay, port), dialled(port) as (_, writer):

        async def pump() -> None:
            nonlocal written_bytes
            while written_bytes < 200_000_000:
                writer.write(bytes(100_000))
                written_bytes += 100_000
                await writer.drain()

        pumping = asyncio.create_task(pump())
        await until(lambda: relay.counts.up_bytes > 0)
        before, looks = 0, 0

        def stands_still() -> bool:
            nonlocal before, looks
            looks = looks + 1 if written_bytes == before else 0
            before = written_bytes
            return looks > STILL_LOOKS

        await until(lambda: stands_still() or pumping.done())
        assert 0 < relay.counts.up_bytes <= written_bytes < 30_000_000, "only what the kernel's own buffers take"
        pumping.cancel()


async def test_a_half_close_passes_and_the_answer_comes_back() -> None:
    async def answer_after_the_end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(str(len(await reader.read(-1))).encode())

    async with relayed(answer_after_the_end, 0.01, 1e7) as (_, port), dialled(port) as (reader, writer):
        writer.write(bytes(123_456))
        writer.write_eof()
        assert await within(reader.read(-1)) == b"123456"


@pytest.mark.parametrize("who", ["client", "target"])
async def test_a_reset_passes(who: str) -> None:
    seen: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    async def take_part(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(1)
        if who == "target":
            reset(writer)
            return
        with pytest.raises(ConnectionResetError):
            await reader.read(1)
        seen.set_result(True)

    async with relayed(take_part, 0.01, 1e7) as (relay, port), dialled(port) as (reader, writer):
        writer.write(b"x")
        await until(lambda: relay.counts.up_bytes == 1)
        if who == "client":
            reset(writer)
            assert await within(seen)
        else:
            with pytest.raises(ConnectionResetError):
                await within(reader.read(1))


def reset(writer: asyncio.StreamWriter) -> None:
    linger_not = struct.pack("ii", 1, 0)
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger_not)
    writer.transport.abort()


async def test_a_target_that_is_not_there_resets() -> None:
    relay = ShapedRelay(("127.0.0.1", 1), 0.0, 1e6, SystemClock())
    _, port = await relay.start()
    async with dialled(port) as (reader, _):
        with pytest.raises(ConnectionResetError):
            await within(reader.read(1))
    await relay.close()


@pytest.mark.parametrize(("delay_s", "rate_bytes_per_s"), [(0.0, 0.0), (-1.0, 1.0)])
async def test_an_impossible_wan_is_refused(delay_s: float, rate_bytes_per_s: float) -> None:
    with pytest.raises(ValueError, match="are not valid for a WAN"):
        ShapedRelay(("127.0.0.1", 1), delay_s, rate_bytes_per_s, SystemClock())


async def test_a_link_works_through_a_wan(site: Site) -> None:
    relay = ShapedRelay(site.address, 0.02, 5_000_000, site.clock)
    site.address = await relay.start()
    try:
        link = await site.started()
        payload = random.Random(1).randbytes(500_000)
        await link.send(run(), payload)
        assert await within(site.server.receive()) == ("s1", run(), payload)
        await until(lambda: link.stats.rtt_s is not None)
        assert (link.stats.rtt_s or 0) >= 0.04
        assert relay.counts.up_bytes > len(payload)
        await link.close("test over")
    finally:
        await relay.close()
