"""The queue of received messages of a link. It is bounded, and control messages never wait behind data."""

from __future__ import annotations

import asyncio
from collections import deque

from infra.link.channel import LinkLost
from infra.link.frames import Frame

MAX_DATA_BYTES = 16 << 20
MAX_DATA_FRAMES = 1024
MAX_CONTROL_BYTES = 8 << 20
MAX_CONTROL_FRAMES = 4096


class _Lane:
    """A first-in first-out queue that counts its bytes."""

    def __init__(self, max_bytes: int, max_frames: int) -> None:
        self._max_bytes = max_bytes
        self._max_frames = max_frames
        self._frames: deque[Frame] = deque()
        self.held_bytes = 0

    def __len__(self) -> int:
        return len(self._frames)

    def has_room(self, frame: Frame) -> bool:
        """One frame always fits into an empty lane, however large it is."""
        fits = self.held_bytes + frame.wire_bytes <= self._max_bytes and len(self._frames) < self._max_frames
        return fits or not self._frames

    def push(self, frame: Frame) -> None:
        self._frames.append(frame)
        self.held_bytes += frame.wire_bytes

    def pop(self) -> Frame:
        frame = self._frames.popleft()
        self.held_bytes -= frame.wire_bytes
        return frame

    def clear(self) -> None:
        self._frames.clear()
        self.held_bytes = 0


class Inbox:
    """Two bounded lanes with one outlet, which returns control messages first."""

    def __init__(self) -> None:
        self._control = _Lane(MAX_CONTROL_BYTES, MAX_CONTROL_FRAMES)
        self._data = _Lane(MAX_DATA_BYTES, MAX_DATA_FRAMES)
        self._readable = asyncio.Event()
        self._room = asyncio.Event()
        self._end: str | None = None

    @property
    def control_count(self) -> int:
        """How many control frames wait."""
        return len(self._control)

    @property
    def data_count(self) -> int:
        """How many data frames wait."""
        return len(self._data)

    @property
    def data_bytes(self) -> int:
        """How many bytes the data frames that wait have."""
        return self._data.held_bytes

    def put_control(self, frame: Frame) -> None:
        """Add a control frame at once, so that the heartbeats behind it are read.

        Raises:
            LinkLost: far too many control messages wait unread.
        """
        if not self._control.has_room(frame):
            raise LinkLost(f"{len(self._control)} control messages wait unread: the other end floods, or nobody reads")
        self._control.push(frame)
        self._readable.set()

    async def put_data(self, frame: Frame) -> None:
        """Add a data frame once there is room for it; that wait is the back-pressure."""
        while not self._data.has_room(frame) and self._end is None:
            self._room.clear()
            await self._room.wait()
        self._data.push(frame)
        self._readable.set()

    def end(self, reason: str, *, keep_data: bool) -> None:
        """Let the reader take what is left, then raise ``LinkLost``; the first reason counts."""
        if self._end is None:
            self._end = reason
        if not keep_data:
            self._data.clear()
        self._readable.set()
        self._room.set()

    async def get(self) -> Frame:
        """Return the next frame, control first.

        Raises:
            LinkLost: the link ended and everything that had arrived was read.
        """
        while True:
            if self._control:
                return self._control.pop()
            if self._data:
                frame = self._data.pop()
                self._room.set()
                return frame
            if self._end is not None:
                raise LinkLost(self._end)
            self._readable.clear()
            await self._readable.wait()
