"""Sealed values: what is sent of them, and that only the gateway that sealed them can open them."""

from __future__ import annotations

import zlib
from typing import Any

import pyarrow as pa
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from infra.messages import Predicate, PredicateOp
from infra.payload import CodecPolicy, Decoder, Encoded, Encoder, PayloadError, keep_mask, wire
from infra.payload.sealing import (
    Affixes,
    Constant,
    Encryption,
    FieldKeys,
    Seal,
    Tokens,
    UnsealableSeal,
    affixes_for,
    constant_for,
    unsealed,
)

KEYS = FieldKeys(bytes(range(32)), "q")
OTHER_SECRET = FieldKeys(bytes(32), "q")
OTHER_QUERY = FieldKeys(bytes(range(32)), "other")
SEALS = [Tokens, lambda keys, *affixes: Encryption(keys, "text", *affixes)]
TEXTS = st.one_of(st.text(), st.text(min_size=1, max_size=3).map(lambda text: text * 5000))
AFFIXES = st.builds(Affixes, st.text(max_size=5), st.text(max_size=5))


def is_(op: PredicateOp, value: Any = None, column: str = "text") -> Predicate:
    return Predicate(op=op, column=tuple(column.split(".")), value=value)


@pytest.mark.parametrize("make", SEALS)
@given(values=st.lists(st.none() | TEXTS, max_size=20), affixes=AFFIXES)
def test_texts_come_back(make: Any, values: list[str | None], affixes: Affixes) -> None:
    seal, column = make(KEYS, affixes), pa.array(values, pa.string())
    sealed = seal.seal(column)
    assert sealed.type == column.type
    assert [value is None for value in sealed.to_pylist()] == [value is None for value in values]
    assert seal.unseal(sealed.take(pa.array(range(len(values))[::-1], pa.int64()))).to_pylist() == values[::-1]


@pytest.mark.parametrize("make", SEALS)
@given(values=st.lists(st.none() | st.binary(), max_size=20))
def test_bytes_come_back(make: Any, values: list[bytes | None]) -> None:
    seal, column = make(KEYS), pa.array(values, pa.binary())
    sealed = seal.seal(column)
    assert sealed.type == column.type
    assert seal.unseal(sealed).equals(column)
    assert all(one != other for one, other in zip(sealed.to_pylist(), values, strict=True) if one is not None)


def test_a_slice_is_sealed_as_its_rows() -> None:
    column = pa.array(["a", None, "b", "c"])[1:3]
    assert Tokens(KEYS).unseal(Tokens(KEYS).seal(column)).to_pylist() == [None, "b"]


@given(values=st.lists(TEXTS, max_size=10))
def test_equal_values_have_equal_tokens_and_others_have_not(values: list[str]) -> None:
    tokens = Tokens(KEYS).seal(pa.array(values, pa.string())).to_pylist()
    assert len(set(tokens)) == len(set(values))
    assert tokens == Tokens(FieldKeys(bytes(range(32)), "q")).seal(pa.array(values, pa.string())).to_pylist()


def test_equal_values_are_encrypted_differently_each_time() -> None:
    seal, column = Encryption(KEYS, "text"), pa.array(["same"] * 100)
    assert len({*seal.seal(column).to_pylist(), *seal.seal(column).to_pylist()}) == 200


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Tokens(KEYS), Tokens(OTHER_SECRET)),
        (Tokens(KEYS), Tokens(OTHER_QUERY)),
        (Encryption(KEYS, "text"), Encryption(OTHER_SECRET, "text")),
        (Encryption(KEYS, "text"), Encryption(OTHER_QUERY, "text")),
        (Encryption(KEYS, "text"), Encryption(KEYS, "more")),
        (Encryption(KEYS, "text"), Tokens(KEYS)),
        (Tokens(KEYS), Encryption(KEYS, "text")),
        (Tokens(KEYS), Tokens(KEYS, Affixes("a"))),
        (Tokens(KEYS), Tokens(KEYS, Affixes("", "a"))),
    ],
)
def test_a_value_opens_only_where_it_was_sealed(one: UnsealableSeal, other: UnsealableSeal) -> None:
    sealed = one.seal(pa.array(["secret"]))
    with pytest.raises(PayloadError, match="was not sealed by this gateway for this field"):
        other.unseal(sealed)


@pytest.mark.parametrize("make", SEALS)
@pytest.mark.parametrize("text", ["", "a", "clear", "AAAA", "é", "A" * 100])
def test_what_was_never_sealed_is_refused(make: Any, text: str) -> None:
    with pytest.raises(PayloadError, match=r"'lane'.*was not sealed"):
        unsealed(pa.record_batch({"lane": pa.array([text])}), {"lane": make(KEYS)})


@pytest.mark.parametrize("make", SEALS)
@given(at=st.integers(0, 200), bit=st.integers(0, 7))
def test_a_changed_bit_is_noticed(make: Any, at: int, bit: int) -> None:
    seal = make(KEYS)
    value = bytearray(seal.seal(pa.array([b"secret"]))[0].as_py())
    value[at % len(value)] ^= 1 << bit
    with pytest.raises(PayloadError):
        seal.unseal(pa.array([bytes(value)]))


def test_a_secret_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="32 bytes, not 3"):
        FieldKeys(b"abc", "q")


# ------------------------------------------------------------------------------------- conditions that are met anyway


@pytest.mark.parametrize(
    ("predicates", "affixes"),
    [
        ([], Affixes()),
        ([is_("not_null"), is_("ends_with", "@enron.com")], Affixes("", "@enron.com")),
        ([is_("starts_with", "a"), is_("starts_with", "ab"), is_("contains", "x")], Affixes("abx", "")),
        ([is_("ends_with", "b"), is_("ends_with", "ab")], Affixes("", "ab")),
        ([Predicate(op="and", children=(is_("not_null"), is_("contains", "é")))], Affixes("é", "")),
        ([is_("is_null")], Affixes()),
        ([is_("starts_with", "a"), is_("starts_with", "b")], None),
        ([is_("ends_with", "a"), is_("ends_with", "b")], None),
        ([is_("eq", "a")], None),
        ([is_("gt", "a")], None),
        ([is_("in", ["a", "b"])], None),
        ([Predicate(op="not", children=(is_("contains", "a"),))], None),
        ([Predicate(op="or", children=(is_("contains", "a"), is_("contains", "b")))], None),
    ],
)
def test_text_around_sealed_values_meets_conditions(predicates: list[Predicate], affixes: Affixes | None) -> None:
    assert affixes_for(predicates) == affixes
    if affixes is not None and is_("is_null") not in predicates:
        sealed = Tokens(KEYS, affixes).seal(pa.array(["", "b", "é" * 99]))
        assert keep_mask(pa.record_batch({"text": sealed}), predicates).true_count == 3


@pytest.mark.parametrize(
    ("kind", "predicates"),
    [
        (pa.string(), [is_("eq", "x")]),
        (pa.string(), [is_("not_null"), is_("ends_with", "b"), is_("contains", "c"), is_("starts_with", "a")]),
        (pa.string(), [is_("gt", "m"), is_("lt", "z")]),
        (pa.string(), [is_("in", ["x", "y"]), Predicate(op="not", children=(is_("eq", "x"),))]),
        (pa.string(), [Predicate(op="or", children=(is_("eq", "x"), is_("is_null")))]),
        (pa.int32(), [is_("not_null"), is_("gt", 5)]),
        (pa.int64(), [is_("ge", 5), is_("lt", 6)]),
        (pa.int8(), [is_("le", 127), is_("gt", 126)]),
        (pa.bool_(), [is_("eq", False)]),
        (pa.float64(), [is_("not_null")]),
        (pa.timestamp("us", "UTC"), [is_("not_null")]),
        (pa.decimal128(10, 2), [is_("not_null")]),
        (pa.binary(), [is_("not_null")]),
        (pa.list_(pa.string()), [is_("not_null")]),
        (pa.map_(pa.string(), pa.int32()), [is_("not_null")]),
        (pa.struct([("a", pa.int32())]), [is_("not_null")]),
        (pa.struct([("a", pa.int32())]), [is_("is_null", column="text.a")]),
    ],
)
def test_a_constant_meets_conditions(kind: pa.DataType, predicates: list[Predicate]) -> None:
    found = constant_for("text", kind, predicates)
    assert found is not None
    column = Constant(found[0]).seal(pa.nulls(3, kind))
    assert column.type == kind
    assert keep_mask(pa.record_batch({"text": column}), predicates).true_count == 3


@pytest.mark.parametrize(
    "predicates",
    [
        [is_("is_null"), is_("not_null")],
        [is_("eq", "a"), is_("eq", "b")],
        [Predicate(op="or", children=(is_("eq", "a"), is_("eq", 1, "n")))],
    ],
)
def test_where_no_constant_is_found(predicates: list[Predicate]) -> None:
    assert constant_for("text", pa.string(), predicates) is None


# -------------------------------------------------------------------------------------------- what the link is handed

SCHEMA = pa.schema([("id", pa.int64()), ("mail", pa.string()), ("raw", pa.binary()), ("who", pa.string())])
SECRETS = ["Grüße aus dem Büro, streng geheim", "another secret that nobody may see"]


def batch(rows: int) -> pa.RecordBatch:
    texts = [SECRETS[row % 2] for row in range(rows)]
    columns = [
        list(range(rows)),
        texts,
        [text.encode() for text in texts],
        [f"{text} {n}" for n, text in enumerate(texts)],
    ]
    return pa.RecordBatch.from_arrays(
        [pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
    )


def bytes_handed_over(encoded: Encoded) -> bytes:
    """Return the payload, and everything in it unpacked, by an independent reader of the frames."""
    header, bodies = wire.split(encoded.payload)
    known = {each.dictionary_id: zstandard.ZstdCompressionDict(each.data) for each in encoded.dictionaries}
    found = [encoded.payload, *(each.data for each in encoded.dictionaries)]
    for field, packed in zip(header.fields, bodies, strict=True):
        match field.codec:
            case "none":
                found.append(bytes(packed))
            case "gzip":
                found.append(zlib.decompress(bytes(packed), wbits=47))
            case _:
                dictionary = known.get(field.dictionary_id)
                reader = zstandard.ZstdDecompressor(dict_data=dictionary)
                found.append(reader.decompressobj().decompress(bytes(packed)))
    return b"".join(found)


@pytest.mark.parametrize("compress", ["none", "auto", "gzip", "zstd", "zstd-dict"])
def test_no_clear_value_is_among_the_bytes_of_a_frame(compress: str) -> None:
    known: dict[str, UnsealableSeal] = {"mail": Tokens(KEYS), "raw": Encryption(KEYS, "raw")}
    seals: dict[str, Seal] = {**known, "who": Constant("x")}
    codecs = CodecPolicy.parse(compress).without_dictionaries(["mail", "raw"])
    encoder = Encoder(SCHEMA, codecs=codecs, seals=seals)
    plain = Encoder(SCHEMA, codecs=CodecPolicy.parse(compress))
    for rows in (1, 7, 300):
        events = batch(rows)
        texts = [text.encode()[:12] for text in SECRETS[:rows]]
        in_clear = bytes_handed_over(plain.encode(events))
        assert all(text in in_clear for text in texts), "the search finds what is not sealed"
        encoded = encoder.encode(events)
        handed_over = bytes_handed_over(encoded)
        assert not any(text in handed_over for text in texts)
        came = Decoder(SCHEMA).decode(encoded.payload)
        assert came["who"].to_pylist() == ["x"] * rows
        clear = unsealed(came, known).to_pylist()
        assert clear == [{**row, "who": "x"} for row in events.to_pylist()]


def test_a_private_field_that_is_not_needed_is_not_in_the_frame() -> None:
    encoder = Encoder(SCHEMA, needed=SCHEMA.remove(3).remove(2).remove(1), codecs=CodecPolicy.parse("none"))
    handed_over = bytes_handed_over(encoder.encode(batch(9)))
    assert not any(text.encode()[:12] in handed_over for text in SECRETS)


def test_conditions_see_clear_values_and_constants_replace_even_nulls() -> None:
    schema = pa.schema([("text", pa.string())])
    encoder = Encoder(
        schema,
        predicates=(is_("contains", "a"),),
        codecs=CodecPolicy.parse("none"),
        seals={"text": Tokens(KEYS, Affixes("a"))},
    )
    came = Decoder(schema).decode(encoder.encode(pa.record_batch({"text": ["xa", "b", None, "ay"]})).payload)
    assert Tokens(KEYS, Affixes("a")).unseal(came["text"]).to_pylist() == ["xa", "ay"]
    nulls = Encoder(schema, codecs=CodecPolicy.parse("none"), seals={"text": Constant("c")})
    assert Decoder(schema).decode(nulls.encode(pa.record_batch({"text": pa.nulls(2, pa.string())})).payload)[
        "text"
    ].to_pylist() == ["c", "c"]


def test_ciphertext_gets_no_dictionary_and_texts_lose_what_base64_adds() -> None:
    policy = CodecPolicy.parse({"mail": "zstd-dict", "raw": "none", "who": "auto"})
    plain = policy.without_dictionaries(["mail", "raw", "who"])
    assert [plain.mode(name) for name in ("mail", "raw", "who", "id")] == ["zstd", "none", "zstd", "none"]
    assert policy.mode("mail") == "zstd-dict"
    schema = pa.schema([("mail", pa.string())])
    column = pa.record_batch({"mail": [f"{number:0200d}" for number in range(500)]})
    seals = {"mail": Encryption(KEYS, "mail")}
    codecs = CodecPolicy.parse("auto").without_dictionaries(["mail"])
    encoded = Encoder(schema, codecs=codecs, seals=seals).encode(column)
    ciphertext_bytes = 500 * (200 + 36)
    assert 500 * 200 < len(encoded.payload) < ciphertext_bytes, "Base64 costs nothing, nor does the common salt"
    assert encoded.dictionaries == ()
