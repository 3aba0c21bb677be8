"""The two connections of one link as a unit: the code that the gateway's and the host's end share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

from infra.link.channel import Channel, LinkLost, channel_for
from infra.link.frames import Buffer, Frame, FrameError
from infra.link.inbox import Inbox
from infra.messages import AnyMessage
from infra.together import end_tasks


class ChannelPair:
    """Reads both connections into one inbox, and ends both when either does.

    Args:
        control: the connection for everything small.
        data: the connection for bulk.
        on_heartbeat: called first with each control message; returns True if it handled the message.
        keep_data: whether data that had arrived is still delivered after the link was lost.

    Attributes:
        inbox: what has arrived and waits for ``receive``.
        lost: why the link is lost; None while it lives.
    """

    def __init__(
        self, control: Channel, data: Channel, on_heartbeat: Callable[[AnyMessage], bool], *, keep_data: bool
    ) -> None:
        self.control = control
        self.data = data
        self.lost: str | None = None
        self._keep_data = keep_data
        self._on_heartbeat = on_heartbeat
        self.inbox = Inbox()
        self._heard = True
        self._closed = asyncio.Event()
        self._closing: asyncio.Task[None] | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self.run(self._read_control())
        self.run(self._read_data())

    def run(self, work: Coroutine[None, None, None]) -> None:
        """Run ``work`` as long as the link lives; a ``LinkLost`` or ``FrameError`` from it ends the link."""
        self._tasks.append(asyncio.create_task(self._guard(work)))

    def has_received(self) -> bool:
        """Return whether anything arrived on the control connection since the last call."""
        heard, self._heard = self._heard, False
        return heard

    async def send(self, message: AnyMessage, payload: Buffer = b"") -> None:
        """Send on the connection where the message belongs.

        Raises:
            LinkLost: the link is gone.
            ValueError: too large, or a payload with a control message.
        """
        if self.lost is not None:
            raise LinkLost(self.lost)
        channel = self.data if channel_for(message) == "data" else self.control
        try:
            await channel.send(message, payload)
        except LinkLost as error:
            self.lose(error.reason)
            raise LinkLost(self.lost or error.reason) from error

    async def receive(self) -> tuple[AnyMessage, bytes]:
        """Return the next message of either connection; control goes first.

        Raises:
            LinkLost: the link is gone and what had arrived was read.
        """
        frame = await self.inbox.get()
        return frame.message, frame.payload

    def lose(self, reason: str) -> None:
        """End the link: send the other end the reason if it is still connected, and close both connections."""
        if self.lost is None:
            self.lost = reason
            self.inbox.end(reason, keep_data=self._keep_data)
            self._closing = asyncio.create_task(self._close(reason))

    async def wait_closed(self) -> None:
        """Return when both connections are closed."""
        await self._closed.wait()

    async def _close(self, reason: str) -> None:
        await end_tasks(*self._tasks)
        await asyncio.gather(self.control.close(reason), self.data.close(reason))
        self._closed.set()

    async def _guard(self, work: Coroutine[None, None, None]) -> None:
        try:
            await work
        except (LinkLost, FrameError) as error:
            self.lose(error.reason)
        except Exception as error:
            # A bug of ours: asyncio reports it, but a link with only one working reader must not stay open.
            self.lose(f"internal error: {error!r}"[:500])
            raise

    async def _read_control(self) -> None:
        while True:
            frame = await self.control.receive()
            self._heard = True
            if not self._on_heartbeat(_belonging("control", frame).message):
                self.inbox.put_control(frame)

    async def _read_data(self) -> None:
        while True:
            await self.inbox.put_data(_belonging("data", await self.data.receive()))


def _belonging(channel: str, frame: Frame) -> Frame:
    if channel_for(frame.message) != channel:
        raise FrameError(f"{type(frame.message).__name__} does not belong on the {channel} channel")
    return frame
