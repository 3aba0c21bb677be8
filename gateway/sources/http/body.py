"""The body of a request: read, decompressed and split into lines, all within limits."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Final

import zstandard

from gateway.sources.journaled import RECORD_BYTES_MAX

_GZIP: Final = 31  # zlib's value for a gzip header
_WINDOW_BYTES_MAX: Final = 2**23
_STEP_BYTES: Final = 128
_BLANKS = b" \t\r\n"


class BodyTooLargeError(Exception):
    """The body is larger than a limit; the message names the limit."""


class BadBodyError(Exception):
    """The body does not match its headers; the message says how."""


def unpack(data: bytes, encoding: str, max_bytes: int) -> bytes:
    """Return the decompressed body; at most 4 MB beyond ``max_bytes`` are held.

    Args:
        data: the body as received.
        encoding: one of ``ENCODINGS``.
        max_bytes: the limit of the decompressed size.

    Raises:
        BodyTooLargeError: it is larger.
        BadBodyError: it has another encoding, or is truncated.
    """
    unpacked = ENCODINGS[encoding](data, max_bytes)
    if len(unpacked) > max_bytes:
        raise BodyTooLargeError(f"the body is larger than {max_bytes} bytes when decompressed; split it into requests")
    return unpacked


def _gunzip(data: bytes, max_bytes: int) -> bytes:
    parts: list[bytes] = []
    room = max_bytes + 1
    try:
        while data and room:
            unpacker = zlib.decompressobj(_GZIP)
            parts.append(unpacker.decompress(data, room))
            room -= len(parts[-1])
            if room and not unpacker.eof:
                raise BadBodyError("the body is not a complete gzip stream")
            # A gzip file may consist of several.
            data = unpacker.unused_data
    except zlib.error as error:
        raise BadBodyError(f"the body is not gzip ({error})") from error
    return b"".join(parts)


def _unzstd(data: bytes, max_bytes: int) -> bytes:
    # In small steps: a frame's declared size is not trustworthy, and 4 bytes may become 128 KiB.
    decompressor = zstandard.ZstdDecompressor(max_window_size=_WINDOW_BYTES_MAX)
    parts: list[bytes] = []
    room, at = max_bytes, 0
    try:
        while at < len(data):
            frame = decompressor.decompressobj()
            while not frame.eof:
                if at >= len(data):
                    raise BadBodyError("the body is not a complete zstd stream")
                parts.append(frame.decompress(data[at : at + _STEP_BYTES]))
                at += _STEP_BYTES
                room -= len(parts[-1])
                if room < 0:
                    return b"".join(parts)
            at = min(at, len(data)) - len(frame.unused_data)
    except zstandard.ZstdError as error:
        raise BadBodyError(f"the body is not zstd with a window of at most 8 MB ({error})") from error
    return b"".join(parts)


ENCODINGS: Final[dict[str, Callable[[bytes, int], bytes]]] = {
    "identity": lambda data, _: data,
    "gzip": _gunzip,
    "zstd": _unzstd,
}


def split_lines(body: bytes) -> list[bytes]:
    """Return the lines that are not blank, without their ends.

    Raises:
        BadBodyError: there are none.
        BodyTooLargeError: a line is longer than the limit of a record.
    """
    lines = [line.rstrip(b"\r") for line in body.split(b"\n") if line.strip(_BLANKS)]
    if not lines:
        raise BadBodyError("the body is empty; send JSON lines, one object a line")
    longest = max(map(len, lines))
    if longest > RECORD_BYTES_MAX:
        raise BodyTooLargeError(f"a line has {longest} bytes; one event may have {RECORD_BYTES_MAX}")
    return lines
