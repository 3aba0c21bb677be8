"""Bytes that cross the WAN: trades of stocks."""

from __future__ import annotations

from itertools import islice

import msgspec
import pyarrow as pa

from engines.ticks.generator import generate_trades
from engines.ticks.trades import read_trades
from suite.wan.payloads import Load, origin, real, row

TRADES, SEED = 2_000, 3
NEEDED = pa.schema(
    {
        "number": pa.int64(),
        "at": pa.timestamp("us", "UTC"),
        "symbol": pa.string(),
        "price": pa.float64(),
        "shares": pa.int64(),
    }
)


def _load() -> Load:
    there = real("ticks/20131007_ibm_trade.csv.gz")
    trades = read_trades([there]) if there else generate_trades(TRADES, SEED)
    return Load([msgspec.json.encode(trade) for trade in islice(trades, TRADES)], NEEDED)


ROW = row(
    "ticks",
    "trades of stocks",
    f"2,000 {origin()} trades, of which the query needs all fields.",
    _load,
)
