"""An emulated WAN in user space: a TCP relay on loopback that delays each direction and limits its rate.

It is used where root or netem is not available. Each direction is one bottleneck that all connections share. They take
turns in small chunks, as with flow queueing in a router, so that heartbeats do not queue behind bulk.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections import deque
from collections.abc import Coroutine
from dataclasses import dataclass, field

from infra.clock import Clock
from infra.together import end_tasks

MAX_CONNECTIONS = 64
_CHUNK_BYTES = 16 << 10
_QUEUE_BYTES = 256 << 10
_SINK_BUFFER_BYTES = 64 << 10
_DIAL_S = 10.0
_COARSE_S = 0.001  # resolution of timers: a shorter chunk is sent at once, and the next one waits longer
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


@dataclass
class RelayCounts:
    """Bytes that have left the relay.

    Attributes:
        up_bytes: to the target.
        down_bytes: from the target.
    """

    up_bytes: int = 0
    down_bytes: int = 0


# A chunk in transit: bytes; empty for the end of a direction; None for a reset.
_Chunk = bytes | None


@dataclass
class _Flow:
    """One direction of one connection: chunks that wait for their turn, then chunks that are in transit."""

    max_in_flight_bytes: int
    queued: deque[_Chunk] = field(default_factory=deque)
    under_way: deque[tuple[float, _Chunk]] = field(default_factory=deque)
    in_flight_bytes: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def wait(self) -> None:
        self.changed.clear()
        await self.changed.wait()


class _Bottleneck:
    """One direction of the WAN: sends the flows' chunks one after another, a chunk of each flow in turn."""

    def __init__(self, delay_s: float, rate_bytes_per_s: float, clock: Clock) -> None:
        self._delay_s = delay_s
        self._rate_bytes_per_s = rate_bytes_per_s
        self._clock = clock
        self._turns: deque[_Flow] = deque()
        self._work = asyncio.Event()
        self._free_at_s = clock.now()

    def queue(self, flow: _Flow, chunk: _Chunk) -> None:
        if not flow.queued:
            self._turns.append(flow)
            self._work.set()
        flow.queued.append(chunk)
        flow.in_flight_bytes += len(chunk or b"")

    async def transmit(self) -> None:
        while True:
            if not self._turns:
                self._work.clear()
                await self._work.wait()
                # Only an idle line resets its schedule: while chunks wait, a late timer costs no rate.
                self._free_at_s = max(self._free_at_s, self._clock.now())
            flow = self._turns.popleft()
            chunk = flow.queued.popleft()
            if flow.queued:
                self._turns.append(flow)
            self._free_at_s += len(chunk or b"") / self._rate_bytes_per_s
            flow.under_way.append((self._free_at_s + self._delay_s, chunk))
            flow.changed.set()
            if self._free_at_s - self._clock.now() > _COARSE_S:
                await self._clock.sleep_until(self._free_at_s)


class ShapedRelay:
    """Relays TCP connections to ``target`` through an emulated WAN.

    Bytes, their order, half-closes and resets are passed on; connection set-up is not delayed. A flow with ``delay_s *
    rate_bytes_per_s`` and 256 kB in flight is not read any further.

    Args:
        target: host and port.
        delay_s: one way.
        rate_bytes_per_s: of each direction, shared by all connections.
        clock: measures the delay.

    Attributes:
        counts: what has passed.
    """

    def __init__(self, target: tuple[str, int], delay_s: float, rate_bytes_per_s: float, clock: Clock) -> None:
        if delay_s < 0 or rate_bytes_per_s <= 0:
            raise ValueError(f"a delay of {delay_s} s and a rate of {rate_bytes_per_s} bytes/s are not valid for a WAN")
        self.counts = RelayCounts()
        self._target = target
        self._clock = clock
        self._max_in_flight_bytes = int(delay_s * rate_bytes_per_s) + _QUEUE_BYTES
        self._up = _Bottleneck(delay_s, rate_bytes_per_s, clock)
        self._down = _Bottleneck(delay_s, rate_bytes_per_s, clock)
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._connections = 0

    async def start(self) -> tuple[str, int]:
        """Listen on a free port of loopback and return the address."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, limit=_CHUNK_BYTES)
        self._run(self._up.transmit())
        self._run(self._down.transmit())
        host, port = self._server.sockets[0].getsockname()
        return host, port

    async def close(self) -> None:
        """Reset all connections and stop listening."""
        if self._server is not None:
            self._server.close()
        await end_tasks(*self._tasks)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._connections >= MAX_CONNECTIONS:
            _reset(writer)
        else:
            self._connections += 1
            self._run(self._connect(reader, writer))

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers = [writer]
        try:
            async with asyncio.timeout(_DIAL_S):
                far_reader, far_writer = await asyncio.open_connection(*self._target, limit=_CHUNK_BYTES)
            writers.append(far_writer)
            async with asyncio.TaskGroup() as group:
                self._relay(group, reader, far_writer, is_up=True)
                self._relay(group, far_reader, writer, is_up=False)
            for each in writers:
                each.close()
        except* (OSError, TimeoutError):
            for each in writers:
                _reset(each)
        except* asyncio.CancelledError:
            for each in writers:
                _reset(each)
            raise
        finally:
            self._connections -= 1

    def _relay(
        self, group: asyncio.TaskGroup, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, is_up: bool
    ) -> None:
        flow = _Flow(self._max_in_flight_bytes)
        sink.transport.set_write_buffer_limits(high=_SINK_BUFFER_BYTES)
        group.create_task(self._read(source, flow, self._up if is_up else self._down))
        group.create_task(self._deliver(flow, sink, is_up=is_up))

    async def _read(self, source: asyncio.StreamReader, flow: _Flow, neck: _Bottleneck) -> None:
        try:
            while chunk := await source.read(_CHUNK_BYTES):
                neck.queue(flow, chunk)
                while flow.in_flight_bytes >= flow.max_in_flight_bytes:
                    await flow.wait()
            neck.queue(flow, b"")
        except OSError:
            neck.queue(flow, None)

    async def _deliver(self, flow: _Flow, sink: asyncio.StreamWriter, *, is_up: bool) -> None:
        while True:
            while not flow.under_way:
                await flow.wait()
            due_s, chunk = flow.under_way.popleft()
            await self._clock.sleep_until(due_s)
            if chunk is None:
                raise ConnectionResetError("the other side closed the connection")
            try:
                if not chunk:
                    sink.write_eof()
                    return
                sink.write(chunk)
                await sink.drain()
            except OSError:
                return  # the sink's own reader sees this too, and passes it back with the delay it is due
            if is_up:
                self.counts.up_bytes += len(chunk)
            else:
                self.counts.down_bytes += len(chunk)
            flow.in_flight_bytes -= len(chunk)
            flow.changed.set()

    def _run(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _reset(writer: asyncio.StreamWriter) -> None:
    connection: socket.socket = writer.get_extra_info("socket")
    with contextlib.suppress(OSError):  # it may be closed already
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
    writer.transport.abort()
