import itertools
import struct
import time
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from infra.payload import (
    CODECS,
    DEFAULT_LINK_RATE,
    Codec,
    CodecPolicy,
    Decoder,
    Encoder,
    Measurement,
    PayloadError,
    choose,
)
from infra.payload.codecs import zstdblocks
from infra.payload.codecs.codecs import unpack_zstd
from infra.payload.codecs.zstdblocks import claims
from tests.payload.payload_data import mail_batch

MB = 1e6


def measured(sent_mb: float, cpu_s: float) -> Measurement:
    return Measurement(raw_bytes=10 * MB, sent_bytes=sent_mb * MB, cpu_s=cpu_s)


MAIL_LIKE: dict[Codec, Measurement] = {
    "none": measured(10, 0.0),
    "gzip": measured(4.0, 0.25),
    "zstd": measured(5.0, 0.06),
    "zstd-dict": measured(4.5, 0.08),
}


@pytest.mark.parametrize(
    ("link_rate", "codec"),
    [(1e9, "none"), (50 * MB, "zstd"), (5 * MB, "zstd-dict"), (0.5 * MB, "gzip")],
)
def test_the_slower_the_link_the_more_cpu_is_worth_it(link_rate: float, codec: Codec) -> None:
    assert choose(MAIL_LIKE, link_rate) == codec


@given(
    st.dictionaries(
        st.sampled_from(CODECS), st.tuples(st.floats(1, 1e6), st.floats(0, 1e8), st.floats(0, 10)), min_size=1
    ),
    st.floats(1, 1e9),
)
def test_no_measured_codec_is_cheaper_than_the_chosen_one(
    raw: dict[Codec, tuple[float, float, float]], rate: float
) -> None:
    found = {c: Measurement(raw_bytes=r, sent_bytes=s, cpu_s=cpu) for c, (r, s, cpu) in raw.items()}
    chosen = choose(found, rate)
    assert found[chosen].cost_s(rate) == min(m.cost_s(rate) for m in found.values())


def test_of_equals_the_simpler_is_chosen() -> None:
    assert choose(dict.fromkeys(reversed(CODECS), measured(1, 1)), 1.0) == "none"


def test_nothing_measured_or_no_link_is_an_error() -> None:
    with pytest.raises(ValueError, match="no codec"):
        choose({}, 1.0)
    with pytest.raises(ValueError, match="above 0"):
        choose(MAIL_LIKE, 0.0)
    with pytest.raises(ValueError, match="above 0"):
        CodecPolicy().link_rate(-1.0)


def test_the_config_forms() -> None:
    assert CodecPolicy.parse("auto").mode("x") == "auto"
    assert CodecPolicy.parse("zstd").mode("x") == "zstd"
    nothing: tuple[Any, ...] = ("none", {}, None)
    assert [CodecPolicy.parse(each).mode("x") for each in nothing] == ["none"] * 3
    mixed = CodecPolicy.parse({"body": "zstd-dict", "to": "auto"})
    assert [mixed.mode(f) for f in ("body", "to", "id")] == ["zstd-dict", "auto", "none"]


def test_an_unknown_codec_or_field_names_the_nearest() -> None:
    with pytest.raises(ValueError, match="compress: body: unknown codec 'zst'; did you mean 'zstd'"):
        CodecPolicy.parse({"body": "zst"})
    with pytest.raises(ValueError, match="'boddy'; did you mean 'body'"):
        Encoder(mail_batch(1).schema, codecs=CodecPolicy.parse({"boddy": "zstd"}))


def test_a_mapping_packs_only_what_it_names() -> None:
    batch = mail_batch(50)
    encoder = Encoder(batch.schema, codecs=CodecPolicy.parse({"body": "gzip"}))
    plain = Encoder(batch.schema, codecs=CodecPolicy())
    assert encoder.choices() == {"id": "none", "subject": "none", "body": "gzip"}
    assert len(encoder.encode(batch).payload) < 0.6 * len(plain.encode(batch).payload)


class Clock:
    """A clock on which every step takes a second; it counts how often it is read."""

    def __init__(self) -> None:
        self.reads = 0

    def __call__(self) -> float:
        self.reads += 1
        return float(self.reads)


def test_auto_sends_random_bytes_as_they_are_on_a_fast_link() -> None:
    noise = [np.random.default_rng(i).bytes(1000) for i in range(200)]
    batch = pa.record_batch([pa.array(noise, pa.binary())], names=["noise"])
    policy = CodecPolicy.parse("auto")
    policy.link_rate(1e9)
    encoder = Encoder(batch.schema, codecs=policy)
    assert encoder.choices() == {}
    encoder.encode(batch)
    assert encoder.choices() == {"noise": "none"}


def test_auto_follows_the_link() -> None:
    batch = mail_batch(100)
    policy = CodecPolicy.parse({"body": "auto"})
    encoder = Encoder(batch.schema, codecs=policy)
    chosen = []
    for link_rate in (1e3, 1e12):
        policy.link_rate(link_rate)
        for _ in range(70):
            encoder.encode(batch)
        chosen.append(encoder.choices()["body"])
    assert chosen[0] != "none"
    assert chosen[1] == "none"


def test_auto_trains_a_dictionary_for_short_runs_only() -> None:
    batch = mail_batch(600)
    policy = CodecPolicy.parse({"body": "auto"}, clock=lambda: 0.0)
    short, long = (Encoder(batch.schema, codecs=policy) for _ in range(2))
    for start in range(0, 600, 2):
        short.encode(batch.slice(start, 2))
    for _ in range(100):
        long.encode(batch)
    assert short.choices()["body"] == "zstd-dict"
    assert long.choices()["body"] != "zstd-dict"
    assert long.known_dictionaries() == ()


def test_link_rate_falls_back_to_the_default() -> None:
    policy = CodecPolicy()
    policy.link_rate(1.0)
    policy.link_rate(None)
    assert policy.current_link_rate == DEFAULT_LINK_RATE


def test_auto_measures_often_at_first_then_each_64_runs_and_soon_after_sizes_shift() -> None:
    clock = Clock()
    batch = mail_batch(100)
    body = pa.schema([("body", pa.string())])
    encoder = Encoder(batch.schema, needed=body, codecs=CodecPolicy.parse("auto", clock=clock))

    def measuring(run: pa.RecordBatch, times: int) -> list[int]:
        reads = [clock.reads, *((encoder.encode(run), clock.reads)[1] for _ in range(times))]
        return [i for i, (before, after) in enumerate(itertools.pairwise(reads)) if after != before]

    steady = measuring(batch, 400)
    assert len(steady) < 16
    assert max(np.diff(steady)) == 64
    assert measuring(batch.slice(0, 10), 64)[0] < 8
    assert max(np.diff(measuring(batch, 400))) == 64


def test_a_dictionary_comes_once_after_training_and_pays_for_short_runs() -> None:
    batch = mail_batch(600)
    encoder = Encoder(batch.schema, codecs=CodecPolicy.parse({"body": "zstd-dict"}))
    plain = Encoder(batch.schema, codecs=CodecPolicy.parse({"body": "zstd"}))
    first = encoder.encode(batch.slice(0, 2))
    assert first.dictionaries == ()
    assert encoder.known_dictionaries() == ()
    assert first.payload == plain.encode(batch.slice(0, 2)).payload
    announced = [new for i in range(2, 600, 2) for new in encoder.encode(batch.slice(i, 2)).dictionaries]
    assert [new.field for new in announced] == ["body"]
    assert encoder.known_dictionaries() == tuple(announced)
    assert len(announced[0].data) <= 64 * 1024
    unseen = mail_batch(2, seed=9)
    assert len(encoder.encode(unseen).payload) < 0.95 * len(plain.encode(unseen).payload)


def test_the_announcing_payload_is_the_first_that_needs_the_dictionary() -> None:
    batch = mail_batch(600)
    encoder = Encoder(batch.schema, codecs=CodecPolicy.parse({"body": "zstd-dict"}))
    before, after = Decoder(batch.schema), Decoder(batch.schema)
    for start in range(0, 600, 2):
        run = batch.slice(start, 2)
        encoded = encoder.encode(run)
        if encoder.known_dictionaries():
            with pytest.raises(PayloadError, match="was not received"):
                before.decode(encoded.payload)
        else:
            assert before.decode(encoded.payload).equals(run)
        for new in encoded.dictionaries:
            after.add_dictionary(new.field, new.dictionary_id, new.data)
        assert after.decode(encoded.payload).equals(run)
    assert encoder.known_dictionaries()


def test_samples_that_zstd_cannot_learn_from_leave_the_field_without_a_dictionary(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(size_bytes: int, samples: list[bytes]) -> None:
        raise zstandard.ZstdError(f"{len(samples)} samples are not enough for {size_bytes} bytes")

    monkeypatch.setattr(zstandard, "train_dictionary", fail)
    batch = mail_batch(400)
    encoder = Encoder(batch.schema, codecs=CodecPolicy.parse("zstd-dict"))
    for start in range(0, 400, 2):
        run = batch.slice(start, 2)
        assert Decoder(batch.schema).decode(encoder.encode(run).payload).equals(run)
    assert encoder.known_dictionaries() == ()


def test_packing_that_does_not_shorten_is_not_used() -> None:
    noise = pa.record_batch([pa.array([np.random.default_rng(1).bytes(5000)])], names=["noise"])
    plain = Encoder(noise.schema, codecs=CodecPolicy()).encode(noise).payload
    for codec in ("gzip", "zstd"):
        assert len(Encoder(noise.schema, codecs=CodecPolicy.parse(codec)).encode(noise).payload) <= len(plain)


def test_what_the_encoder_is_given_must_fit_its_schema() -> None:
    schema = mail_batch(1).schema
    with pytest.raises(ValueError, match="but the encoder expects"):
        Encoder(schema, codecs=CodecPolicy()).encode(mail_batch(1).select(["id"]))
    with pytest.raises(ValueError, match=r"needed columns \['nope'\]"):
        Encoder(schema, needed=pa.schema([("nope", pa.string())]), codecs=CodecPolicy())
    with pytest.raises(ValueError, match="needed column id is string"):
        Encoder(schema, needed=pa.schema([("id", pa.string())]), codecs=CodecPolicy())
    with pytest.raises(ValueError, match="needed column s has members"):
        Encoder(
            pa.schema([("s", pa.struct([("a", pa.int8())]))]),
            needed=pa.schema([("s", pa.struct([("b", pa.int8())]))]),
            codecs=CodecPolicy(),
        )


@pytest.mark.parametrize(
    "kind",
    [pa.dictionary(pa.int8(), pa.string()), pa.large_list(pa.int8()), pa.string_view(), pa.list_(pa.int8(), 3)],
    ids=str,
)
def test_types_that_frames_do_not_carry_are_refused_early(kind: pa.DataType) -> None:
    for schema in (pa.schema([("x", kind)]), pa.schema([("x", pa.list_(kind))])):
        with pytest.raises(ValueError, match="frames do not support"):
            Encoder(schema, codecs=CodecPolicy())
        with pytest.raises(ValueError, match="frames do not support"):
            Decoder(schema)


def test_a_schema_without_columns_or_with_twins_is_refused() -> None:
    with pytest.raises(ValueError, match="no columns"):
        Decoder(pa.schema([]))
    with pytest.raises(ValueError, match="same name"):
        Decoder(pa.schema([("a", pa.int8()), ("a", pa.int8())]))


@given(st.lists(st.tuples(st.binary(min_size=1, max_size=40), st.integers(1, 20_000)), max_size=6), st.integers(-5, 19))
def test_an_honest_frame_holds_at_least_what_its_blocks_say(parts: list[tuple[bytes, int]], level: int) -> None:
    raw = b"".join(piece * count for piece, count in parts)
    packed = memoryview(zstandard.ZstdCompressor(level=level).compress(raw))
    assert claims(packed, 1 << 20, 1 << 30).least_bytes <= len(raw)
    assert unpack_zstd(zstandard.ZstdDecompressor(), packed, len(raw)) == raw


@pytest.mark.parametrize("raw", [bytes(4 << 20), np.random.default_rng(7).bytes(4 << 20)], ids=["repeated", "stored"])
def test_a_frame_that_holds_more_than_it_declares_is_seen_before_it_is_unpacked(raw: bytes) -> None:
    packed = memoryview(zstandard.ZstdCompressor().compress(raw))
    assert 1 << 20 < claims(packed, 1 << 20, 1 << 20).least_bytes <= (1 << 20) + (128 << 10)


def frame_of(raw_bytes: int, *blocks: tuple[int, bytes]) -> memoryview:
    """A frame made by hand: the size that it declares, and (kind, content) of its blocks (RFC 8878, 3.1.1)."""
    parts = [(kind << 1 | len(data) << 3).to_bytes(3, "little") + data for kind, data in blocks]
    return memoryview(b"\x28\xb5\x2f\xfd\x80\x58" + struct.pack("<I", raw_bytes) + b"".join(parts) + b"\1\0\0")


def copies(count: int) -> bytes:
    """A compressed block of copies of three bytes, each of which takes no bit."""
    if count >= 0x7F00:
        told = b"\xff" + struct.pack("<H", count - 0x7F00)
    else:
        told = bytes([count]) if count < 128 else bytes([128 + (count >> 8), count & 255])
    return b"\0" + told + b"\x54\0\0\0\1"


@pytest.mark.parametrize("count", [1, 127, 128, 255, 256, 0x7EFF, 0x7F00, 43_690])
def test_sequences_are_counted_before_they_are_done(count: int) -> None:
    packed = frame_of(16 + 3 * count, (0, b"0123456789abcdef"), (2, copies(count)))
    assert claims(packed, 9, 1 << 30) == (3, count, 16 + 3 * count)
    raw = unpack_zstd(zstandard.ZstdDecompressor(), packed, 16 + 3 * count)
    assert len(raw) == 16 + 3 * count, "it is as the decompressor counts, too"


@pytest.mark.parametrize("size", [1, 31, 32, 700, 4095, 4096, 70_000])
@pytest.mark.parametrize("letters", [1, 2, 60, 256])
def test_literals_are_counted_before_they_are_unpacked(size: int, letters: int) -> None:
    """Without a match all bytes are literals: stored, one repeated, or packed in one of four ways."""
    raw = np.random.default_rng(size).integers(0, letters, size, dtype=np.uint8).tobytes()
    options = zstandard.ZstdCompressionParameters.from_level(3, min_match=7, strategy=1, target_length=99_999)
    packed = memoryview(zstandard.ZstdCompressor(compression_params=options).compress(raw))
    told = claims(packed, 1 << 20, 1 << 30)
    assert told.least_bytes + 1000 * told.sequences >= len(raw) >= told.least_bytes
    if not told.sequences:
        assert told.least_bytes == len(raw)


def test_a_few_bytes_that_mean_much_work_are_refused_before_it_is_done() -> None:
    """These 12 kB take a second to unpack."""
    rows = (127 << 20) // (3 * 43_690)
    packed = frame_of(16 + rows * 3 * 43_690, (0, b"0123456789abcdef"), *[(2, copies(43_690))] * rows)
    began_s = time.process_time()
    with pytest.raises(PayloadError, match=r"of 12\d\d\d bytes has \d{8} sequences, more than 5\d{5}"):
        unpack_zstd(zstandard.ZstdDecompressor(), packed, 16 + rows * 3 * 43_690)
    assert time.process_time() - began_s < 0.3


@given(
    st.lists(st.tuples(st.integers(0, 3), st.binary(max_size=40) | st.integers(0, 50_000).map(copies)), max_size=8),
    st.integers(0, 200_000),
    st.integers(0, 60),
)
def test_whatever_blocks_say_nothing_but_a_refusal_comes_of_it(
    blocks: list[tuple[int, bytes]], raw_bytes: int, cut_bytes: int
) -> None:
    packed = frame_of(raw_bytes, *blocks)
    packed = packed[: max(0, len(packed) - cut_bytes)]
    try:
        raw = unpack_zstd(zstandard.ZstdDecompressor(), packed, raw_bytes)
    except PayloadError:
        return
    assert len(raw) == raw_bytes
    assert claims(packed, 99, raw_bytes).least_bytes <= raw_bytes


def test_blocks_that_hold_nothing_are_not_walked_without_end() -> None:
    empty_blocks = frame_of(1 << 20, *[(0, b"")] * (1 << 20))
    began_s = time.process_time()
    with pytest.raises(PayloadError, match="more than 320 blocks for 1048576 bytes"):
        unpack_zstd(zstandard.ZstdDecompressor(), empty_blocks, 1 << 20)
    assert time.process_time() - began_s < 0.3, "a million blocks take far longer"


@pytest.mark.parametrize("codec", ["zstd", "gzip", "auto"])
def test_what_packs_too_well_is_sent_with_ballast(codec: str) -> None:
    """40 MB of one value pack into 4 kB; so few bytes without ballast would be refused from any sender."""
    batch = pa.record_batch({"a": np.zeros(5_000_000, np.int64)})
    encoded = Encoder(batch.schema, codecs=CodecPolicy.parse(codec)).encode(batch)
    assert len(encoded.payload) == pytest.approx((40_000_000 - (8 << 20)) / 64, rel=0.01)
    assert Decoder(batch.schema).decode(encoded.payload).equals(batch)
    with pytest.raises(PayloadError, match="header says"):
        Decoder(batch.schema).decode(encoded.payload[:-1])


def test_runs_of_usual_sizes_have_no_ballast() -> None:
    batch = pa.record_batch({"a": np.zeros(1_000_000, np.int64)})
    encoded = Encoder(batch.schema, codecs=CodecPolicy.parse("zstd")).encode(batch)
    assert len(encoded.payload) < 2000
    assert Decoder(batch.schema).decode(encoded.payload).equals(batch)


def test_a_frame_that_the_other_site_would_refuse_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = np.random.default_rng(1).integers(0, 2, 100_000)
    batch = pa.record_batch({"a": pa.array([numbers])})  # a list has no shape
    monkeypatch.setattr(zstdblocks, "FREE_SEQUENCES", 100)
    monkeypatch.setattr(zstdblocks, "SEQUENCES_PER_BYTE", 1)
    encoder = Encoder(batch.schema, codecs=CodecPolicy.parse("zstd"))
    payload = encoder.encode(batch).payload
    assert len(payload) > 800_000, "it goes as it is"
    assert Decoder(batch.schema).decode(payload).equals(batch)
