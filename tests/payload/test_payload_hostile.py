import gzip
import struct
import tracemalloc
from collections.abc import Callable
from typing import Any

import msgspec
import pyarrow as pa
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from infra.payload import CODECS, CodecPolicy, Decoder, Encoder, NewDictionary, PayloadError
from infra.payload.body import fingerprint
from infra.payload.codecs.dictionaries import dictionary_id
from infra.payload.wire import FieldHeader, Header, join
from tests.payload.payload_data import batches, mail_batch, needed, schemas

LIMIT = 1 << 20
TEXT = pa.schema([("text", pa.string())])


def ipc(*columns: pa.Array, **options: Any) -> bytes:
    batch = pa.RecordBatch.from_arrays(list(columns), names=[""] * len(columns))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_batch(batch)
    reader = pa.ipc.MessageReader.open_stream(sink.getvalue())
    reader.read_next_message()
    message: bytes = reader.read_next_message().serialize().to_pybytes()
    return message


def payload(schema: pa.Schema, body: bytes, *, rows: int = 1, raw_bytes: int | None = None, **more: Any) -> bytes:
    field: dict[str, Any] = {
        "column": 0,
        "codec": "none",
        "raw_bytes": len(body) if raw_bytes is None else raw_bytes,
    } | more
    if raw_bytes is None:
        field["raw_bytes"] = len(body)
    field |= more
    header = FieldHeader(packed_bytes=len(body), **field)
    return join(Header(fingerprint=fingerprint(schema), rows=rows, fields=(header,)), [body])


def refused(data: bytes, schema: pa.Schema = TEXT, match: str = ".") -> int:
    """Assert that a payload is refused; return the most bytes that Python and Arrow held meanwhile."""
    decoder = Decoder(schema, max_bytes=LIMIT)
    tracemalloc.start()
    try:
        arrow_bytes = pa.total_allocated_bytes()
        with pytest.raises(PayloadError, match=match):
            decoder.decode(data)
        return tracemalloc.get_traced_memory()[1] + int(pa.total_allocated_bytes() - arrow_bytes)
    finally:
        tracemalloc.stop()


def without_size(raw: bytes) -> bytes:
    return zstandard.ZstdCompressor(write_content_size=False).compress(raw)


ZEROS = bytes(64 * LIMIT)
BOMBS: dict[str, Callable[[], dict[str, Any]]] = {
    "zstd says its size": lambda: {"body": zstandard.compress(ZEROS), "codec": "zstd", "raw_bytes": 1000},
    "zstd says no size": lambda: {"body": without_size(ZEROS), "codec": "zstd", "raw_bytes": 1000},
    "zstd of a terabyte": lambda: {
        "body": b"\x28\xb5\x2f\xfd\xe0" + struct.pack("<Q", 1 << 40),
        "codec": "zstd",
        "raw_bytes": 1 << 40,
    },
    "zstd lies": lambda: {
        "body": b"\x28\xb5\x2f\xfd\xe0" + struct.pack("<Q", 1000) + zstandard.compress(ZEROS)[-50:],
        "codec": "zstd",
        "raw_bytes": 1000,
    },
    "zstd frames in a row": lambda: {"body": zstandard.compress(bytes(9)) * 2, "codec": "zstd", "raw_bytes": 9},
    "zstd skippable": lambda: {"body": b"\x50\x2a\x4d\x18\x04\0\0\0abcd", "codec": "zstd", "raw_bytes": 0},
    "gzip": lambda: {"body": gzip.compress(ZEROS), "codec": "gzip", "raw_bytes": 1000},
    "gzip says it": lambda: {"body": gzip.compress(ZEROS), "codec": "gzip", "raw_bytes": len(ZEROS)},
    "gzip members in a row": lambda: {"body": gzip.compress(bytes(9)) * 2, "codec": "gzip", "raw_bytes": 9},
    "gzip cut": lambda: {"body": gzip.compress(bytes(9))[:-1], "codec": "gzip", "raw_bytes": 9},
    "gzip of nothing": lambda: {"body": gzip.compress(b""), "codec": "gzip", "raw_bytes": 0},
    "plain lies": lambda: {"body": bytes(8), "raw_bytes": 9},
}


@pytest.mark.parametrize("name", BOMBS)
def test_bombs_are_refused_within_the_limit(name: str) -> None:
    assert refused(payload(TEXT, **BOMBS[name]())) < LIMIT


def test_the_limit_holds_over_all_fields_together() -> None:
    schema = pa.schema([("a", pa.string()), ("b", pa.string())])
    batch = pa.RecordBatch.from_pylist([{"a": "a" * 700_000, "b": "b" * 700_000}], schema=schema)
    encoded = Encoder(schema, codecs=CodecPolicy.parse("zstd")).encode(batch)
    assert refused(encoded.payload, schema, "field 'b'") < 2 * LIMIT
    assert Decoder(schema).decode(encoded.payload).equals(batch)


def test_rows_that_nothing_backs_are_refused() -> None:
    for rows in (LIMIT + 1, 1 << 48):
        empty = join(Header(fingerprint=fingerprint(TEXT), rows=rows, fields=()), [])
        assert refused(empty, match="rows") < LIMIT
    nulls = join(Header(fingerprint=fingerprint(TEXT), rows=LIMIT // 2, fields=()), [])
    assert refused(nulls, match="nulls of string") < LIMIT


def test_trimmed_members_cannot_multiply_what_came() -> None:
    wide = pa.struct([("flag", pa.bool_()), *((f"s{i}", pa.string()) for i in range(50))])
    schema = pa.schema([("l", pa.list_(wide))])
    flags = pa.StructArray.from_arrays([pa.array([True] * 100_000)], names=["flag"])
    body = ipc(pa.ListArray.from_arrays(pa.array([0, 100_000], pa.int32()), flags))
    kept = bytes([1] + [0] * 50)
    assert refused(payload(schema, body, kept=kept), schema, "nulls of string") < LIMIT
    assert Decoder(schema).decode(payload(schema, body, kept=kept)).column(0)[0][99_999].as_py()["s7"] is None


@pytest.mark.parametrize("element", [pa.null(), pa.struct([])], ids=str)
def test_values_that_need_no_bytes_are_counted(element: pa.DataType) -> None:
    count = 2**31 - 1
    schema = pa.schema([("l", pa.list_(pa.field("element", element)))])
    weightless = pa.Array.from_buffers(element, count, [None])
    body = ipc(pa.ListArray.from_arrays(pa.array([0, count], pa.int32()), weightless))
    assert refused(payload(schema, body), schema, "values of") < LIMIT


def test_compressed_buffers_inside_arrow_are_refused_before_arrow_sees_them() -> None:
    body = ipc(pa.array(["\0" * 8 * LIMIT]), compression="zstd")
    assert len(body) < LIMIT
    assert refused(payload(TEXT, body), match="compressed buffers") < LIMIT


def test_arrow_bodies_are_compared_with_what_was_promised() -> None:
    good = ipc(pa.array(["x"]))
    assert Decoder(TEXT).decode(payload(TEXT, good)).to_pylist() == [{"text": "x"}]
    refused(payload(TEXT, good, rows=2), match="2 rows")
    refused(payload(TEXT, ipc(pa.array([b"\xff\xfe"]))), match="UTF")
    refused(payload(TEXT, ipc(pa.array([1]))))
    refused(payload(TEXT, b""), match="not an Arrow message")
    refused(payload(TEXT, good + bytes(8)), match="wrong length")
    refused(payload(TEXT, good[:-8]), match="wrong length")
    schema_message = TEXT.serialize().to_pybytes()
    refused(payload(TEXT, schema_message), match="not a record batch")


@pytest.mark.parametrize("offsets", [(0, 1 << 30), (-5, 1), (1, 0), (0, 100)])
def test_string_offsets_outside_the_text_are_refused(offsets: tuple[int, int]) -> None:
    good = ipc(pa.array(["abc"]))
    at = good.rindex(struct.pack("<ii", 0, 3))
    refused(payload(TEXT, good[:at] + struct.pack("<ii", *offsets) + good[at + 8 :]))


def test_headers_are_checked() -> None:
    good = ipc(pa.array(["x"]))
    refused(payload(TEXT, good, column=1), match="unknown or occurs twice")
    refused(payload(pa.schema([("text", pa.binary())]), good), match="another schema")
    for form in (4, 12, 16, -1, "zstd"):
        raw = msgspec.msgpack.encode([fingerprint(TEXT), 1, 0, [[0, form, len(good), len(good)]]])
        refused(struct.pack("<4sI", b"SPL2", len(raw)) + raw + good, match="header")
    refused(payload(TEXT, good, codec="zstd-dict", dictionary_id=7), match="was not received")
    refused(payload(TEXT, good, kept=b"\1"), match="kept members")
    twice = FieldHeader(column=0, codec="none", raw_bytes=len(good), packed_bytes=len(good))
    header = Header(fingerprint=fingerprint(TEXT), rows=1, fields=(twice, twice))
    refused(join(header, [good, good]), match="occurs twice")
    refused(payload(TEXT, good) + b"\0", match="header says")
    for rows in (-1, 1 << 60, "many", None):
        raw = msgspec.msgpack.encode([fingerprint(TEXT), rows, 0, []])
        refused(struct.pack("<4sI", b"SPL2", len(raw)) + raw, match="header")
    refused(struct.pack("<4sI", b"SPL2", 1 << 31), match="header of")
    refused(struct.pack("<4sI", b"SPL2", 6000) + b"\x91" * 6000)
    refused(b"nothing like it", match="magic")
    refused(b"", match="no prefix")


@pytest.mark.parametrize("kept", [b"\1", b"\1\0\1", b"\2\0", b"\1\1\1"])
def test_kept_members_that_do_not_fit_the_type_are_refused(kept: bytes) -> None:
    schema = pa.schema([("s", pa.struct([("a", pa.string()), ("b", pa.int8())]))])
    body = ipc(pa.array([{"a": "x"}], pa.struct([("a", pa.string())])))
    assert Decoder(schema).decode(payload(schema, body, kept=b"\1\0")).to_pylist() == [{"s": {"a": "x", "b": None}}]
    refused(payload(schema, body, kept=kept), schema)


def trained() -> tuple[Encoder, pa.RecordBatch, NewDictionary]:
    batch = mail_batch(400)
    encoder = Encoder(batch.schema, codecs=CodecPolicy.parse({"body": "zstd-dict"}))
    for start in range(0, 400, 2):
        encoder.encode(batch.slice(start, 2))
    return encoder, batch, encoder.known_dictionaries()[0]


def test_dictionaries_are_checked() -> None:
    encoder, batch, good = trained()
    decoder = Decoder(batch.schema)
    for field, number, data, reason in (
        ("nope", good.dictionary_id, good.data, "'nope'"),
        ("body", good.dictionary_id + 1, good.data, "does not match"),
        ("body", good.dictionary_id, good.data[:-1], "does not match"),
        ("body", dictionary_id(b"text"), b"text", "not a zstd dictionary"),
        ("body", dictionary_id(good.data[:40]), good.data[:40], "not a zstd dictionary"),
        ("body", dictionary_id(b""), b"", "not a zstd dictionary"),
        ("body", 1, bytes(65537), "longer"),
    ):
        with pytest.raises(PayloadError, match=reason):
            decoder.add_dictionary(field, number, data)
    run = encoder.encode(batch.slice(0, 2)).payload
    with pytest.raises(PayloadError, match="was not received"):
        decoder.decode(run)
    decoder.add_dictionary("subject", good.dictionary_id, good.data)
    with pytest.raises(PayloadError, match="was not received"):
        decoder.decode(run)
    decoder.add_dictionary("body", good.dictionary_id, good.data)
    assert decoder.decode(run).equals(batch.slice(0, 2))


def test_a_decoder_keeps_only_the_newest_dictionaries_of_a_field() -> None:
    encoder, batch, first = trained()
    decoder = Decoder(batch.schema)
    run = encoder.encode(batch.slice(0, 2)).payload
    decoder.add_dictionary("body", first.dictionary_id, first.data)
    for seed in range(4):
        decoder.decode(run)
        samples = [text.encode() for text in mail_batch(60, seed=seed + 10).column("body").to_pylist()]
        data = zstandard.train_dictionary(4096, samples).as_bytes()
        decoder.add_dictionary("body", dictionary_id(data), data)
    with pytest.raises(PayloadError, match="was not received"):
        decoder.decode(run)


@given(st.data())
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_damaged_payloads_are_refused_or_give_a_valid_batch(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    codec = data.draw(st.sampled_from(CODECS))
    encoder = Encoder(schema, needed=data.draw(needed(schema) | st.none()), codecs=CodecPolicy.parse(codec))
    damaged = bytearray(encoder.encode(data.draw(batches(schema))).payload)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    cut = data.draw(st.none() | st.integers(0, len(damaged)))
    decoder = Decoder(schema, max_bytes=LIMIT)
    try:
        decoded = decoder.decode(bytes(damaged[:cut]))
    except PayloadError:
        return
    decoded.validate(full=True)
    assert decoded.schema.equals(schema)


@given(st.binary(max_size=300))
def test_any_bytes_as_an_arrow_body_are_refused(body: bytes) -> None:
    with pytest.raises(PayloadError):
        Decoder(TEXT, max_bytes=LIMIT).decode(payload(TEXT, body))


@pytest.mark.parametrize("codec", CODECS[:2])
def test_each_single_flipped_bit_of_a_nested_run_is_survived(codec: str) -> None:
    schema = pa.schema([("l", pa.list_(pa.struct([("a", pa.string()), ("b", pa.int32())]))), ("n", pa.int64())])
    batch = pa.RecordBatch.from_pylist(
        [{"l": [{"a": "x", "b": 1}, None], "n": 1}, {"l": None, "n": None}], schema=schema
    )
    part = pa.schema([("l", pa.list_(pa.struct([("a", pa.string())]))), ("n", pa.int64())])
    whole = Encoder(schema, needed=part, codecs=CodecPolicy.parse(codec)).encode(batch).payload
    decoder = Decoder(schema, max_bytes=LIMIT)
    refusals = 0
    for bit in range(8 * len(whole)):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        try:
            decoder.decode(bytes(damaged)).validate(full=True)
        except PayloadError:
            refusals += 1
    for length in range(len(whole)):
        with pytest.raises(PayloadError):
            decoder.decode(whole[:length])
    assert refusals > len(whole)
