import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from infra.payload import CodecPolicy, Decoder, Encoder, PayloadError
from infra.payload.body import fingerprint
from infra.payload.codecs import packer
from infra.payload.shapes import Shape, read_shape, suits, write_shape
from infra.payload.trim import AllocationBudget
from infra.payload.wire import FieldHeader, Header, join
from tests.payload.payload_data import LEAF_VALUES, same

SHAPED = [kind for kind in LEAF_VALUES if suits(kind)]
LIMIT = 1 << 20


def back(column: pa.Array) -> pa.Array:
    shape = write_shape(column)
    budget = AllocationBudget(shape.growth_bytes)
    found = read_shape(shape.body, column.type, len(column), (budget,))
    found.validate(full=True)
    return found


def refused(body: bytes, kind: pa.DataType, rows: int, match: str) -> None:
    with pytest.raises(PayloadError, match=match):
        read_shape(body, kind, rows, (AllocationBudget(LIMIT),))


@given(st.data())
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_column_comes_back(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(SHAPED))
    values = st.none() | LEAF_VALUES[kind] if data.draw(st.booleans()) else LEAF_VALUES[kind]
    drawn = data.draw(
        st.lists(values, max_size=30) | st.lists(st.sampled_from(data.draw(st.lists(values, min_size=1))))
    )
    column = pa.array(drawn, kind)
    column = column.slice(data.draw(st.integers(0, len(column))))
    found = back(column)
    assert found.type == kind
    assert same(found.to_pylist(), column.to_pylist())


@pytest.mark.parametrize(
    ("column", "most_bytes"),
    [
        (pa.array(range(10**12, 10**12 + 1000)), 20),
        (pa.array([7] * 1000), 20),
        (pa.array(np.round(np.arange(1000) / 8, 3)), 20),
        (pa.array([f"device-{n % 4}" for n in range(1000)]), 1100),
        (pa.array([True, False] * 500), 130),
        (pa.array([None, 5] * 500), 150),
    ],
    ids=["times", "constant", "decimals", "few texts", "booleans", "nulls"],
)
def test_what_regular_columns_take(column: pa.Array, most_bytes: int) -> None:
    assert len(write_shape(column).body) <= most_bytes
    assert back(column).equals(column)


@pytest.mark.parametrize("value", [-0.0, math.nan, math.inf, -math.inf, 1e300, 5e-324, 0.1 + 0.2, 1 / 3])
@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()], ids=str)
def test_floats_come_back_bit_by_bit(value: float, kind: pa.DataType) -> None:
    column = pa.array([1.5, 2.25, value] * 50, kind)
    assert back(column).to_numpy().tobytes() == column.to_numpy().tobytes()


def test_whole_numbers_of_any_distance_come_back() -> None:
    for values in ([-(2**63), 2**63 - 1] * 3, [2**63 - 1, -(2**63), 0], [0, 2**62, -(2**62)], [-1], []):
        assert back(pa.array(values, pa.int64())).to_pylist() == values


def test_bodies_that_hold_something_else_are_refused() -> None:
    good = bytes(write_shape(pa.array([1, 2, 300])).body)
    for cut in range(len(good)):
        refused(good[:cut], pa.int64(), 3, "ends too early")
    refused(good + b"\0", pa.int64(), 3, "too many")
    refused(good, pa.int64(), 2, "too many")
    refused(good, pa.int8(), 3, "beyond int8")
    refused(good, pa.list_(pa.int64()), 3, "no shape")
    refused(b"\0\3", pa.int64(), 1, "unknown kind")
    refused(b"\0\0\x0a" + bytes(10), pa.int64(), 1, "number of 10 bytes")
    refused(b"\0\x0a\0\1\0", pa.float64(), 1, "10 decimals")
    refused(b"\0\0\0\1\2\xff\xfe", pa.string(), 1, "does not hold")
    refused(b"\0\0\0\1\3ab", pa.string(), 1, "another length")
    refused(b"\0\0\0\1\1ab", pa.string(), 1, "have 1 bytes instead of 2")
    refused(b"\0\1\1\2", pa.string(), 1, "not a count")
    refused(b"\0\1\1\1\0\1\1\0\1\1a", pa.string(), 1, "not among")


def test_copies_of_a_text_are_paid_for_before_they_are_made() -> None:
    column = pa.array(["x" * 10_000] * 1000)
    shape = write_shape(column)
    assert len(shape.body) < 11_000
    refused(bytes(shape.body), pa.string(), 1000, "10000000 bytes of text")
    refused(b"\0\0\0", pa.int64(), LIMIT, "x int64")


def test_a_payload_may_not_grow_without_ballast() -> None:
    schema = pa.schema([("n", pa.int64())])
    body = b"\0\0\0"
    rows = 4 << 20
    field = FieldHeader(column=0, codec="none", shaped=True, raw_bytes=len(body), packed_bytes=len(body))
    payload = join(Header(fingerprint(schema), rows, (field,)), [body])
    with pytest.raises(PayloadError, match="x int64 would exceed"):
        Decoder(schema).decode(payload)
    batch = pa.record_batch([pa.array(np.zeros(rows, np.int64))], schema=schema)
    honest = Encoder(schema, codecs=CodecPolicy.parse("zstd")).encode(batch).payload
    assert len(honest) > 100_000
    assert Decoder(schema).decode(honest).equals(batch)


def test_auto_compares_the_cost_of_a_shape_with_what_it_saves(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 0.0

    def slowly(column: pa.Array) -> Shape:
        nonlocal now_s
        now_s += 1.0
        return write_shape(column)

    monkeypatch.setattr(packer, "write_shape", slowly)
    batch = pa.record_batch({"n": pa.array(range(1000))})
    sent = []
    for link_rate in (1e3, 1e9):
        policy = CodecPolicy.parse("auto", clock=lambda: now_s)
        policy.link_rate(link_rate)
        sent.append(len(Encoder(batch.schema, codecs=policy).encode(batch).payload))
    assert sent[0] < 100
    assert sent[1] > 1000
    assert len(Encoder(batch.schema, codecs=CodecPolicy()).encode(batch).payload) > 8000
