import decimal

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from infra.messages import Predicate
from infra.payload import CODECS, CodecPolicy, Decoder, Encoder
from tests.payload.payload_data import batches, expected, mail_batch, needed, same, schemas

RELAXED = settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
MODES = (*CODECS, "auto")


@given(st.data())
@RELAXED
def test_what_is_needed_comes_back_and_the_rest_is_null(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    part = data.draw(needed(schema) | st.none())
    encoder = Encoder(schema, needed=part, codecs=CodecPolicy.parse(data.draw(st.sampled_from(MODES))))
    decoder = Decoder(schema)
    for batch in data.draw(st.lists(batches(schema), min_size=1, max_size=3)):
        encoded = encoder.encode(batch)
        for new in encoded.dictionaries:
            decoder.add_dictionary(new.field, new.dictionary_id, new.data)
        decoded = decoder.decode(encoded.payload)
        decoded.validate(full=True)
        assert decoded.schema.equals(schema, check_metadata=True)
        assert encoded.rows == decoded.num_rows == batch.num_rows
        assert same(decoded.to_pylist(), expected(batch, schema if part is None else part))
        assert encoded.raw_bytes == batch.serialize().size


@given(st.data())
@RELAXED
def test_filtered_rows_are_those_whose_predicate_column_says_so(data: st.DataObject) -> None:
    schema = data.draw(schemas()).append(pa.field("flag", pa.bool_()))
    part = data.draw(needed(schema))
    flag = Predicate(op="eq", column=("flag",), value=True)
    encoder = Encoder(schema, needed=part, predicates=(flag,), codecs=CodecPolicy())
    batch = data.draw(batches(schema))
    decoded = Decoder(schema).decode(encoder.encode(batch).payload)
    wanted = [e for e, row in zip(expected(batch, part), batch.to_pylist(), strict=True) if row["flag"] is True]
    assert same(decoded.to_pylist(), wanted)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("rows", [1, 3, 500])
def test_long_use_of_each_codec_gives_every_run_back(mode: str, rows: int) -> None:
    batch = mail_batch(600)
    encoder, decoder = Encoder(batch.schema, codecs=CodecPolicy.parse(mode)), Decoder(batch.schema)
    for start in range(0, 600 - rows + 1, rows):
        run = batch.slice(start, rows)
        encoded = encoder.encode(run)
        for new in encoded.dictionaries:
            decoder.add_dictionary(new.field, new.dictionary_id, new.data)
        assert decoder.decode(encoded.payload).equals(run)


def test_no_column_needed_still_sends_the_row_count() -> None:
    batch = mail_batch(7)
    encoded = Encoder(batch.schema, needed=pa.schema([]), codecs=CodecPolicy()).encode(batch)
    decoded = Decoder(batch.schema).decode(encoded.payload)
    assert encoded.rows == decoded.num_rows == 7
    assert decoded.column("body").null_count == 7
    assert len(encoded.payload) < 64


def test_no_rows_send_no_columns() -> None:
    batch = mail_batch(7).slice(0, 0)
    encoded = Encoder(batch.schema, codecs=CodecPolicy.parse("zstd")).encode(batch)
    assert (encoded.rows, Decoder(batch.schema).decode(encoded.payload).num_rows) == (0, 0)
    assert len(encoded.payload) < 64


def test_a_column_of_nulls_takes_no_room() -> None:
    schema = pa.schema([("a", pa.int32()), ("b", pa.list_(pa.string()))])
    batch = pa.RecordBatch.from_pylist([{"a": None, "b": None}] * 10_000, schema=schema)
    encoded = Encoder(schema, codecs=CodecPolicy()).encode(batch)
    assert len(encoded.payload) < 64
    assert Decoder(schema).decode(encoded.payload).equals(batch)


@pytest.mark.parametrize("part", ["whole", "pruned"])
def test_a_slice_does_not_drag_its_parent_along(part: str) -> None:
    member = pa.struct([("x", pa.string()), ("y", pa.string())])
    schema = pa.schema(
        [("s", member), ("l", pa.list_(member)), ("m", pa.map_(pa.string(), member)), ("t", pa.string())]
    )
    cell = {"x": "x" * 50, "y": "y" * 50}
    row = {"s": cell, "l": [cell] * 5, "m": [("k", cell)], "t": "t" * 50}
    batch = pa.RecordBatch.from_pylist([row] * 5000, schema=schema).slice(2001, 3)
    slim = pa.struct([("x", pa.string())])
    pruned = pa.schema([("s", slim), ("l", pa.list_(slim)), ("m", pa.map_(pa.string(), slim))])
    encoded = Encoder(schema, needed=pruned if part == "pruned" else None, codecs=CodecPolicy()).encode(batch)
    text_bytes = 3 * (7 * 100 + 1 + 50) if part == "whole" else 3 * (7 * 50 + 1)
    assert text_bytes < len(encoded.payload) < text_bytes + 2500
    assert text_bytes < encoded.raw_bytes < 3 * 751 + 2500


def test_raw_bytes_are_those_before_trimming_and_filtering() -> None:
    batch = mail_batch(50)
    none_kept = Predicate(op="lt", column=("id",), value=0)
    encoder = Encoder(
        batch.schema, needed=pa.schema([("id", pa.int64())]), predicates=(none_kept,), codecs=CodecPolicy()
    )
    encoded = encoder.encode(batch)
    assert encoded.rows == 0
    assert encoded.raw_bytes == batch.serialize().size > 50 * 1000


def test_arrays_cut_by_hand_inside_their_parents_survive_pruning() -> None:
    member = pa.struct([("x", pa.int64()), ("y", pa.decimal128(5, 1))])
    cells = pa.array([None if i % 3 == 0 else {"x": i, "y": decimal.Decimal(i)} for i in range(40)], member)
    nested = pa.ListArray.from_arrays(pa.array([5, 7, None, 20, 31], pa.int32()), cells.slice(2, 33))
    batch = pa.record_batch([nested.slice(1), cells.slice(11, 3)], names=["l", "s"])
    slim = pa.struct([("x", pa.int64())])
    part = pa.schema([("l", pa.list_(slim)), ("s", slim)])
    decoded = Decoder(batch.schema).decode(
        Encoder(batch.schema, needed=part, codecs=CodecPolicy()).encode(batch).payload
    )
    assert decoded.to_pylist() == expected(batch, part)


def test_a_memoryview_of_a_frame_decodes_as_well() -> None:
    batch = mail_batch(5)
    payload = Encoder(batch.schema, codecs=CodecPolicy()).encode(batch).payload
    assert Decoder(batch.schema).decode(memoryview(b"frame" + payload)[5:]).equals(batch)
