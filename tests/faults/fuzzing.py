"""Frames that no honest peer sends, made from honest ones by a seed, and the allowed reactions of a decoder.

There are two kinds. ``damaged`` frames have wrong checksums: none may be accepted. ``forged`` frames have right
checksums around damaged content: they are refused, or give exactly one message of this protocol, whose payload is
refused or is a valid batch.
"""

from __future__ import annotations

import random
import struct
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pyarrow as pa

from infra.link.frames import MAGIC, FrameDecoder, FrameError, encode_frame
from infra.messages import PROTOCOL, AnyMessage, Bye, Completed, Credit, OpenQuery, Ping, Poison, RunMessage
from infra.payload import CodecPolicy, Decoder, Encoder, PayloadError

CORPUS = Path(__file__).parent / "corpus"
HANG_S = 0.1
_SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string()), ("tags", pa.list_(pa.string()))])
_EXTREMES = (b"\xff\xff\xff\xff", b"\0\0\0\0", b"\x7f\xff\xff\xff", b"\x80\0\0\0")
_GROUP = 500


def honest() -> list[tuple[AnyMessage, bytes]]:
    """Messages as peers send them, runs with real payloads."""
    rows = [{"id": n, "text": f"text {n}" * (n % 4), "tags": ["a", "b"][: n % 3]} for n in range(20)]
    batch = pa.RecordBatch.from_pylist(rows, schema=_SCHEMA)
    packed = {codec: Encoder(_SCHEMA, codecs=CodecPolicy.parse(codec)).encode(batch).payload for codec in _CODECS}
    run = RunMessage(query="q", epoch=1, first_seq=0, last_seq=19, attempt=0, rows=20)
    completed = Completed(
        query="q",
        epoch=1,
        first_seq=0,
        last_seq=19,
        attempt=1,
        rows=20,
        batch_id=3,
        batch_s=0.2,
        poison=(Poison(row=1, reason="boom"),),
    )
    alone: list[tuple[AnyMessage, bytes]] = [
        (Ping(sent_s=1.5), b""),
        (Credit(query="q", epoch=1, bytes=1 << 20), b""),
        (OpenQuery(query="q", epoch=1, schema_ddl="id BIGINT, text STRING"), b""),
        (Bye(reason="the gateway ends"), b""),
    ]
    return [*alone, *((run, payload) for payload in packed.values()), (completed, packed["zstd"])]


_CODECS = ("none", "zstd", "gzip")


def damaged(chance: random.Random, wire: bytes) -> bytes:
    """Return ``wire`` changed in one to four places, or cut, or replaced by something else."""
    if chance.random() < 0.05:
        return chance.randbytes(chance.randint(1, 120))
    data = bytearray(wire)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(data) + 1)
        match chance.randrange(6):
            case 0:
                data[at:at] = chance.randbytes(chance.randint(1, 8))
            case 1:
                del data[at : at + chance.randint(1, 8)]
            case 2:
                data[at : at + 4] = chance.choice(_EXTREMES)
            case 3:
                del data[at:]
            case 4 if data:
                data[at % len(data)] ^= 1 << chance.randrange(8)
            case _:
                data[at : at + 1] = chance.randbytes(1)
        if not data:
            data += b"\0"
    return bytes(data)


def forged(chance: random.Random, message: AnyMessage, payload: bytes) -> bytes:
    """Return a frame with right checksums around a damaged message, a damaged payload or both."""
    body = msgspec.msgpack.encode(message)
    if not payload or chance.random() < 0.5:
        body = damaged(chance, body)
    if payload and chance.random() < 0.7:
        payload = damaged(chance, payload)
    crc = zlib.crc32(payload, zlib.crc32(body))
    head = struct.pack(">4sBBHIII", MAGIC, PROTOCOL, 2 if payload else 1, 0, len(body), len(payload), crc)
    return head + struct.pack(">I", zlib.crc32(head)) + body + payload


@dataclass
class Verdict:
    """The outcome of a run of the fuzzer."""

    frames: int = 0
    refused: int = 0
    incomplete: int = 0
    forged_whole: int = 0
    accepted: list[bytes] = field(default_factory=list)
    slowest_s: float = 0.0
    hung: list[bytes] = field(default_factory=list)


class Fuzzer:
    """Feeds a decoder.

    Args:
        seed: gives the same frames again.
    """

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._honest = honest()
        self._wires = [b"".join(encode_frame(message, payload)) for message, payload in self._honest]
        self.verdict = Verdict()

    def run(self, frames: int) -> Verdict:
        """Try this many frames; a group that takes long is tried again one by one, to find the frame that hangs."""
        while self.verdict.frames < frames:
            group = [self._next() for _ in range(min(_GROUP, frames - self.verdict.frames))]
            for wire, is_forged in group:
                started_s = time.perf_counter()
                self._try(wire, is_forged=is_forged)
                took_s = time.perf_counter() - started_s
                if took_s > HANG_S:
                    took_s = self._fastest_s(wire)
                self.verdict.slowest_s = max(self.verdict.slowest_s, took_s)
                if took_s > HANG_S:
                    self.verdict.hung.append(wire)
        return self.verdict

    def _next(self) -> tuple[bytes, bool]:
        if self._chance.random() < 0.3:
            return forged(self._chance, *self._chance.choice(self._honest)), True
        return damaged(self._chance, self._chance.choice(self._wires)), False

    def _try(self, wire: bytes, *, is_forged: bool) -> None:
        verdict = self.verdict
        verdict.frames += 1
        try:
            frames = FrameDecoder().feed(wire)
        except FrameError:
            verdict.refused += 1
            return
        if not frames:
            verdict.incomplete += 1
        elif is_forged:
            verdict.forged_whole += 1
            for frame in frames:
                decode_payload(frame.payload)
        elif not any(wire.startswith(genuine) or genuine in wire for genuine in self._wires):
            # A genuine frame before or between the damage is rightly read.
            verdict.accepted.append(wire)

    @staticmethod
    def _fastest_s(wire: bytes) -> float:
        """Return the shortest of three times: another process may have had the core."""
        times = []
        for _ in range(3):
            started_s = time.perf_counter()
            offered(wire)
            times.append(time.perf_counter() - started_s)
        return min(times)


def offered(wire: bytes) -> None:
    """Pass bytes to a new decoder, and a payload that it returns to another one; both may refuse."""
    try:
        frames = FrameDecoder().feed(wire)
    except FrameError:
        return
    for frame in frames:
        decode_payload(frame.payload)


def decode_payload(payload: bytes) -> None:
    """Decode a payload; it is refused, or it is a valid batch."""
    if not payload:
        return
    try:
        batch = Decoder(_SCHEMA).decode(payload)
    except PayloadError:
        return
    batch.validate(full=True)


def corpus() -> Iterator[Path]:
    """Yield the stored inputs: each broke something once, or represents a kind of attack."""
    yield from sorted(CORPUS.glob("*.bin"))
