from __future__ import annotations

import itertools
import random
import struct
import time
import tracemalloc
import zlib
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.link.frames import (
    HEADER_BYTES,
    MAGIC,
    MAX_MESSAGE_BYTES,
    MAX_PAYLOAD_BYTES,
    Frame,
    FrameDecoder,
    FrameError,
    encode_frame,
)
from infra.messages import PROTOCOL, AnyMessage, Bye, Credit, OpenQuery, Ping, RunMessage, Shutdown
from tests.link.message_strategies import MESSAGE_TYPES, any_message, values_of

RUN = RunMessage(query="q", epoch=1, first_seq=0, last_seq=9, attempt=0, rows=10)


def frame_bytes(message: AnyMessage, payload: bytes = b"") -> bytes:
    return b"".join(encode_frame(message, payload))


def feed_in_pieces(decoder: FrameDecoder, data: bytes, cuts: list[int]) -> list[Frame]:
    edges = [0, *sorted(cuts), len(data)]
    return [frame for start, end in itertools.pairwise(edges) for frame in decoder.feed(data[start:end])]


def raw_frame(message: bytes, payload: bytes = b"", **fields: int) -> bytes:
    """A frame with right checksums around any content."""
    given = {"version": PROTOCOL, "kind": 2 if payload else 1, "zero": 0} | fields
    lengths = fields.get("message_bytes", len(message)), fields.get("payload_bytes", len(payload))
    crc = zlib.crc32(message + payload)
    head = struct.pack(">4sBBHIII", MAGIC, given["version"], given["kind"], given["zero"], *lengths, crc)
    return head + struct.pack(">I", zlib.crc32(head)) + message + payload


@pytest.mark.parametrize("message_type", MESSAGE_TYPES, ids=lambda each: each.__name__)
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_every_message_survives_any_cut(message_type: type[AnyMessage], data: st.DataObject) -> None:
    message = data.draw(values_of(message_type))
    payload = data.draw(st.binary(max_size=300))
    wire = frame_bytes(message, payload)
    cuts = data.draw(st.lists(st.integers(0, len(wire)), max_size=6))
    assert feed_in_pieces(FrameDecoder(), wire, cuts) == [(message, payload, len(wire))]


@settings(deadline=None)
@given(sent=st.lists(st.tuples(any_message, st.binary(max_size=100)), max_size=8), piece_bytes=st.integers(1, 400))
def test_a_stream_of_frames_survives_any_piece_size(sent: list[tuple[AnyMessage, bytes]], piece_bytes: int) -> None:
    wire = b"".join(frame_bytes(message, payload) for message, payload in sent)
    decoder = FrameDecoder()
    received = feed_in_pieces(decoder, wire, list(range(piece_bytes, len(wire), piece_bytes)))
    assert [(frame.message, frame.payload) for frame in received] == sent
    assert sum(frame.wire_bytes for frame in received) == len(wire)
    assert decoder.buffered_bytes == 0


def test_a_payload_is_not_copied() -> None:
    payload = bytearray(b"rows")
    _, bulk = encode_frame(RUN, payload)
    payload[0:1] = b"R"
    assert bytes(bulk) == b"Rows"


def test_a_payload_may_be_a_view_of_anything() -> None:
    numbers = struct.pack("3i", 1, 2, 3)
    wire = b"".join(encode_frame(RUN, memoryview(numbers).cast("i")))
    assert FrameDecoder().feed(wire) == [(RUN, numbers, len(wire))]


def test_every_flipped_bit_is_noticed() -> None:
    wire = frame_bytes(RUN, b"payload of this run")
    for bit in range(len(wire) * 8):
        damaged = bytearray(wire)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(FrameError):
            FrameDecoder().feed(damaged)


def mutated(rng: random.Random, wire: bytes) -> bytes:
    data = bytearray(wire)
    for _ in range(rng.randint(1, 4)):
        position = rng.randrange(len(data) + 1)
        match rng.randrange(5):
            case 0:
                data[position:position] = rng.randbytes(rng.randint(1, 8))
            case 1:
                del data[position : position + rng.randint(1, 8)]
            case 2:
                data[position : position + 1] = rng.randbytes(1)
            case 3:
                data[position : position + 4] = rng.choice([b"\xff\xff\xff\xff", b"\0\0\0\0", b"\x7f\xff\xff\xff"])
            case _:
                data += data[position:]
        if not data:
            data += b"\0"
    return bytes(data)


@pytest.mark.parametrize("seed", range(4))
def test_damaged_frames_raise_nothing_else_and_are_never_believed(seed: int) -> None:
    rng = random.Random(seed)
    genuine: list[tuple[AnyMessage, bytes]] = [
        (RUN, b"some rows"),
        (Ping(sent_s=1.5), b""),
        (OpenQuery(query="q", epoch=1, schema_ddl="a INT"), b""),
    ]
    wires = [frame_bytes(message, payload) for message, payload in genuine]
    refused = 0
    for _ in range(5000):
        wire = mutated(rng, rng.choice(wires)) if rng.random() < 0.8 else rng.randbytes(rng.randint(1, 200))
        decoder = FrameDecoder()
        try:
            frames = feed_in_pieces(decoder, wire, [rng.randrange(len(wire) + 1) for _ in range(rng.randrange(4))])
        except FrameError:
            refused += 1
            continue
        assert decoder.buffered_bytes <= len(wire)
        assert all((frame.message, frame.payload) in genuine for frame in frames)
    assert refused > 3000


@pytest.mark.parametrize("seed", range(4))
def test_damaged_messages_under_right_checksums_raise_nothing_else(seed: int) -> None:
    rng = random.Random(seed)
    encoded = [msgspec.msgpack.encode(each) for each in (RUN, Ping(sent_s=1.5), Bye(reason="why"))]
    refused = 0
    for _ in range(2500):
        body = mutated(rng, rng.choice(encoded)) if rng.random() < 0.8 else rng.randbytes(rng.randint(0, 60))
        try:
            assert len(FrameDecoder().feed(raw_frame(body))) == 1
        except FrameError:
            refused += 1
    assert refused > 1500


def test_nested_beyond_reason_is_refused() -> None:
    body = b"\x82\xa4type\xa8Shutdown\xa1x" + b"\x91" * 100_000 + b"\xc0"
    with pytest.raises(FrameError, match="not a message"):
        FrameDecoder().feed(raw_frame(body))


def test_a_list_of_declared_billions_is_refused_without_memory() -> None:
    body = b"\x82\xa4type\xa9Completed\xa6poison\xdd\xff\xff\xff\xff"
    tracemalloc.start()
    try:
        with pytest.raises(FrameError):
            FrameDecoder().feed(raw_frame(body))
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_a_declared_length_takes_no_memory() -> None:
    head = raw_frame(b"", message_bytes=1000, payload_bytes=MAX_PAYLOAD_BYTES, kind=2)
    tracemalloc.start()
    try:
        decoder = FrameDecoder()
        assert decoder.feed(head + b"begin") == []
        assert decoder.feed(b"and on") == []
        assert decoder.buffered_bytes == HEADER_BYTES + 11
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"message_bytes": MAX_MESSAGE_BYTES + 1}, "at most 1048576"),
        ({"payload_bytes": MAX_PAYLOAD_BYTES + 1, "kind": 2}, "at most 67108864"),
        ({"version": PROTOCOL + 1}, f"the peer uses protocol {PROTOCOL + 1}, this side uses {PROTOCOL}"),
        ({"kind": 3}, "unknown kind"),
        ({"kind": 2}, "unknown kind"),
        ({"zero": 1}, "unknown kind"),
    ],
)
def test_a_header_alone_is_refused_with_a_reason(fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(FrameError, match=reason):
        FrameDecoder().feed(raw_frame(b"", **fields)[:HEADER_BYTES])


def test_something_else_than_a_frame_is_refused() -> None:
    with pytest.raises(FrameError, match="not a Spillway frame"):
        FrameDecoder().feed(b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n")


def test_a_decoder_stays_dead() -> None:
    decoder = FrameDecoder()
    with pytest.raises(FrameError, match="not a Spillway frame"):
        decoder.feed(b"x" * HEADER_BYTES)
    with pytest.raises(FrameError, match="not a Spillway frame"):
        decoder.feed(frame_bytes(Shutdown()))


def test_own_limits_hold() -> None:
    decoder = FrameDecoder(max_message_bytes=100, max_payload_bytes=10)
    assert len(decoder.feed(frame_bytes(RUN, bytes(10)))) == 1
    with pytest.raises(FrameError, match="a payload of 11 bytes; at most 10"):
        decoder.feed(frame_bytes(RUN, bytes(11)))


def test_what_no_decoder_would_take_is_not_encoded() -> None:
    with pytest.raises(ValueError, match="a message may take"):
        encode_frame(Bye(reason="x" * MAX_MESSAGE_BYTES))
    with pytest.raises(ValueError, match="a payload may be"):
        encode_frame(Credit(query="q", epoch=1, bytes=1), bytes(MAX_PAYLOAD_BYTES + 1))


@pytest.mark.parametrize(("payload_bytes", "piece_bytes"), [(MAX_PAYLOAD_BYTES, 64 << 10), (1 << 20, 7)])
def test_feeding_takes_linear_time(payload_bytes: int, piece_bytes: int) -> None:
    wire = memoryview(frame_bytes(RUN, bytes(payload_bytes)))
    decoder = FrameDecoder()
    start_s = time.perf_counter()
    frames = [f for at in range(0, len(wire), piece_bytes) for f in decoder.feed(wire[at : at + piece_bytes])]
    assert time.perf_counter() - start_s < 30, "a join for each piece would take minutes for the small pieces"
    assert [len(frame.payload) for frame in frames] == [payload_bytes]
