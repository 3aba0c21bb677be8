"""Decoding: JSON lines of 12 fields, of which a query needs four, to Arrow batches."""

from __future__ import annotations

import hashlib
import io
import json

import msgspec
import numpy as np
import orjson
import pyarrow as pa
import pyarrow.json as pj

from infra.rows.jsonlines import LineDecoder
from suite.row import Row, rate_of
from suite.turns import OURS, Goal, Sample

LINES, SEED = 2_000, 3
NEEDED = pa.schema({"device": pa.string(), "at": pa.int64(), "value": pa.float64(), "unit": pa.string()})


class Reading(msgspec.Struct):
    """The four fields."""

    device: str
    at: int
    value: float
    unit: str


def lines() -> list[bytes]:
    """Return events of some 226 bytes."""
    rng = np.random.default_rng(SEED)
    return [
        json.dumps(
            {
                "device": f"device-{int(rng.integers(500))}",
                "at": 1_750_000_000_000 + at,
                "value": float(np.round(rng.normal(20, 5), 3)),
                "unit": "C",
                "site": f"site-{at % 40}",
                "room": int(rng.integers(200)),
                "battery": float(np.round(rng.uniform(), 3)),
                "firmware": "2.14.3",
                "rssi": int(-rng.integers(30, 90)),
                "ok": bool(rng.uniform() < 0.99),
                "retries": int(rng.integers(3)),
                "tag": rng.bytes(6).hex(),
            }
        ).encode()
        for at in range(LINES)
    ]


def _answer(batch: pa.RecordBatch) -> str:
    return hashlib.sha256(json.dumps(batch.to_pydict()).encode()).hexdigest()


def ours() -> Sample:
    """Measure the gateway's decoder, with the columns that the query needs."""
    said, decoder = lines(), LineDecoder(NEEDED)
    return Sample({"events/s": rate_of(lambda: decoder.decode(said)[0].num_rows)}, _answer(decoder.decode(said)[0]))


def arrow() -> Sample:
    """Measure pyarrow.json with all fields, of which four are chosen."""
    data = b"\n".join(lines())

    def decode() -> pa.RecordBatch:
        table = pj.read_json(io.BytesIO(data), read_options=pj.ReadOptions(use_threads=False, block_size=len(data) + 1))
        return table.select(NEEDED.names).cast(NEEDED).combine_chunks().to_batches()[0]

    return Sample({"events/s": rate_of(lambda: decode().num_rows)}, _answer(decode()))


def by_orjson() -> Sample:
    """Measure orjson, one line at a time."""
    said = lines()

    def decode() -> pa.RecordBatch:
        rows = [orjson.loads(line) for line in said]
        return pa.RecordBatch.from_pydict({name: [row[name] for row in rows] for name in NEEDED.names}, NEEDED)

    return Sample({"events/s": rate_of(lambda: decode().num_rows)}, _answer(decode()))


def by_msgspec() -> Sample:
    """Measure the limit: msgspec reads the four fields, and nothing is made of them."""
    data, decoder = b"\n".join(lines()), msgspec.json.Decoder(Reading)
    return Sample({"events/s": rate_of(lambda: len(decoder.decode_lines(data)))})


ROW = Row(
    name="decode",
    title="decode, trim, batch: JSON lines of 226 bytes",
    sides={OURS: ours, "pyarrow.json": arrow, "orjson": by_orjson, "msgspec, no batch": by_msgspec},
    goals=(
        Goal("events/s", "msgspec, no batch", 0.8),
        Goal("events/s", "pyarrow.json", 1.0),
        Goal("events/s", "orjson", 1.0),
    ),
    note="4 of 12 fields become columns; 2,000 lines at a time.",
)
