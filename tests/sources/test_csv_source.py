from __future__ import annotations

import csv
import io
import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.sources.base import Chunk
from gateway.sources.files.reading.passes import FixedFiles, PassesSource
from infra.files.csvfile import CsvReader
from infra.files.lines import LINE_LIMITS, LineLimits
from infra.rows.base import SourceError
from tests.support.source_data import HUGE, SCHEMA, assert_consecutive, assert_seekable, dead, read_all, rows, write

ENDINGS = [".csv", ".csv.gz", ".csv.zst"]
WIDE = pa.schema(
    [
        ("s", pa.string()),
        ("n", pa.int64()),
        ("x", pa.float64()),
        ("flag", pa.bool_()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("price", pa.decimal128(10, 2)),
    ]
)


def opened(
    path: Path,
    schema: pa.Schema = SCHEMA,
    *,
    loops: int = 1,
    strict: bool = False,
    limits: LineLimits = LINE_LIMITS,
) -> PassesSource:
    def open_csv(path: Path, schema: pa.Schema) -> CsvReader:
        return CsvReader(path, schema, strict=strict, limits=limits)

    source = PassesSource(FixedFiles([path], loops), open_csv, id_field=None)
    source.open(schema)
    return source


def read_text(path: Path, text: str, schema: pa.Schema = WIDE) -> list[Chunk]:
    write(path, text.encode())
    source = opened(path, schema)
    chunks = read_all(source)
    source.close()
    return chunks


@pytest.mark.parametrize("ending", ENDINGS)
def test_every_row_is_an_event_and_bad_ones_are_told_with_line_and_bytes(tmp_path: Path, ending: str) -> None:
    lines = [
        b"\xef\xbb\xbfn,more,id",
        b"0,,a",
        b'1,"two',
        b'lines, ""and"" quotes",b\r',
        b"x,,c",
        b"",
        b"3,,\xff",
        b"4,d",
        b"5,,,e",
        b"6,,f",
        b'7,"never closed,g',
        b"8,,h",
    ]
    source = opened(write(tmp_path / f"in{ending}", b"\n".join(lines) + b"\n"), loops=2)
    chunks = read_all(source, 3)
    assert [(row["n"], row["id"]) for row in rows(chunks)] == [(0, "a"), (1, "b"), (6, "f"), (8, "h")] * 2
    told = dead(chunks)[:5]
    assert [(d.place, d.raw) for d in told] == [(f"line {i + 1}", lines[i]) for i in (4, 6, 7, 8, 10)]
    reasons = [d.reason for d in told]
    assert "column n: CSV conversion error to int64: invalid value 'x'" in reasons[0]
    assert "invalid start byte" in reasons[1]
    assert "Expected 3 columns, got 2" in reasons[2]
    assert "Expected 3 columns, got 4" in reasons[3]
    assert "a quote is not closed" in reasons[4]
    assert_consecutive(chunks)
    assert_seekable(source, chunks)
    source.close()


VALUE = {
    "s": st.none() | st.text(st.characters(codec="utf-8", exclude_characters="\r\0"), max_size=12),
    "n": st.none() | st.integers(-(2**63), 2**63 - 1),
    "x": st.none() | st.floats(allow_nan=False, allow_infinity=False),
    "flag": st.none() | st.booleans(),
    "day": st.none() | st.dates(),
    "price": st.none() | st.decimals(-9999, 9999, places=2),
}


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    events=st.lists(st.fixed_dictionaries(VALUE), max_size=15),
    order=st.permutations([*VALUE]),
    cuts=st.lists(st.tuples(st.integers(1, 6), st.integers(1, 200)), min_size=1, max_size=5),
    ending=st.sampled_from(ENDINGS),
    block=st.integers(1, 64),
)
def test_what_is_written_is_read_back_however_it_is_cut(
    tmp_path: Path,
    events: list[dict[str, Any]],
    order: list[str],
    cuts: list[tuple[int, int]],
    ending: str,
    block: int,
) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_MINIMAL)
    writer.writerow(order)
    for event in events:
        # The module cannot say "empty text" apart from "nothing": quotes say it.
        cells = ['""' if event[name] == "" else _cell(event[name]) for name in order]
        text.write(",".join(cells) + "\n")
    path = write(tmp_path / f"in{ending}", text.getvalue().encode())
    schema = pa.schema([WIDE.field(name) for name in VALUE])
    source = opened(path, schema, limits=LineLimits(block_bytes=block))
    chunks: list[Chunk] = []
    while (chunk := source.read(*cuts[len(chunks) % len(cuts)])) is not None:
        chunks.append(chunk)
    assert dead(chunks) == []
    assert rows(chunks) == events
    assert_consecutive(chunks)
    if chunks:
        assert_seekable(source, chunks)
    source.close()


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return repr(value)
    text = str(value)
    return '"' + text.replace('"', '""') + '"' if isinstance(value, str) else text


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    content=st.lists(st.sampled_from([b'"', b",", b"\n", b"1", b"a", b"\r", b"\xff", b'""', b"\0"]), max_size=40).map(
        b"".join
    ),
    size=st.integers(1, 5),
)
def test_rubbish_is_told_row_by_row_and_every_byte_is_accounted_for(tmp_path: Path, content: bytes, size: int) -> None:
    source = opened(write(tmp_path / "in.csv", b"n,id\n" + content))
    chunks = read_all(source, size)
    assert_consecutive(chunks)
    if chunks:
        assert chunks[-1].end.offset == len(b"n,id\n" + content)
        assert_seekable(source, chunks)
    source.close()
    whole = opened(tmp_path / "in.csv")
    together = read_all(whole)
    whole.close()
    assert rows(together) == rows(chunks)
    assert dead(together) == dead(chunks)


def test_instants_without_a_zone_are_utc(tmp_path: Path) -> None:
    text = "at,local,n\n2020-01-01,2020-01-01 05:00:00,1\n2020-01-01 05:00:00.25,,2\n2020-01-01T05:00:00+02:00,,3\n"
    found = rows(read_text(tmp_path / "in.csv", text))
    assert [row["at"].isoformat() for row in found] == [
        "2020-01-01T00:00:00+00:00",
        "2020-01-01T05:00:00.250000+00:00",
        "2020-01-01T03:00:00+00:00",
    ]
    assert found[0]["local"].isoformat() == "2020-01-01T05:00:00"


def test_an_empty_cell_is_null_and_a_quoted_one_an_empty_text(tmp_path: Path) -> None:
    found = rows(read_text(tmp_path / "in.csv", 's,n,x\n"",1,NaN\n,,\n'))
    assert [(row["s"], row["n"]) for row in found] == [("", 1), (None, None)]
    assert math.isnan(found[0]["x"])


def test_odd_values_are_dead_with_the_name_of_their_column(tmp_path: Path) -> None:
    text = (
        "n,day,at,price\n1.5,,,\n,31.12.2020,,\n,,tomorrow,\n,,10000-01-01T00:00:00Z,\n,,,1.005\n9223372036854775808,,,"
    )
    reasons = [d.reason for d in dead(read_text(tmp_path / "in.csv", text))]
    assert [reason.partition(":")[0] for reason in reasons] == [
        "column n",
        "column day",
        "column at",
        "column at",
        "column price",
        "column n",
    ]


@pytest.mark.parametrize(
    ("header", "says"),
    [
        (b"", "the file is empty"),
        (b"\nn,id\n", "the first row is empty"),
        (b"n,n,id\n", "named twice"),
        (b"n,\xff\n", "names of the columns"),
        (b"x,y\n1,2\n", "none of the query's columns"),
    ],
)
def test_a_header_that_is_none_is_an_error_that_names_the_file(tmp_path: Path, header: bytes, says: str) -> None:
    with pytest.raises(SourceError, match=rf"in\.csv.*{says}"):
        opened(write(tmp_path / "in.csv", header))


@pytest.mark.parametrize("kind", [pa.list_(pa.string()), pa.struct([("x", pa.int32())]), pa.binary()], ids=str)
def test_types_that_no_cell_carries_are_refused_with_the_column(tmp_path: Path, kind: pa.DataType) -> None:
    with pytest.raises(SourceError, match="column c: CSV cannot carry"):
        opened(write(tmp_path / "in.csv", b"c\n"), pa.schema([("c", kind)]))


def test_a_row_over_the_limit_and_a_quote_never_closed_cost_only_themselves(tmp_path: Path) -> None:
    limits = LineLimits(block_bytes=500, line_bytes=2000, raw_kept_bytes=100, quoted_bytes=1000)
    body = b'0,"open\n' + b"".join(b"%d,x\n" % n for n in range(1, 400)) + b"400," + b"y" * 5000 + b"\n401,z\n"
    source = opened(write(tmp_path / "in.csv", b"n,id\n" + body), limits=limits)
    chunks = read_all(source, 50)
    assert [row["n"] for row in rows(chunks)] == [*range(1, 400), 401]
    assert [d.place for d in dead(chunks)] == ["line 2", "line 402"]
    assert_seekable(source, chunks)
    source.close()


def test_bytes_bound_a_chunk(tmp_path: Path) -> None:
    source = opened(write(tmp_path / "in.csv", b"n,id\n" + b"".join(b"%d,x\n" % n for n in range(100))))
    assert len(read_all(source, HUGE, 1)) == 100
    source.close()
