from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.connectors.position import Position
from gateway.core.exchange.reorder import Released
from gateway.core.intervals import IntervalSet
from gateway.sinks.parts.filesink import FileSink, PartName
from infra.statefiles import StateError
from tests.connectors.file_sinks import open_sink, parts, rows, seqs


def test_names_tell_release_range_and_lateness() -> None:
    name = PartName(7, 120, 4999, late=True, format="jsonl")
    assert str(name) == "0000000007-000000000120-000000004999.late.jsonl"
    assert PartName.parse(str(name)) == name


@given(
    st.integers(0, 10**10 - 1),
    st.integers(0, 10**12 - 1),
    st.integers(0, 10**12 - 1),
    st.booleans(),
    st.sampled_from(["jsonl", "parquet"]),
)
def test_names_can_be_read_back(release: int, first: int, last: int, late: bool, ending: str) -> None:
    name = PartName(release, first, last, late, ending)
    assert PartName.parse(str(name)) == name


@pytest.mark.parametrize(
    "name",
    ["_manifest.json", ".0000000000-0-1.jsonl.tmp", "notes.txt", "1-2.jsonl", "1-2-x.jsonl", "1-2-3.early.jsonl"],
)
def test_other_files_are_no_parts(name: str) -> None:
    assert PartName.parse(name) is None


def test_a_part_is_cut_at_every_gap_and_late_ones_stand_apart(tmp_path: Path) -> None:
    sink = open_sink(tmp_path)
    sink.commit(
        [rows(0, 4), rows(5, 9), rows(20, 24), rows(10, 14, late=True), rows(15, 19, late=True), rows(25, 29)],
        Position(),
    )
    assert parts(tmp_path) == [
        "0000000000-000000000000-000000000009.jsonl",
        "0000000001-000000000020-000000000024.jsonl",
        "0000000002-000000000010-000000000019.late.jsonl",
        "0000000003-000000000025-000000000029.jsonl",
    ]
    assert seqs(tmp_path) == [*range(10), *range(20, 25), *range(10, 20), *range(25, 30)]
    assert sink.committed == IntervalSet([(0, 29)])


def test_sorted_names_give_the_order_of_release_also_across_restarts(tmp_path: Path) -> None:
    for first in (50, 40, 30, 0, 10):
        sink = open_sink(tmp_path)
        sink.commit([rows(first, first + 9, late=first != 50)], Position())
    assert [PartName.parse(name).first_seq for name in parts(tmp_path)] == [50, 40, 30, 0, 10]  # type: ignore[union-attr]


def test_without_order_one_part_takes_all_with_its_holes(tmp_path: Path) -> None:
    sink = open_sink(tmp_path, ordered=False)
    sink.commit([rows(20, 29), rows(0, 4), rows(10, 14)], Position())
    assert parts(tmp_path) == ["0000000000-000000000000-000000000029.jsonl"]
    assert list(open_sink(tmp_path, ordered=False).committed) == [(0, 4), (10, 14), (20, 29)]


def test_what_is_committed_is_passed_over(tmp_path: Path) -> None:
    open_sink(tmp_path).commit([rows(0, 9)], Position())
    sink = open_sink(tmp_path)
    sink.commit([rows(0, 9), rows(10, 12)], Position())
    assert seqs(tmp_path) == list(range(13))


def test_runs_without_results_leave_an_empty_part_that_covers_them(tmp_path: Path) -> None:
    sink = open_sink(tmp_path)
    sink.commit([Released(0, 9, rows(0, -1).item, late=False)], Position())
    assert parts(tmp_path) == ["0000000000-000000000000-000000000009.jsonl"]
    assert seqs(tmp_path) == []
    assert sink.committed == IntervalSet([(0, 9)])


def test_a_folder_of_other_state_is_refused(tmp_path: Path) -> None:
    open_sink(tmp_path).commit([rows(0, 9)], Position())
    with pytest.raises(StateError, match="results of a different state_dir"):
        FileSink(tmp_path, owner="you", format="jsonl", ordered=True)


def test_parts_without_a_manifest_and_a_manifest_that_is_damaged_are_refused(tmp_path: Path) -> None:
    open_sink(tmp_path).commit([rows(0, 9)], Position())
    manifest = tmp_path / "_manifest.json"
    whole = manifest.read_bytes()
    manifest.write_bytes(whole[:-2])
    with pytest.raises(StateError, match="cannot be read"):
        open_sink(tmp_path)
    manifest.unlink()
    with pytest.raises(StateError, match=r"no _manifest\.json"):
        open_sink(tmp_path)


def test_a_part_that_its_reader_took_away_counts_as_delivered(tmp_path: Path) -> None:
    open_sink(tmp_path).commit([rows(0, 9)], Position())
    for name in parts(tmp_path):
        (tmp_path / name).unlink()
    assert open_sink(tmp_path).committed == IntervalSet([(0, 9)])


def test_parquet_parts_hold_the_same_rows_and_types(tmp_path: Path) -> None:
    sink = open_sink(tmp_path, format="parquet")
    batch = pa.record_batch(
        {
            "at": pa.array([dt.datetime(2020, 1, 2, tzinfo=dt.UTC), None], pa.timestamp("us", "UTC")),
            "words": pa.array([["a", None], None], pa.list_(pa.string())),
        }
    )
    sink.commit([Released(0, 1, batch, late=False), Released(2, 3, batch, late=False)], Position())
    (name,) = parts(tmp_path)
    table = pq.read_table(tmp_path / name)
    assert name.endswith(".parquet")
    assert table.to_pylist() == [*batch.to_pylist(), *batch.to_pylist()]
    assert table.schema.types == batch.schema.types


def test_json_lines_say_every_type_in_a_form_that_can_be_read(tmp_path: Path) -> None:
    schema = pa.schema(
        [
            ("at", pa.timestamp("us", "UTC")),
            ("local", pa.timestamp("us")),
            ("day", pa.date32()),
            ("price", pa.decimal128(10, 2)),
            ("words", pa.list_(pa.string())),
            ("inner", pa.struct([("a", pa.int32()), ("b", pa.string())])),
            ("raw", pa.binary()),
            ("big", pa.int64()),
            ("ratio", pa.float64()),
            ("flag", pa.bool_()),
            ("text", pa.string()),
        ]
    )
    full = {
        "at": dt.datetime(2020, 1, 2, 3, 4, 5, 678900, tzinfo=dt.UTC),
        "local": dt.datetime(2020, 1, 2, 3, 4, 5),  # noqa: DTZ001 -- a TIMESTAMP_NTZ has no zone
        "day": dt.date(2020, 1, 2),
        "price": Decimal("12345678.90"),
        "words": ["a", None, ""],
        "inner": {"a": 1, "b": None},
        "raw": b"\x00\xff",
        "big": 2**63 - 1,
        "ratio": 0.1,
        "flag": True,
        "text": 'a "quoted"\nline \u2028 ü',
    }
    batch = pa.RecordBatch.from_pylist([full, dict.fromkeys(schema.names)], schema)
    open_sink(tmp_path).commit([Released(0, 1, batch, late=False)], Position())
    (name,) = parts(tmp_path)
    said, nothing = (tmp_path / name).read_text(encoding="utf-8").split("\n")[:2]
    assert json.loads(said, parse_float=Decimal) == {
        **full,
        "at": "2020-01-02T03:04:05.678900Z",
        "local": "2020-01-02T03:04:05",
        "day": "2020-01-02",
        "raw": "AP8=",
        "ratio": Decimal("0.1"),
    }
    assert json.loads(nothing) == dict.fromkeys(schema.names)
