from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.connectors.position import Position
from gateway.core.exchange.reorder import Released
from gateway.sinks.parts.filesink import FileSink
from infra.rows.base import SourceError
from infra.rows.jsonlines import LineDecoder

SCHEMA = pa.schema(
    [
        ("a", pa.int64()),
        ("s", pa.string()),
        ("l", pa.list_(pa.int32())),
        ("t", pa.struct([("x", pa.int32()), ("y", pa.string())])),
    ]
)
GOOD = {"a": 1, "s": "x", "l": [1, None], "t": {"x": 2, "y": None}}

NOT_AN_EVENT = {
    "wrong type": (b'{"a": "1"}', "changed from number to string"),
    "a fraction": (b'{"a": 1.5}', "couldn't parse:1.5"),
    "too large": (b'{"l": [3000000000]}', "couldn't parse:3000000000"),
    "wrong type inside": (b'{"t": {"x": "2"}}', "changed from number to string"),
    "not JSON": (b"hello", "not one JSON object"),
    "cut off": (b'{"a": 1', "not one JSON object"),
    "trailing comma": (b'{"a": 1,}', "Missing a name"),
    "two objects": (b'{"a": 1} {"a": 2}', "2 JSON objects"),
    "rubbish behind": (b'{"a": 1} x', "not one JSON object"),
    "null": (b"null", "not one JSON object"),
    "an array": (b'[{"a": 1}]', "not one JSON object"),
    "invalid UTF-8": (b'{"s": "\xff"}', "invalid start byte"),
    "half a surrogate": (b'{"s": "\\ud800"}', "surrogate"),
    "control character": (b'{"s": "a\x01b"}', "Invalid encoding"),
    "NUL": (b'{"a": 1\x00}', "Missing a comma"),
    "deep and unclosed": (b'{"z": ' + b"[" * 200_000 + b"}", "Invalid value"),
}


@pytest.mark.parametrize("name", NOT_AN_EVENT)
def test_a_line_that_is_no_event_is_named_with_its_reason_and_the_rest_goes_on(name: str) -> None:
    line, reason = NOT_AN_EVENT[name]
    good = json.dumps(GOOD).encode()
    for at in range(4):
        lines = [good] * 4
        lines.insert(at, line)
        batch, dead = LineDecoder(SCHEMA).decode(lines)
        assert batch.to_pylist() == [GOOD] * 4
        assert [index for index, _ in dead] == [at]
        assert reason in dead[0][1]
        assert "\n" not in dead[0][1]


EVENTS: dict[str, tuple[bytes, dict[str, Any]]] = {
    "missing fields": (b"{}", {}),
    "unknown fields": (b'{"a": 1, "z": {"s": [1, {"a": "x"}]}}', {"a": 1}),
    "null": (b'{"a": null, "t": null}', {}),
    "blanks around": (b' \t{"a": 1}\r', {"a": 1}),
    "a byte order mark": (b'\xef\xbb\xbf{"a": 1}', {"a": 1}),
    "a nested unknown tower": (b'{"z": ' + b"[" * 200_000 + b"]" * 200_000 + b', "a": 1}', {"a": 1}),
    "escapes": (b'{"s": "\\u00fc\\n\\"\\ud83d\\ude00"}', {"s": 'ü\n"😀'}),
}


@pytest.mark.parametrize("name", EVENTS)
def test_odd_lines_that_are_events(name: str) -> None:
    line, wanted = EVENTS[name]
    batch, dead = LineDecoder(SCHEMA).decode([line])
    assert dead == []
    assert batch.to_pylist() == [{**dict.fromkeys(SCHEMA.names), **wanted}]


def test_a_message_over_several_lines_is_one_event() -> None:
    pretty = json.dumps(GOOD, indent=2).encode()
    batch, dead = LineDecoder(SCHEMA).decode([pretty, pretty.replace(b"\n", b"\r\n"), b'{"a":\n}', b'{"a": 2}'])
    assert batch.to_pylist() == [GOOD, GOOD, {"a": 2, "s": None, "l": None, "t": None}]
    assert [i for i, _ in dead] == [2]


def test_blank_lines_are_neither_events_nor_dead() -> None:
    batch, dead = LineDecoder(SCHEMA).decode([b"", b"  \r", b'{"a": 1}', b"\t"])
    assert (batch.num_rows, dead) == (1, [])


def test_no_line_gives_an_empty_batch_of_the_schema() -> None:
    for lines in ([], [b""], [b"oops"]):
        batch, _ = LineDecoder(SCHEMA).decode(lines)
        assert (batch.num_rows, batch.schema) == (0, SCHEMA)


def test_two_lines_that_only_together_are_two_objects_are_both_dead() -> None:
    batch, dead = LineDecoder(SCHEMA).decode([b'{"a": 1}{"a": 2', b"}", b'{"a": 3}'])
    assert [row["a"] for row in batch.to_pylist()] == [3]
    assert [index for index, _ in dead] == [0, 1]


def test_a_field_that_must_be_there() -> None:
    schema = pa.schema([pa.field("a", pa.int64(), nullable=False), pa.field("s", pa.string())])
    batch, dead = LineDecoder(schema).decode([b'{"a": 1}', b'{"s": "x"}', b'{"a": null}'])
    assert [index for index, _ in dead] == [1, 2]
    assert batch.to_pylist() == [{"a": 1, "s": None}]
    assert batch.schema == schema


@pytest.mark.parametrize(
    "kind",
    [
        pa.map_(pa.string(), pa.int32()),
        pa.list_(pa.map_(pa.string(), pa.int32())),
        pa.duration("us"),
        pa.list_(pa.binary()),
    ],
    ids=str,
)
def test_types_without_a_form_in_json_lines_are_refused_with_the_column(kind: pa.DataType) -> None:
    with pytest.raises(SourceError, match="column m: "):
        LineDecoder(pa.schema([("m", kind)]))


NUMBER = st.integers(-(2**31), 2**31 - 1)
EVENT = st.fixed_dictionaries(
    {},
    optional={
        "a": st.none() | st.integers(-(2**63), 2**63 - 1),
        "s": st.none() | st.text(st.characters(codec="utf-8")),
        "l": st.none() | st.lists(st.none() | NUMBER, max_size=3),
        "t": st.none() | st.fixed_dictionaries({"x": st.none() | NUMBER, "y": st.none() | st.text(max_size=3)}),
        "z": st.recursive(st.none() | st.integers() | st.text(max_size=3), lambda c: st.lists(c, max_size=3)),
    },
)
TEXT = st.one_of(
    EVENT.map(lambda event: json.dumps(event).encode()),
    st.sampled_from([b"", b"null", b"{}", b"{", b"}", b'{"a":1}{"a":2', b'"}', b'{"s":"}', b'{"t":{}', b",", b"[]"]),
    st.binary(max_size=12).map(lambda b: b.replace(b"\n", b"")),
)


@st.composite
def mangled(draw: st.DrawFn) -> bytes:
    """A line, perhaps with a piece of it moved or replaced."""
    line = draw(TEXT)
    if draw(st.booleans()):
        return line
    cut = draw(st.integers(0, len(line)))
    end = draw(st.integers(cut, len(line)))
    return line[:cut] + draw(st.sampled_from([b"", b"{", b"}", b'"', b"1", b"null", b"\xff", b","])) + line[end:]


@settings(max_examples=300, deadline=None)
@given(st.lists(mangled(), max_size=12))
@example([b'{"a":1}{"a":2', b"}"])
@example([b'{"s":"}', b'{"}'])
def test_a_line_means_the_same_alone_and_among_others(lines: list[bytes]) -> None:
    decoder = LineDecoder(SCHEMA)
    together, dead = decoder.decode(lines)
    alone = [decoder.decode([line]) for line in lines]
    assert together.to_pylist() == [row for batch, _ in alone for row in batch.to_pylist()]
    assert dead == [(i, reasons[0][1]) for i, (_, reasons) in enumerate(alone) if reasons]


@settings(max_examples=100, deadline=None)
@given(st.lists(EVENT, max_size=8))
def test_what_json_says_is_what_comes_out(events: list[dict[str, Any]]) -> None:
    batch, dead = LineDecoder(SCHEMA).decode([json.dumps(event).encode() for event in events])
    assert dead == []
    assert batch.to_pylist() == [{name: event.get(name) for name in SCHEMA.names} for event in events]


def test_what_a_sink_writes_a_query_reads_back(tmp_path_factory: pytest.TempPathFactory) -> None:
    schema = pa.schema(
        [
            ("at", pa.timestamp("us", "UTC")),
            ("local", pa.timestamp("us")),
            ("day", pa.date32()),
            ("days", pa.list_(pa.date32())),
            ("price", pa.decimal128(38, 10)),
            ("raw", pa.binary()),
            ("ratio", pa.float64()),
            ("small", pa.float32()),
            ("inner", pa.struct([("at", pa.timestamp("us", "UTC")), ("day", pa.date32())])),
            ("flag", pa.bool_()),
            ("tiny", pa.int8()),
        ]
    )
    day, at = dt.date(1969, 12, 31), dt.datetime(2020, 1, 2, 3, 4, 5, 600007, tzinfo=dt.UTC)
    row = {
        "at": at,
        "local": at.replace(tzinfo=None),
        "day": day,
        "days": [day, None],
        "price": Decimal("12345678901234567890.0123456789"),
        "raw": b"\x00\xfe\xff",
        "ratio": 0.1,
        "small": 0.5,
        "inner": {"at": at, "day": day},
        "flag": False,
        "tiny": -128,
    }
    batch = pa.RecordBatch.from_pylist([row, dict.fromkeys(schema.names)], schema)
    folder = tmp_path_factory.mktemp("out")
    FileSink(folder, owner="me", format="jsonl", ordered=True).commit([Released(0, 1, batch, late=False)], Position())
    (part,) = folder.glob("*.jsonl")
    again, dead = LineDecoder(schema).decode(part.read_bytes().splitlines())
    assert dead == []
    assert again.equals(batch)


def test_bytes_that_are_not_base64_are_dead() -> None:
    batch, dead = LineDecoder(pa.schema([("raw", pa.binary())])).decode([b'{"raw": "%%%"}', b'{"raw": "aGk="}'])
    assert batch.to_pylist() == [{"raw": b"hi"}]
    assert [index for index, _ in dead] == [0]
