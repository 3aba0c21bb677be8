"""Frames without I/O: encodes a message with its payload, and decodes bytes of an untrusted sender.

A frame is a fixed header, the message (msgpack of ``infra.messages.AnyMessage``) and the payload:

====== ===== ======================================================================
offset bytes content
====== ===== ======================================================================
0      4     magic ``SPLW``
4      1     protocol version
5      1     kind: 1 a message alone, 2 a message with a payload
6      2     zero
8      4     bytes of the message
12     4     bytes of the payload
16     4     CRC32 of message and payload
20     4     CRC32 of the 20 bytes before, so that nobody waits for a damaged length
24           message, payload
====== ===== ======================================================================

Integers are big-endian. Bytes from a remote can only cause ``FrameError``. A declared length alone allocates no memory:
a frame's buffer grows with the bytes that have arrived.
"""

from __future__ import annotations

import struct
import zlib
from typing import NamedTuple

import msgspec

from infra.messages import PROTOCOL, AnyMessage

MAGIC = b"SPLW"
HEADER_BYTES = 24
MAX_MESSAGE_BYTES = 1 << 20
MAX_PAYLOAD_BYTES = 64 << 20

_KIND_MESSAGE = 1
_KIND_MESSAGE_AND_PAYLOAD = 2
_FIELDS = struct.Struct(">4sBBHIII")
_CRC = struct.Struct(">I")
_encoder = msgspec.msgpack.Encoder()
# It holds no state between calls. To make one takes longer than to decode a message.
_decoder = msgspec.msgpack.Decoder(AnyMessage)

Buffer = bytes | bytearray | memoryview


class Frame(NamedTuple):
    """The content of one frame, and its size on the wire."""

    message: AnyMessage
    payload: bytes
    wire_bytes: int


class FrameError(Exception):
    """The remote sent bytes that are not a frame of this protocol; ``reason`` says why.

    Attributes:
        reason: one sentence, suitable for the ``Bye`` that answers it.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def encode_frame(message: AnyMessage, payload: Buffer = b"") -> list[Buffer]:
    """Return the buffers of one frame, in order; the payload is referred to, not copied.

    Raises:
        ValueError: the message or the payload is larger than any decoder accepts.
    """
    body = _encoder.encode(message)
    bulk = memoryview(payload).cast("B")
    if len(body) > MAX_MESSAGE_BYTES:
        raise ValueError(f"{type(message).__name__} takes {len(body)} bytes; a message may take {MAX_MESSAGE_BYTES}")
    if len(bulk) > MAX_PAYLOAD_BYTES:
        raise ValueError(f"{type(message).__name__} carries {len(bulk)} bytes; a payload may be {MAX_PAYLOAD_BYTES}")
    kind = _KIND_MESSAGE_AND_PAYLOAD if bulk else _KIND_MESSAGE
    fields = _FIELDS.pack(MAGIC, PROTOCOL, kind, 0, len(body), len(bulk), zlib.crc32(bulk, zlib.crc32(body)))
    head = fields + _CRC.pack(zlib.crc32(fields)) + body
    return [head, bulk] if bulk else [head]


class _Header(NamedTuple):
    message_bytes: int
    frame_bytes: int
    body_crc: int


class FrameDecoder:
    """Decodes frames from bytes that may arrive in pieces of any size.

    Args:
        max_message_bytes: a longer message is refused as soon as its header is read.
        max_payload_bytes: likewise for the payload.
    """

    def __init__(self, max_message_bytes: int = MAX_MESSAGE_BYTES, max_payload_bytes: int = MAX_PAYLOAD_BYTES) -> None:
        self.max_message_bytes = max_message_bytes
        self.max_payload_bytes = max_payload_bytes
        self._partial = bytearray()
        self._header: _Header | None = None
        self._dead: str | None = None

    @property
    def buffered_bytes(self) -> int:
        """Bytes of a frame that is not complete yet."""
        return len(self._partial)

    def feed(self, data: Buffer) -> list[Frame]:
        """Decode the next bytes and return the frames that they complete.

        Raises:
            FrameError: the bytes are not a frame; earlier frames in ``data`` are lost, and every later call raises
                again.
        """
        if self._dead is not None:
            raise FrameError(self._dead)
        frames: list[Frame] = []
        try:
            with memoryview(data) as view:
                position = self._complete_partial(view, frames)
                position = self._take_whole(view, position, frames)
                self._partial += view[position:]
        except FrameError as error:
            self._dead = error.reason
            self._partial = bytearray()
            raise
        return frames

    def _complete_partial(self, view: memoryview, frames: list[Frame]) -> int:
        """Continue the frame that earlier calls began; return how much of ``view`` was used."""
        position = 0
        while self._partial and position < len(view):
            wanted_bytes = self._header.frame_bytes if self._header else HEADER_BYTES
            piece = view[position : position + wanted_bytes - len(self._partial)]
            self._partial += piece
            position += len(piece)
            if len(self._partial) < wanted_bytes:
                break
            if self._header is None:
                self._header = self._read_header(self._partial)
            if len(self._partial) == self._header.frame_bytes:
                with memoryview(self._partial) as whole:
                    frames.append(self._read_body(self._header, whole))
                self._partial, self._header = bytearray(), None
        return position

    def _take_whole(self, view: memoryview, position: int, frames: list[Frame]) -> int:
        """Read the frames that are complete in ``view``; return where the first incomplete one begins."""
        if self._partial:
            return position
        while len(view) - position >= HEADER_BYTES:
            header = self._read_header(view[position : position + HEADER_BYTES])
            end = position + header.frame_bytes
            if end > len(view):
                self._header = header
                break
            frames.append(self._read_body(header, view[position:end]))
            position = end
        return position

    def _read_header(self, data: bytearray | memoryview) -> _Header:
        magic, version, kind, zero, message_bytes, payload_bytes, body_crc = _FIELDS.unpack_from(data)
        if magic != MAGIC:
            raise FrameError(f"not a Spillway frame: it begins with {magic!r}")
        if version != PROTOCOL:
            raise FrameError(f"the peer uses protocol {version}, this side uses {PROTOCOL}")
        if zlib.crc32(data[: _FIELDS.size]) != _CRC.unpack_from(data, _FIELDS.size)[0]:
            raise FrameError("the frame's header is damaged: wrong checksum")
        if kind != (_KIND_MESSAGE_AND_PAYLOAD if payload_bytes else _KIND_MESSAGE) or zero:
            raise FrameError(f"unknown kind of frame: {kind} with {payload_bytes} payload bytes")
        if message_bytes > self.max_message_bytes:
            raise FrameError(f"a message of {message_bytes} bytes; at most {self.max_message_bytes} are accepted")
        if payload_bytes > self.max_payload_bytes:
            raise FrameError(f"a payload of {payload_bytes} bytes; at most {self.max_payload_bytes} are accepted")
        return _Header(message_bytes, HEADER_BYTES + message_bytes + payload_bytes, body_crc)

    def _read_body(self, header: _Header, frame: memoryview) -> Frame:
        body = frame[HEADER_BYTES:]
        if zlib.crc32(body) != header.body_crc:
            raise FrameError("the frame's body is damaged: wrong checksum")
        try:
            message: AnyMessage = _decoder.decode(body[: header.message_bytes])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise FrameError(f"not a message of this protocol: {error}") from error
        return Frame(message, bytes(body[header.message_bytes :]), header.frame_bytes)
