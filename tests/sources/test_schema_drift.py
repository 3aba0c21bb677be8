"""The table of docs/schema-drift.md for JSON and CSV, and lines that are made to do harm."""

from __future__ import annotations

import json
import resource
import time
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.sources.files.reading.passes import FixedFiles, PassesSource
from infra.files.choosing import open_by_name
from infra.rows.base import SourceError
from infra.rows.jsonlines import LineDecoder
from tests.support.source_data import dead, read_all, rows, write

INNER = pa.struct([("x", pa.int32()), ("y", pa.string())])
SCHEMA = pa.schema([("a", pa.int64()), ("s", pa.string()), ("t", INNER), ("l", pa.list_(INNER))])
GOOD: dict[str, Any] = {"a": 1, "s": "v", "t": {"x": 1, "y": "w"}, "l": [{"x": 2, "y": None}]}

DRIFTS = {
    "missing": ({"a": 1, "t": None, "l": None}, 'field "s" is missing', GOOD | {"s": None, "t": None, "l": None}),
    "extra": (GOOD | {"z": [1]}, 'field "z" is not in the schema', GOOD),
    "missing in a struct": (GOOD | {"t": {"x": 1}}, 'field "t.y" is missing', GOOD | {"t": {"x": 1, "y": None}}),
    "extra in a struct": (GOOD | {"t": {"x": 1, "y": "w", "z": 2}}, 'field "t.z" is not in the schema', GOOD),
    "missing in a list": (
        GOOD | {"l": [{"y": None}]},
        'field "l[0].x" is missing',
        GOOD | {"l": [{"x": None, "y": None}]},
    ),
    "extra in a list": (GOOD | {"l": [*GOOD["l"], {"x": 1, "y": "", "q": 1}]}, 'field "l[1].q" is not', None),
    "text for a number": (GOOD | {"a": "1"}, 'field "a" is a string, but the schema says int64', "dead"),
    "fraction for an integer": (GOOD | {"a": 1.0}, 'field "a" is a number, but the schema says int64', "dead"),
    "number for a text": (GOOD | {"s": 1}, 'field "s" is an integer, but the schema says string', "dead"),
    "object for a list": (GOOD | {"l": {}}, 'field "l" is an object, but the schema says list', "dead"),
}


@pytest.mark.parametrize("name", DRIFTS)
def test_strict_refuses_what_lenient_takes_as_the_table_says(name: str) -> None:
    event, reason, leniently = DRIFTS[name]
    good = json.dumps(GOOD).encode()
    lines = [good, json.dumps(event).encode(), good]
    batch, refused = LineDecoder(SCHEMA, strict=True).decode(lines)
    assert batch.to_pylist() == [GOOD, GOOD]
    assert [index for index, _ in refused] == [1]
    assert refused[0][1].startswith(reason)
    batch, refused = LineDecoder(SCHEMA).decode(lines)
    assert [index for index, _ in refused] == ([1] if leniently == "dead" else [])
    if isinstance(leniently, dict):
        assert batch.to_pylist() == [GOOD, leniently, GOOD]


def test_null_is_there_and_not_null_refuses_both() -> None:
    lines = [b'{"a": null}', b"{}", b'{"a": 1}']
    nullable, needed = pa.schema([("a", pa.int64())]), pa.schema([pa.field("a", pa.int64(), nullable=False)])
    assert [i for i, _ in LineDecoder(nullable, strict=True).decode(lines)[1]] == [1]
    assert [i for i, _ in LineDecoder(needed, strict=True).decode(lines)[1]] == [0, 1]
    assert [i for i, _ in LineDecoder(needed).decode(lines)[1]] == [0, 1]


FIELD = st.sampled_from([*SCHEMA.names, "z"])
VALUE = st.sampled_from(
    [None, 1, 1.5, "v", True, [], {}, {"x": 1, "y": "w"}, {"x": 1}, [{"x": 1, "y": None}], [{"q": 1}]]
)
EVENT = st.dictionaries(FIELD, VALUE) | st.fixed_dictionaries(dict.fromkeys(SCHEMA.names, VALUE)) | st.just(GOOD)


@settings(max_examples=200, deadline=None)
@given(st.lists(EVENT, max_size=8))
def test_strictly_too_a_line_means_the_same_alone_and_among_others(events: list[dict[str, Any]]) -> None:
    lines = [json.dumps(event).encode() for event in events]
    decoder = LineDecoder(SCHEMA, strict=True)
    together, refused = decoder.decode(lines)
    alone = [decoder.decode([line]) for line in lines]
    assert together.to_pylist() == [row for batch, _ in alone for row in batch.to_pylist()]
    assert refused == [(i, reasons[0][1]) for i, (_, reasons) in enumerate(alone) if reasons]
    for (batch, _), event in zip(alone, events, strict=True):
        assert batch.num_rows == 0 or batch.to_pylist() == [event]


@pytest.mark.parametrize(
    ("header", "says"),
    [("n", "has no column id"), ("n,id,z", "has column z, which the schema lacks"), ("id,n", "")],
)
def test_a_strict_csv_has_exactly_the_columns_in_any_order(tmp_path: Path, header: str, says: str) -> None:
    path = write(tmp_path / "in.csv", f"{header}\n".encode() + b"1,1\n" * (header == "id,n"))
    source = PassesSource(FixedFiles([path]), partial(open_by_name, strict=True))
    schema = pa.schema([("n", pa.int64()), ("id", pa.string())])
    if says:
        with pytest.raises(SourceError, match=f"{says}.*drift: lenient"):
            source.open(schema)
        return
    source.open(schema)
    assert rows(read_all(source)) == [{"n": 1, "id": "1"}]
    source.close()


def test_a_lenient_csv_fills_and_leaves_out_columns(tmp_path: Path) -> None:
    source = PassesSource(FixedFiles([write(tmp_path / "in.csv", b"z,id\n1,a\n")]), partial(open_by_name, strict=False))
    source.open(pa.schema([("n", pa.int64()), ("id", pa.string())]))
    assert rows(read_all(source)) == [{"n": None, "id": "a"}]
    source.close()
    needed = pa.schema([pa.field("n", pa.int64(), nullable=False), ("id", pa.string())])
    with pytest.raises(SourceError, match="no column n, which is NOT NULL"):
        source.open(needed)


DEEP = 100_000
BOMBS = {
    "brackets in a known field": b'{"a": ' + b"[" * DEEP + b"]" * DEEP + b"}",
    "brackets in a list": b'{"l": ' + b"[" * DEEP + b"]" * DEEP + b"}",
    "objects in a struct": b'{"t": ' + b'{"x": ' * DEEP + b"1" + b"}" * DEEP + b"}",
    "brackets never closed": b'{"z": ' + b"[" * DEEP + b"}",
    "a whole line of brackets": b"[" * (16 << 20),
    "a line of brackets in an object": b'{"z": ' + b"[" * (16 << 20) + b"}",
    "a huge integer": b'{"a": ' + b"9" * (1 << 20) + b"}",
    "a huge exponent": b'{"x": 1e' + b"9" * (1 << 20) + b"}",
    "an integer beyond 64 bits": b'{"a": 9223372036854775808}',
    "half a surrogate": b'{"s": "\\ud800"}',
    "the other half first": b'{"s": "\\udc00\\ud800"}',
    "a NUL": b'{"a": 1\x00}',
    "a NUL in a text": b'{"s": "a\x00b"}',
    "a year that no timestamp reaches": b'{"at": "10000-01-01T00:00:00Z"}',
}
BOMB_SCHEMA = pa.schema([*SCHEMA, ("x", pa.float64()), ("at", pa.timestamp("us", "UTC"))])


@pytest.mark.parametrize("strict", [False, True], ids=["lenient", "strict"])
@pytest.mark.parametrize("name", BOMBS)
def test_a_harmful_line_is_a_dead_letter_in_bounded_time_and_memory(name: str, strict: bool) -> None:
    full = {**GOOD, "x": 0.5, "at": "2020-01-01T00:00:00Z"}
    good = json.dumps(full).encode()
    decoder = LineDecoder(BOMB_SCHEMA, strict=strict)
    begun_s, before_kib = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    batch, refused = decoder.decode([good, BOMBS[name], good])
    assert [index for index, _ in refused] == [1]
    assert 0 < len(refused[0][1]) <= 500
    assert batch.num_rows == 2
    assert time.perf_counter() - begun_s < 20.0
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib < 512 << 10


def test_a_file_goes_on_behind_a_harmful_line(tmp_path: Path) -> None:
    path = write(tmp_path / "in.jsonl.zst", b'{"a": 1}\n' + b"[" * (17 << 20) + b'\n{"a": 2}\n')
    source = PassesSource(FixedFiles([path]), partial(open_by_name, strict=False))
    source.open(SCHEMA)
    chunks = read_all(source)
    assert [row["a"] for row in rows(chunks)] == [1, 2]
    assert [len(record.raw) for record in dead(chunks)] == [1 << 16]
    source.close()
