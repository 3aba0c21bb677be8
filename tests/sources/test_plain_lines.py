from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from infra.rows.drift import line_drift
from infra.rows.jsonlines import LineDecoder
from infra.rows.plainlines import PlainLines, UnsureError

SCHEMA = pa.schema(
    [
        ("n", pa.int64()),
        ("small", pa.int16()),
        ("x", pa.float64()),
        ("s", pa.string()),
        ("ok", pa.bool_()),
        ("at", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("ms")),
        ("l", pa.list_(pa.int32())),
        ("a b", pa.list_(pa.string())),
    ]
)
NUMBERS = [
    *["0", "-0", "1.0", "1e2", "1E400", "-1e-400", "1.5", "01", "+1", ".5", "5.", "0x1", "NaN", "Infinity", "true"],
    *["9223372036854775807", "9223372036854775808", "-9223372036854775809", "32767", "32768", "1e18", "0.1", "1e23"],
    *["2.2250738585072014e-308", "123456789012345678901234567890.5", "9007199254740993", "5e-324"],
]
TIMES = [
    *["2024-02-29", "2024-02-30", "2024-02-29T12:30", "2024-02-29 12:30:59", "2024-02-29T12:30:59.123456789"],
    *["2024-02-29T12:30:59Z", "2024-02-29T12:30:59.5+02:00", "2024-02-29T24:00:00", "1969-12-31T23:59:59.9999", ""],
]
VALUE = st.one_of(
    st.sampled_from(
        [*NUMBERS, "null", "false", '"x"', '"\\ud800"', '"\\u00fc\\n"', "{}", "[]", "[1, null]", '["", null]', "[[]]"]
    ),
    st.sampled_from(TIMES).map(json.dumps),
    st.floats().map(json.dumps),
    st.integers(-(2**70), 2**70).map(str),
    st.text(max_size=4).map(json.dumps),
)
PAIR = st.one_of(
    st.tuples(st.sampled_from([*SCHEMA.names, "\\u006e"]), VALUE),
    # Arrow refuses some numbers in fields that nobody needs.
    st.tuples(st.sampled_from(["other", "n\\u0000"]), st.sampled_from(["1.5", '"x"', '[{"n": {}}]', "}", "nul"])),
)
LINE = st.one_of(
    st.lists(PAIR, max_size=4, unique_by=lambda pair: pair[0]).map(
        lambda pairs: ("{" + ", ".join(f'"{name}": {value}' for name, value in pairs) + "}").encode()
    ),
    st.sampled_from(
        [b"", b" ", b"null", b"[]", b"{}", b' {"n": 1}\r', b'{"n":\n2}', b'{"s": "\xff"}', b'{"z": "\xff"}']
    ),
)


OBLIGATORY = pa.schema([field.with_nullable(False) for field in SCHEMA])
NEEDS_ARROW = SCHEMA.append(pa.field("t", pa.struct([("x", pa.int32())])))


@settings(max_examples=400, deadline=None)
@given(LINE, st.booleans())
@example(b'{"n": 1}\n{"n": 2}', False)
def test_what_is_accepted_is_what_arrow_says(line: bytes, strict: bool) -> None:
    try:
        batch = PlainLines(SCHEMA, strict=strict).decode([line])
    except UnsureError:
        return
    assert batch.schema == SCHEMA
    wanted, dead = LineDecoder(NEEDS_ARROW).decode([line])
    assert dead == []
    assert batch.to_pylist() == wanted.drop_columns(["t"]).to_pylist()
    assert not strict or line_drift(line, SCHEMA) is None


@settings(max_examples=200, deadline=None)
@given(st.lists(LINE, max_size=8))
@example([b'{"n": 1}\n{"n": 2}', b""])
@example([b'{"n": 1, "n": 2}', b'{"n": "x"}', b'{"at": "2024-02-29T12:30"}'])
def test_a_line_means_the_same_alone_and_among_others(lines: list[bytes]) -> None:
    decoder = LineDecoder(SCHEMA)
    together, dead = decoder.decode(lines)
    alone = [decoder.decode([line]) for line in lines]
    assert together.to_pylist() == [row for batch, _ in alone for row in batch.to_pylist()]
    assert dead == [(i, reasons[0][1]) for i, (_, reasons) in enumerate(alone) if reasons]


@settings(max_examples=400, deadline=None)
@given(st.lists(LINE, max_size=8), st.booleans(), st.sampled_from([SCHEMA, NEEDS_ARROW, OBLIGATORY]))
@example([b'{"at": "2024-02-30"}'], False, SCHEMA)
@example([b"{}"], False, OBLIGATORY)
def test_what_is_judged_dead_is_what_cannot_be_decoded(lines: list[bytes], strict: bool, schema: pa.Schema) -> None:
    decoder = LineDecoder(schema, strict=strict)
    assert decoder.dead(lines) == decoder.decode(lines)[1]


ORDINARY = {
    "n": -5,
    "small": 7,
    "x": 2,
    "s": "ü",
    "ok": True,
    "at": "2024-02-29T12:30:59.000001Z",
    "local": "2024-02-29 12:30:59",
    "l": [1, None],
    "a b": ["x", None],
}


def test_ordinary_lines_need_no_arrow() -> None:
    lines = [json.dumps(event).encode() for event in (ORDINARY, {**ORDINARY, "more": [{}]}, {}, {"n": None})]
    rows = PlainLines(SCHEMA, strict=False).decode(lines).to_pylist()
    assert [row["n"] for row in rows] == [-5, -5, None, None]
    assert rows[0]["a b"] == ["x", None]


@pytest.mark.parametrize("changed", [{"more": 1}, {"s": ...}], ids=["an unknown field", "a missing field"])
def test_strict_accepts_no_line_that_drifts(changed: dict[str, Any]) -> None:
    strict = PlainLines(SCHEMA, strict=True)
    assert strict.decode([json.dumps(ORDINARY).encode()]).num_rows == 1
    event = {name: value for name, value in {**ORDINARY, **changed}.items() if value is not ...}
    with pytest.raises(UnsureError):
        strict.decode([json.dumps(event).encode()])


def test_a_column_that_must_be_there() -> None:
    schema = pa.schema([pa.field("n", pa.int64(), nullable=False)])
    assert PlainLines(schema, strict=False).decode([b'{"n": 1}']).to_pylist() == [{"n": 1}]
    with pytest.raises(UnsureError):
        PlainLines(schema, strict=False).decode([b'{"n": 1}', b"{}"])


@pytest.mark.parametrize("kind", [pa.struct([("x", pa.int32())]), pa.date32(), pa.binary(), pa.float32()], ids=str)
def test_arrow_decodes_what_is_not_plain(kind: pa.DataType) -> None:
    with pytest.raises(UnsureError):
        PlainLines(pa.schema([("c", kind)]), strict=False)


@pytest.mark.parametrize("schema", [SCHEMA, NEEDS_ARROW], ids=["plain", "not plain"])
def test_of_a_field_that_is_there_twice_the_last_value_counts(schema: pa.Schema) -> None:
    batch, dead = LineDecoder(schema).decode([b'{"n": 1, "s": "a", "\\u006e": 2}', b'{"n": 3, "n": "x"}'])
    assert (batch.column("n").to_pylist(), batch.column("s").to_pylist()) == ([2], ["a"])
    assert [at for at, _ in dead] == [1]
