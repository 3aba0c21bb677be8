"""The bombs, and a program that decodes one: ``python bombs.py NAME`` prints the cost of refusing it, as JSON."""

from __future__ import annotations

import gc
import gzip
import json
import struct
import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import zstandard

from infra.link.frames import MAGIC, MAX_MESSAGE_BYTES, MAX_PAYLOAD_BYTES, FrameDecoder, FrameError
from infra.messages import PROTOCOL
from infra.payload import Decoder, PayloadError
from infra.payload.body import fingerprint
from infra.payload.codecs.zstdblocks import FREE_SEQUENCES
from infra.payload.decoder import DEFAULT_MAX_BYTES
from infra.payload.wire import FREE_BYTES, FieldHeader, Header, join
from infra.rows.jsonlines import LineDecoder

TEXT = pa.schema([("text", pa.string())])
_HUGE_BYTES = 1 << 30
_COPIES_A_BLOCK = 43_690


def _payload(body: bytes, codec: str, raw_bytes: int, rows: int = 1) -> bytes:
    field = FieldHeader(column=0, codec=codec, raw_bytes=raw_bytes, packed_bytes=len(body))  # type: ignore[arg-type]
    return join(Header(fingerprint=fingerprint(TEXT), rows=rows, fields=(field,)), [body])


def _zstd(piece: bytes, *, declared: bool) -> bytes:
    """A gigabyte of one repeated piece, compressed to 30 to 100 kB."""
    packer = zstandard.ZstdCompressor(write_content_size=declared).compressobj(_HUGE_BYTES if declared else -1)
    block = piece * ((1 << 24) // len(piece))
    return b"".join([*(packer.compress(block) for _ in range(_HUGE_BYTES >> 24)), packer.flush()])


def _declaring(frame: bytes, size_bytes: int) -> bytes:
    """The frame with another size in its header (4 bytes of it, for a gigabyte)."""
    honest = struct.pack("<I", _HUGE_BYTES)
    assert frame[:14].count(honest) == 1
    return frame.replace(honest, struct.pack("<I", size_bytes), 1)


def _copies(size_bytes: int, most: int = 1 << 30) -> bytes:
    """A valid frame of at most ``most`` copies of three bytes, each of which takes no bit; then one byte repeats."""
    block = b"\0\xff" + struct.pack("<H", _COPIES_A_BLOCK - 0x7F00) + b"\x54\0\0\0\1"  # RFC 8878, 3.1.1.3
    blocks = min(most // _COPIES_A_BLOCK, (size_bytes - 16) // (3 * _COPIES_A_BLOCK))
    parts = [(16 << 3).to_bytes(3, "little"), b"0123456789abcdef"]
    parts += [(2 << 1 | len(block) << 3).to_bytes(3, "little") + block] * blocks
    rest = size_bytes - 16 - blocks * 3 * _COPIES_A_BLOCK
    runs = [1 << 17] * (rest >> 17) + [rest % (1 << 17)]
    parts += [(1 << 1 | run << 3).to_bytes(3, "little") + b"x" for run in runs]
    return b"\x28\xb5\x2f\xfd\x80\x58" + struct.pack("<I", size_bytes) + b"".join(parts) + b"\1\0\0"


def _text_of(size_bytes: int, end: bytes) -> bytes:
    """The body of a text column of one long text."""
    text = bytes(size_bytes) + end
    offsets = pa.py_buffer(struct.pack("<2i", 0, len(text)))
    column = pa.StringArray.from_buffers(1, offsets, pa.py_buffer(text))
    return bytes(pa.RecordBatch.from_arrays([column], names=[""]).serialize().to_pybytes())


def _gzip_zeros() -> bytes:
    packer = zlib.compressobj(9, wbits=31)
    block = bytes(1 << 24)
    return b"".join([*(packer.compress(block) for _ in range(_HUGE_BYTES >> 24)), packer.flush()])


def _text_with_offsets(*offsets: int) -> bytes:
    """The body of a text column whose offsets point to invalid places."""
    honest = struct.pack(f"<{len(offsets)}i", *range(0, 11 * len(offsets), 11))
    column = pa.StringArray.from_buffers(len(offsets) - 1, pa.py_buffer(honest), pa.py_buffer(bytes(200)))
    batch = pa.RecordBatch.from_arrays([column], names=[""])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    reader = pa.ipc.MessageReader.open_stream(sink.getvalue())
    reader.read_next_message()
    body = bytes(reader.read_next_message().serialize().to_pybytes())
    assert body.count(honest) == 1
    return body.replace(honest, struct.pack(f"<{len(offsets)}i", *offsets))


def _header(message_bytes: int, payload_bytes: int) -> bytes:
    fields = struct.pack(">4sBBHIII", MAGIC, PROTOCOL, 2, 0, message_bytes, payload_bytes, 0)
    return fields + struct.pack(">I", zlib.crc32(fields))


def _message(body: bytes) -> bytes:
    fields = struct.pack(">4sBBHIII", MAGIC, PROTOCOL, 1, 0, len(body), 0, zlib.crc32(body))
    return fields + struct.pack(">I", zlib.crc32(fields)) + body


def _of_payload(data: bytes) -> None:
    try:
        Decoder(TEXT).decode(data)
    except PayloadError:
        return
    raise AssertionError("the payload was accepted")


def _of_frame(data: bytes) -> None:
    try:
        FrameDecoder().feed(data)
    except FrameError:
        return
    raise AssertionError("the frame was accepted")


def _of_line(line: bytes) -> None:
    batch, dead = LineDecoder(TEXT).decode([line])
    assert batch.num_rows == 0, "the line was accepted"
    assert len(dead) == 1


_PROMISED = DEFAULT_MAX_BYTES - (1 << 20)
# The size to which any input may be unpacked. A bomb up to this size must be unpacked before it can be refused.
_FREE = FREE_BYTES - (1 << 10)
BOMBS: dict[str, tuple[Callable[[bytes], None], Callable[[], bytes]]] = {
    "zstd, 1 GiB, size declared": (_of_payload, lambda: _payload(_zstd(b"\0", declared=True), "zstd", _HUGE_BYTES)),
    "zstd, 1 GiB, small size in our header": (_of_payload, lambda: _payload(_zstd(b"\0", declared=True), "zstd", 1000)),
    "zstd, 1 GiB, no size declared": (_of_payload, lambda: _payload(_zstd(b"\0", declared=False), "zstd", _PROMISED)),
    "zstd, 1 GiB, largest allowed size declared": (
        _of_payload,
        lambda: _payload(_declaring(_zstd(b"\0", declared=True), _PROMISED), "zstd", _PROMISED),
    ),
    "zstd, 1 GiB, largest allowed size declared, no block of one byte": (
        _of_payload,
        lambda: _payload(_declaring(_zstd(b"ab", declared=True), _PROMISED), "zstd", _PROMISED),
    ),
    "zstd, 44,000,000 copies of three bytes": (
        _of_payload,
        lambda: _payload(_copies(_PROMISED), "zstd", _PROMISED),
    ),
    "zstd, 2,800,000 copies of three bytes": (_of_payload, lambda: _payload(_copies(_FREE), "zstd", _FREE)),
    "zstd, as many sequences and bytes as may be unpacked, not Arrow": (
        _of_payload,
        lambda: _payload(_copies(_FREE, FREE_SEQUENCES), "zstd", _FREE),
    ),
    "zstd, more bytes than may be unpacked": (
        _of_payload,
        lambda: _payload(_declaring(_zstd(b"ab", declared=True), _FREE), "zstd", _FREE),
    ),
    "zstd, as many bytes as may be unpacked, the last one not UTF-8": (
        _of_payload,
        lambda: _payload(zstandard.compress(body := _text_of(_FREE - 1000, b"\xff")), "zstd", len(body)),
    ),
    "gzip, more bytes than may be unpacked": (
        _of_payload,
        lambda: _payload(_gzip_zeros()[:-4] + struct.pack("<I", _FREE), "gzip", _FREE),
    ),
    "zstd, a terabyte declared in 13 bytes": (
        _of_payload,
        lambda: _payload(b"\x28\xb5\x2f\xfd\xe0" + struct.pack("<Q", 1 << 40), "zstd", 1 << 40),
    ),
    "gzip, 1 GiB, true size in our header": (_of_payload, lambda: _payload(_gzip_zeros(), "gzip", _HUGE_BYTES)),
    "gzip, 1 GiB, largest allowed size in our header": (
        _of_payload,
        lambda: _payload(_gzip_zeros(), "gzip", _PROMISED),
    ),
    "gzip, 1 GiB, small size in our header": (_of_payload, lambda: _payload(_gzip_zeros(), "gzip", 1000)),
    "a header that declares 2^40 rows, without any data": (
        _of_payload,
        lambda: join(Header(fingerprint=fingerprint(TEXT), rows=1 << 40, fields=()), []),
    ),
    "Arrow, offsets beyond the text": (
        _of_payload,
        lambda: _payload(body := _text_with_offsets(0, 1 << 30), "none", len(body)),
    ),
    "Arrow, offsets that run backwards": (
        _of_payload,
        lambda: _payload(body := _text_with_offsets(0, 4, 1), "none", len(body), rows=2),
    ),
    "Arrow, negative offsets": (_of_payload, lambda: _payload(body := _text_with_offsets(-8, 4), "none", len(body))),
    "a frame that declares 4 GiB": (_of_frame, lambda: _header(100, (1 << 32) - 1)),
    "a message longer than the limit": (_of_frame, lambda: _header(MAX_MESSAGE_BYTES + 1, MAX_PAYLOAD_BYTES)),
    "a message nested 1,000,000 deep": (
        _of_frame,
        lambda: _message((b"\x82\xa4type\xa8Shutdown\xa1x" + b"\x91" * 1_000_000)[:MAX_MESSAGE_BYTES] + b"\xc0"),
    ),
    "JSON nested 100,000 deep": (_of_line, lambda: b'{"text": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
    "JSON objects nested 100,000 deep": (_of_line, lambda: b'{"text": ' + b'{"a":' * 100_000 + b"1" + b"}" * 100_001),
    "JSON nested 100,000 deep in a field that is not in the schema": (
        _of_line,
        lambda: b'{"text": 1, "other": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ),
}


def _peak_bytes() -> int:
    status = Path("/proc/self/status").read_text()
    return 1024 * next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))


def main(name: str) -> None:
    """Decode it three times. The shortest time counts, since another process may have had the core."""
    meet, make = BOMBS[name]
    data = make()
    _of_payload(gzip.compress(b"warm up"))
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    before_bytes = _peak_bytes()
    times = []
    for _ in range(3):
        started_s = time.perf_counter()
        meet(data)
        times.append(time.perf_counter() - started_s)
    print(json.dumps({"took_s": min(times), "grew_bytes": _peak_bytes() - before_bytes, "input_bytes": len(data)}))


if __name__ == "__main__":
    main(sys.argv[1])
