from __future__ import annotations

import datetime
import decimal
import json
import math

import pyarrow as pa

from gateway.sinks.rows import json_lines, json_rows

UTC = datetime.UTC


def test_a_row_is_one_object_without_a_line_end() -> None:
    batch = pa.RecordBatch.from_pylist([{"a": "x\ny", "b": None}, {"a": "\u2028é", "b": 2}])
    rows = json_rows(batch)
    assert [json.loads(row) for row in rows] == [{"a": "x\ny", "b": None}, {"a": "\u2028é", "b": 2}]
    assert all(b"\n" not in row for row in rows)
    assert json_lines(batch) == b"".join(row + b"\n" for row in rows)


def test_no_rows_are_no_bytes() -> None:
    batch = pa.RecordBatch.from_pylist([], schema=pa.schema([("a", pa.string())]))
    assert json_rows(batch) == []
    assert json_lines(batch) == b""


def test_types_that_json_does_not_know() -> None:
    batch = pa.RecordBatch.from_pylist(
        [
            {
                "at": datetime.datetime(2026, 11, 21, 13, 0, 0, 250_000, tzinfo=UTC),
                "price": decimal.Decimal("1.10"),
                "raw": b"\xff\x00",
                "huge": math.inf,
                "nested": {"list": [1, None]},
            }
        ],
        schema=pa.schema(
            [
                ("at", pa.timestamp("us", tz="UTC")),
                ("price", pa.decimal128(10, 2)),
                ("raw", pa.binary()),
                ("huge", pa.float64()),
                ("nested", pa.struct([("list", pa.list_(pa.int64()))])),
            ]
        ),
    )
    assert json_rows(batch) == [
        b'{"at":"2026-11-21T13:00:00.250000Z","price":1.10,"raw":"/wA=","huge":null,"nested":{"list":[1,null]}}'
    ]
