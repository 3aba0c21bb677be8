"""One TLS connection that carries frames: serialised writes, bounded buffers, and a reason when it ends."""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
from collections import deque
from collections.abc import Coroutine

import psutil

from infra import messages
from infra.link.frames import MAX_PAYLOAD_BYTES, Buffer, Frame, FrameDecoder, FrameError, encode_frame
from infra.link.tcp import TcpCounts, tcp_counts
from infra.messages import AnyMessage, Bye, Completed, Dictionary, Ping, Pong, RunMessage, StateMessage, TablePart
from infra.together import await_shared

STREAM_LIMIT_BYTES = 256 << 10
_PIECE_BYTES = 256 << 10
_WRITE_BUFFER_BYTES = 512 << 10
_FAREWELL_S = 1.0
_MAX_REASON = 500


class LinkLost(Exception):  # noqa: N818 - established name of this error
    """The link is lost: nothing more can be sent or received.

    Attributes:
        reason: one sentence.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Goodbye(LinkLost):
    """The other end closed the link on purpose, and gave a reason."""


def channel_for(message: AnyMessage) -> messages.ChannelName:
    """Return which of a link's connections carries a message; only bulk goes over ``data``."""
    bulk = RunMessage | Completed | Dictionary | TablePart | StateMessage
    return "data" if isinstance(message, bulk) else "control"


def pong_for(ping: Ping) -> Pong:
    """Return the answer to a heartbeat, with this process's load and memory."""
    process = psutil.Process()
    return Pong(
        sent_s=ping.sent_s, load1=os.getloadavg()[0], rss_bytes=process.memory_info().rss, cpu=_cpu_use(process)
    )


def _cpu_use(process: psutil.Process) -> float:
    """Return the mean use, since the last call, of the CPUs that this process may use, Spark's use included."""
    uses = psutil.cpu_percent(percpu=True)
    mine = [uses[cpu] for cpu in process.cpu_affinity() if cpu < len(uses)]
    return min(1.0, max(0.0, sum(mine) / (100 * len(mine)))) if mine else 0.0


class Channel:
    """Frames over one connection.

    One task may call ``receive``; any number may call ``send``.

    Args:
        reader: of an open connection, made with ``limit=STREAM_LIMIT_BYTES``.
        writer: of the same connection.
        name: a control channel accepts no payloads.

    Attributes:
        sent_bytes: bytes of frames written, with headers, without TLS.
        received_bytes: likewise read.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, name: messages.ChannelName) -> None:
        self.sent_bytes = 0
        self.received_bytes = 0
        self._wire = 0, 0
        self._name = name
        self._reader = reader
        self._writer = writer
        self._decoder = FrameDecoder(max_payload_bytes=MAX_PAYLOAD_BYTES if name == "data" else 0)
        self._frames: deque[Frame] = deque()
        self._lock = asyncio.Lock()
        self._sending: set[asyncio.Task[None]] = set()
        self._peer_gone = False
        writer.transport.set_write_buffer_limits(high=_WRITE_BUFFER_BYTES)

    def narrow_to_control(self) -> None:
        """Accept no payloads from now on: a host learns from the greeting which channel this is."""
        self._name = "control"
        self._decoder.max_payload_bytes = 0

    @property
    def transport(self) -> asyncio.WriteTransport:
        """The connection beneath the frames."""
        return self._writer.transport

    def peer_certificate_der(self) -> bytes:
        """Return the certificate that the other end presented."""
        tls: ssl.SSLObject = self._writer.get_extra_info("ssl_object")
        return tls.getpeercert(binary_form=True) or b""

    def tcp_counts(self) -> TcpCounts | None:
        """Return the kernel's counters of the connection; None if it is closed, or the kernel has none."""
        if self._writer.transport.is_closing():
            return None
        return tcp_counts(self._writer.get_extra_info("socket"))

    def count_wire_bytes(self) -> tuple[int, int]:
        """Return the bytes sent and received as the kernel counts them now, with TLS; when closed, those last counted.

        At least the bytes of the frames, where the kernel has no counters.
        """
        if counts := self.tcp_counts():
            self._wire = counts.sent_bytes, counts.received_bytes
        sent_bytes, received_bytes = self._wire
        return max(sent_bytes, self.sent_bytes), max(received_bytes, self.received_bytes)

    async def send(self, message: AnyMessage, payload: Buffer = b"") -> None:
        """Write a frame and wait until the buffers have room again.

        A frame that has begun is written completely even if the caller is cancelled: half a frame would break the link.

        Raises:
            LinkLost: the connection is gone.
            ValueError: the frame would be too large, or a payload was given on a control channel.
        """
        if payload and self._name == "control":
            raise ValueError(f"{type(message).__name__} with a payload on a control channel")
        buffers = encode_frame(message, payload)
        if sum(map(len, buffers)) <= _PIECE_BYTES:
            async with self._lock:
                self._write(b"".join(buffers))
            await self._drain()
        else:
            await await_shared(self._in_background(self._send_in_pieces(buffers)))

    def try_send(self, message: AnyMessage) -> bool:
        """Write a small frame without waiting; return False if that is impossible now."""
        transport = self._writer.transport
        if self._lock.locked() or transport.is_closing() or transport.get_write_buffer_size() > _WRITE_BUFFER_BYTES:
            return False
        self._write(b"".join(encode_frame(message)))
        return True

    async def receive(self) -> Frame:
        """Return the next frame.

        Raises:
            LinkLost: the connection is gone, or the other end said goodbye.
            FrameError: the bytes are not a frame, or the message does not belong on this connection.
        """
        while not self._frames:
            try:
                data = await self._reader.read(STREAM_LIMIT_BYTES)
            except OSError as error:
                self._peer_gone = True
                raise LinkLost(f"the {self._name} connection broke: {str(error) or type(error).__name__}") from error
            if not data:
                self._peer_gone = True
                where = " in the middle of a frame" if self._decoder.buffered_bytes else ""
                raise LinkLost(f"the other end closed the {self._name} connection{where}")
            self.received_bytes += len(data)
            self._frames.extend(self._decoder.feed(data))
        frame = self._frames.popleft()
        if isinstance(frame.message, Bye):
            self._peer_gone = True
            raise Goodbye(f"the other end said goodbye: {frame.message.reason[:_MAX_REASON]}")
        return frame

    async def close(self, reason: str) -> None:
        """Send the reason, if possible, and close; no task may be in ``receive``. Takes about a second at most."""
        if not self._peer_gone and self.try_send(Bye(reason=reason)):
            with contextlib.suppress(LinkLost, OSError, TimeoutError):
                async with asyncio.timeout(_FAREWELL_S):
                    await self._read_to_end()
        self._wire = self.count_wire_bytes()  # a closed socket has no counters
        self._writer.close()
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(_FAREWELL_S):
                await self._writer.wait_closed()
        self.abort()

    def abort(self) -> None:
        """Drop the connection at once."""
        self._writer.transport.abort()

    async def _read_to_end(self) -> None:
        """Read until the other end has closed or says goodbye itself.

        A close with unread input resets the connection, and a reset can overtake our own goodbye.
        """
        try:
            while True:
                await self.receive()
        except FrameError:
            while await self._reader.read(STREAM_LIMIT_BYTES):
                pass

    async def _send_in_pieces(self, buffers: list[Buffer]) -> None:
        async with self._lock:
            for buffer in buffers:
                # A memoryview, because the TLS layer slices its input record by record and would copy bytes.
                view = memoryview(buffer)
                for start in range(0, len(view), _PIECE_BYTES):
                    self._write(view[start : start + _PIECE_BYTES])
                    await self._drain()

    def _write(self, data: bytes | memoryview) -> None:
        if self._writer.transport.is_closing():
            raise LinkLost(f"the {self._name} connection is closed")
        self._writer.write(data)
        self.sent_bytes += len(data)

    async def _drain(self) -> None:
        try:
            await self._writer.drain()
        except OSError as error:
            raise LinkLost(f"the {self._name} connection broke: {str(error) or type(error).__name__}") from error

    def _in_background(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)
        return task
